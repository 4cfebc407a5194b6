//! The cases, one file per group of rules, and the small words they are written in.

mod d02_claims;
mod d02_kept;
mod d03_fence;
mod d04_attempts;
mod d05_failures;
mod d07_order;
mod d08_operate;
mod d10_workers;
mod deferred;
mod r01_unique;
mod r04_forgotten;
mod r05_waits;
mod r07_bytes;
mod r09_errors;
mod r10_batches;
mod r12_commits;
mod r15_schema;
mod r17_cancelled;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use inbox_core::{Error, ErrorKind, Message, MessageId, Original, Registration};

use super::Need;
use super::stage::{Script, Session, Stage, TestInbox};

/// A case runs on one thread, so that its futures need not be `Send`.
pub(super) type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// One case of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence that starts with the rule's number (`r05_waiter_of_a_commit_is_duplicate`).
    pub name: &'static str,
    /// What holds, and what to look for when it fails.
    pub about: &'static str,
    /// What it needs beyond a store.
    pub needs: &'static [Need],
    /// Whether it runs once per isolation level, or once.
    pub per_level: bool,
    pub(super) run: fn(Arc<dyn Stage>) -> LocalFuture,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Every case, in the order of the rules.
pub fn all() -> Vec<Case> {
    [
        r01_unique::CASES,
        r04_forgotten::CASES,
        r05_waits::CASES,
        r07_bytes::CASES,
        r09_errors::CASES,
        r10_batches::CASES,
        r12_commits::CASES,
        r15_schema::CASES,
        r17_cancelled::CASES,
        d02_kept::CASES,
        d02_claims::CASES,
        d03_fence::CASES,
        d04_attempts::CASES,
        d05_failures::CASES,
        d07_order::CASES,
        d08_operate::CASES,
        d10_workers::CASES,
    ]
    .concat()
}

/// Defines cases: a doc comment, `every_level` or `once`, the needs, a name and a body.
macro_rules! cases {
    ($($(#[doc = $about:literal])+ $levels:ident($($need:ident),*) fn $name:ident($stage:ident) $body:block)*) => {
        $(async fn $name($stage: std::sync::Arc<dyn $crate::suite::stage::Stage>) $body)*

        pub(super) const CASES: &[$crate::suite::Case] = &[$($crate::suite::Case {
            name: stringify!($name),
            about: concat!($($about),+),
            needs: &[$($crate::suite::Need::$need),*],
            per_level: $crate::suite::cases::cases!(@$levels),
            run: |stage| Box::pin($name(stage)),
        }),*];
    };
    (@every_level) => { true };
    (@once) => { false };
}
use cases;

fn id(text: &str) -> MessageId {
    MessageId::new(text).expect("the case's id is valid")
}

fn message(text: &str) -> Message {
    Message::new(id(text), "PaymentConfirmed").expect("the event type is valid")
}

fn messages(texts: &[&str]) -> Vec<Message> {
    texts.iter().map(|text| message(text)).collect()
}

/// Registers, writes the effect named as the id, commits.
async fn handle(inbox: &dyn TestInbox, message: &Message) {
    let mut tx = inbox.begin().await.expect("begin");
    assert_eq!(tx.register(message).await.expect("register"), Registration::New, "{message:?}");
    tx.effect(message.id().as_str()).await.expect("the effect is written");
    tx.commit().await.expect("commit");
}

/// Registers in a transaction of its own, which is committed.
async fn deliver(inbox: &dyn TestInbox, message: &Message) -> Registration {
    let mut tx = inbox.begin().await.expect("begin");
    let answer = tx.register(message).await.expect("register");
    tx.commit().await.expect("commit");
    answer
}

/// A transaction that has registered the message as new and is still open.
async fn hold<'a>(inbox: &'a dyn TestInbox, message: &Message) -> Box<dyn Session + 'a> {
    let mut tx = inbox.begin().await.expect("begin");
    assert_eq!(tx.register(message).await.expect("register"), Registration::New);
    tx
}

fn original(answer: Registration) -> Original {
    match answer {
        Registration::Duplicate(original) => original,
        other => panic!("expected a duplicate, got {other:?}"),
    }
}

fn assert_duplicate(answer: &Registration) {
    assert!(matches!(answer, Registration::Duplicate(_)), "expected a duplicate, got {answer:?}");
}

fn assert_kind<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) {
    match result {
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
        Ok(answer) => panic!("expected an error of kind {kind:?}, got {answer:?}"),
    }
}

/// Whether a call has answered. One that should wait must not have, when its turn comes.
#[derive(Default)]
struct Answered(Cell<bool>);

impl Answered {
    async fn note<T>(&self, call: impl Future<Output = T>) -> T {
        let answer = call.await;
        self.0.set(true);
        answer
    }
}

/// Waits until the engine's own view says that the session waits for another one.
async fn until_waiting(stage: &dyn Stage, session: &str, call: &Answered) {
    until("the session waits", async || {
        assert!(!call.0.get(), "the call answered instead of waiting for the transaction that holds the id");
        stage.is_waiting(session).await
    })
    .await;
}

/// Looks again and again until a state of the engine is reached; no outcome depends on the pause.
async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !reached().await {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}: not within 10 seconds");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Polls a future at most `polls` times, then drops it.
async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Whether the future panicked while it was polled.
async fn panics<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(_)) => Poll::Ready(false),
        Err(_) => Poll::Ready(true),
    })
    .await
}

/// Processes until the message is settled, as a broker would redeliver it.
async fn process(inbox: &dyn TestInbox, message: &Message) -> bool {
    let outcome = inbox.process(message, &Script::effect()).await.expect("process");
    outcome.is_processed()
}
