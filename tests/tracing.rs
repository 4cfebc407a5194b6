//! What `process` tells of itself: a span with consumer and id, an event with the outcome.

use std::io::Write;
use std::sync::{Arc, Mutex};

use inbox::sqlite::SqliteStore;
use inbox::{Consumer, Error, Inbox, Message, MessageId};
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

#[tokio::test]
async fn events_carry_consumer_id_and_outcome() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(log.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());

    let store = SqliteStore::in_memory().unwrap();
    store.create_schema().await.unwrap();
    let inbox = Inbox::new(store, Consumer::new("loyalty").unwrap());
    let message = |payload: &[u8]| {
        Message::new(MessageId::new("m-1").unwrap(), "PaymentConfirmed").unwrap().with_payload(payload)
    };
    let process =
        async |payload: &[u8]| inbox.process(&message(payload), async |_tx| Ok::<_, Error>(())).await;

    for (payload, outcome) in [(b"1", "processed"), (b"1", "duplicate"), (b"2", "error")] {
        let _ = process(payload).await;
        let text = log.take();
        let event = text
            .lines()
            .find(|line| line.contains("outcome="))
            .unwrap_or_else(|| panic!("no outcome: {text}"));
        for field in ["consumer=loyalty", "message_id=m-1", &format!("outcome=\"{outcome}\"")] {
            assert!(event.contains(field), "{field} is missing: {event}");
        }
    }
}
