//! What the cases see: a store behind trait objects, so that each case is compiled once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    BatchOutcome, BoxError, Capabilities, Error, Message, MessageId, Original, Outcome, Registration,
};

use super::deferred::keeper::TestKeeper;
use super::{Level, Need};

/// A fresh store on its server.
#[async_trait]
pub(super) trait Stage: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// The level at which [`TestInbox::begin`] begins; `None` is the store's default.
    fn level(&self) -> Option<Level>;

    /// The first of the probe's levels that fits.
    fn level_where(&self, fits: fn(&Level) -> bool) -> Level;

    fn inbox(&self, consumer: &str) -> Box<dyn TestInbox + '_>;

    /// A consumer's deferred inbox, for cases that need [`Need::Deferred`].
    fn keeper(&self, consumer: &str) -> Box<dyn TestKeeper + '_>;

    async fn advance_clock(&self, by: Duration);

    fn messages_table(&self) -> &'static str;

    fn inbox_waiting(&self, consumer: &str, wait: Duration) -> Box<dyn TestInbox + '_>;

    async fn effects(&self, name: &str) -> i64;

    async fn execute(&self, sql: &str);

    /// As [`execute`](Self::execute), where the engine may refuse it.
    async fn try_execute(&self, sql: &str) -> Result<(), BoxError>;

    async fn is_waiting(&self, session: &str) -> bool;

    async fn kill(&self, session: &str);

    async fn open_transactions(&self) -> u64;

    async fn create_schema(&self) -> Result<(), Error>;

    async fn verify(&self) -> Result<(), Error>;

    fn offers(&self, need: Need) -> bool;

    fn aborting_sql(&self) -> &'static str;

    fn swallow_inserts(&self) -> Vec<String>;

    fn shadow_table(&self) -> &'static str;

    fn table(&self) -> &'static str;

    fn damage(&self, name: &str) -> Vec<String>;
}

/// One consumer's inbox on the stage.
#[async_trait]
pub(super) trait TestInbox: Send + Sync {
    async fn begin(&self) -> Result<Box<dyn Session + '_>, Error>;

    async fn begin_at(&self, level: &Level) -> Result<Box<dyn Session + '_>, Error>;

    async fn process(&self, message: &Message, script: &Script) -> Result<Outcome<()>, HandlerError>;

    /// Runs [`Step::Fail`] again, as an application does with its own deadlocks.
    async fn process_retrying(&self, message: &Message, script: &Script)
    -> Result<Outcome<()>, HandlerError>;

    async fn process_batch(
        &self,
        messages: &[Message],
        script: &Script,
    ) -> Result<Vec<BatchOutcome<HandlerError>>, HandlerError>;

    /// Runs [`Step::Fail`] again, as [`process_retrying`](Self::process_retrying) does.
    async fn process_batch_retrying(
        &self,
        messages: &[Message],
        script: &Script,
    ) -> Result<Vec<BatchOutcome<HandlerError>>, HandlerError>;

    /// By value in a transaction of the store's: `Ok(None)` is new, handled by `script` and committed.
    async fn register_by_value(
        &self,
        message: &Message,
        script: &Script,
    ) -> Result<Option<Original>, HandlerError>;

    async fn find(&self, id: &MessageId) -> Result<Option<Original>, Error>;

    async fn forget(&self, id: &MessageId) -> Result<bool, Error>;
}

/// An open transaction with the inbox's guard on it.
#[async_trait]
pub(super) trait Session: Send {
    async fn register(&mut self, message: &Message) -> Result<Registration, Error>;

    async fn register_batch(&mut self, messages: &[Message]) -> Result<Vec<Registration>, Error>;

    /// By reference on the transaction inside the guard, as nested code does.
    async fn register_by_reference(&mut self, message: &Message) -> Result<Registration, Error>;

    async fn effect(&mut self, name: &str) -> Result<(), BoxError>;

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError>;

    async fn id(&mut self) -> String;

    async fn settings(&mut self) -> String;

    async fn commit(self: Box<Self>) -> Result<(), Error>;

    async fn rollback(self: Box<Self>) -> Result<(), Error>;
}

/// What a handler does, and how often it was called.
pub(super) struct Script {
    /// The step for each message; a batch does one per new message.
    pub(super) step: Box<dyn Fn(&str) -> Step + Send + Sync>,
    pub(super) calls: AtomicUsize,
}

impl Script {
    pub(super) fn new(step: impl Fn(&str) -> Step + Send + Sync + 'static) -> Self {
        Self { step: Box::new(step), calls: AtomicUsize::new(0) }
    }

    /// Writes an effect named as the message.
    pub(super) fn effect() -> Self {
        Self::new(|_| Step::Effect)
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// One step of a handler; the effect's name is the message's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Write the effect.
    Effect,
    /// Write the effect, then fail.
    Fail,
    /// Write the effect, then panic.
    Panic,
    /// Write the effect, then never return.
    Hang,
    /// Write the effect, swallow an SQL error, succeed.
    SwallowError,
    /// Write the effect, end the transaction by a raw COMMIT, then fail.
    CommitAndFail,
    /// The same, and begin another transaction in its place before failing.
    RestartAndFail,
}

/// The handler's error type in the suite.
#[derive(Debug)]
pub(super) enum HandlerError {
    Inbox(Error),
    /// The script said [`Step::Fail`].
    Failed,
    /// The stand could not write the effect.
    #[allow(dead_code, reason = "read by Debug, in the text of a failed assertion")]
    Effect(BoxError),
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        Self::Inbox(error)
    }
}
