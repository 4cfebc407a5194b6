//! What `process` tells of itself: a span with consumer and id, an event with the outcome.

use std::io::Write;
use std::sync::{Arc, Mutex};

use inbox::sqlite::{SqliteStore, SqliteTx};
use inbox::{BatchOutcome, Consumer, Error, ErrorKind, Inbox, Message, MessageId};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().expect("no panic"))).expect("UTF-8")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn listen(level: tracing::Level) -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(log.clone()).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

async fn inbox() -> Inbox<SqliteStore> {
    let store = SqliteStore::in_memory().expect("valid");
    store.create_schema().await.expect("valid");
    Inbox::new(store, Consumer::new("loyalty").expect("valid"))
}

fn message(payload: &[u8]) -> Message {
    Message::new(MessageId::new("m-1").expect("valid"), "PaymentConfirmed")
        .expect("valid")
        .with_payload(payload)
}

async fn process(inbox: &Inbox<SqliteStore>, payload: &[u8]) {
    let _ = inbox.process(&message(payload), async |_tx| Ok::<_, Error>(())).await;
}

fn assert_event(text: &str, outcome: &str) {
    let event = text.lines().find(|line| line.contains(" outcome=") || line.contains(": outcome="));
    let event = event.unwrap_or_else(|| panic!("no event with an outcome: {text}"));
    for field in ["consumer=loyalty", "message_id=m-1", &format!("outcome=\"{outcome}\"")] {
        assert!(event.contains(field), "{field} is missing: {event}");
    }
}

#[tokio::test]
async fn events_carry_consumer_id_and_outcome() {
    let (log, _listening) = listen(tracing::Level::DEBUG);
    let inbox = inbox().await;
    for (payload, outcome) in [(b"1", "processed"), (b"1", "duplicate"), (b"2", "error")] {
        process(&inbox, payload).await;
        assert_event(&log.take(), outcome);
    }
}

#[tokio::test]
async fn an_error_says_whose_it_is_at_the_usual_level() {
    let (log, _listening) = listen(tracing::Level::INFO);
    let inbox = inbox().await;
    process(&inbox, b"1").await;
    assert_eq!(log.take(), "", "a message that went well is no news");
    process(&inbox, b"2").await;
    assert_event(&log.take(), "error");
}

#[tokio::test]
async fn a_registration_in_a_transaction_of_ones_own_is_told() {
    let (log, _listening) = listen(tracing::Level::DEBUG);
    let inbox = inbox().await;
    let mut tx = inbox.begin().await.unwrap();
    tx.register_if_new(&message(b"1")).await.unwrap();
    let text = log.take();
    for field in ["consumer=loyalty", "message_id=m-1", "answer=\"new\""] {
        assert!(text.contains(field), "{field} is missing: {text}");
    }
}

#[tokio::test]
async fn a_message_of_a_batch_that_fails_alone_is_named() {
    let (log, _listening) = listen(tracing::Level::DEBUG);
    let inbox = inbox().await;
    let named = |id: &str| Message::new(MessageId::new(id).unwrap(), "PaymentConfirmed").unwrap();
    let handler = async |_tx: &mut SqliteTx, new: &[&Message]| match new {
        [one] if one.id().as_str() == "m-2" => Err(Error::new(ErrorKind::Backend, "credit")),
        [_one] => Ok(()),
        _ => Err(Error::new(ErrorKind::Backend, "credit all")),
    };
    let batch = [named("m-1"), named("m-2")];
    let outcomes = inbox.process_batch(&batch, handler).await.unwrap();
    assert!(matches!(outcomes[..], [BatchOutcome::Processed, BatchOutcome::Failed(_)]), "{outcomes:?}");
    let text = log.take();
    let failed = text.lines().find(|line| line.contains("outcome=\"failed\"")).expect("told");
    assert!(failed.contains("message_id=m-2"), "{failed}");
}
