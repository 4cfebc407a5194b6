//! [`Worker`]: claims kept messages, calls the handler, completes or fails them, until it is told to stop.

mod attempt;
mod handler;
mod leases;
mod report;
mod run;
mod turns;
mod wake;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
pub use handler::MessageHandler;
use tracing::Instrument as _;

use crate::{AfterDead, Backoff, Deferred, Error, HandlerError, Inbox, StoredMessage};
use handler::{OneByOne, Together};
use run::Until;

/// Handles the kept messages of one consumer, each exactly once in its effect.
///
/// ```no_run
/// # use inbox_core::{Deferred, Error, HandlerError, Inbox, Worker};
/// # async fn credit<Tx>(_: &mut Tx, _: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn stopped() {}
/// # async fn example<S: Deferred + Clone + 'static>(inbox: Inbox<S>) -> Result<(), Error> {
/// let report = Worker::new(inbox)
///     .with_concurrency(16)
///     .run(stopped(), async |tx, message| {
///         credit(tx, &message.payload).await?; // an error is tried again later
///         Ok(())
///     })
///     .await?;
/// println!("{report:?}");
/// # Ok(())
/// # }
/// ```
///
/// # What happens to a message
///
/// A claim leases it and counts the attempt, in a short transaction. Then one transaction marks it as done
/// by its lease token, which locks its row, calls the handler, and commits: effect and completion are one.
/// Leases of messages that wait for that transaction are renewed by a task of its own; once it is open, the
/// lock of the row keeps others away. A handler that fails or panics is rolled back, and the message waits
/// by [`Backoff`] for its next attempt, or becomes a dead letter. A worker that dies leaves its leases to
/// run out; the attempt is spent.
///
/// Several workers, in one process or many, may serve one consumer.
#[derive(Clone)]
pub struct Worker<S> {
    inbox: Inbox<S>,
    concurrency: usize,
    batch: u32,
    lease: Duration,
    max_attempts: u32,
    backoff: Backoff,
    poll: Duration,
    order: Option<AfterDead>,
    handler_timeout: Option<Duration>,
    retryable: Option<Retryable>,
    grace: Duration,
}

type Retryable = Arc<dyn Fn(&HandlerError) -> bool + Send + Sync>;

impl<S: fmt::Debug> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("inbox", &self.inbox)
            .field("concurrency", &self.concurrency)
            .field("lease", &self.lease)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// What a worker did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Messages that are done: their effect is committed.
    pub done: u64,
    /// Attempts that failed and will be followed by another one.
    pub retried: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Of `dead`: messages that an earlier worker had left, and that had no attempt any more.
    pub exhausted: u64,
    /// Messages that were taken over, claimed after another worker's lease had run out.
    pub taken_over: u64,
    /// Messages whose lease was lost: another worker has them, or a commit of ours whose answer was lost
    /// had settled them.
    pub lost: u64,
    /// Attempts whose transaction was ended behind the worker's back, by a COMMIT or by DDL in the handler: **half
    /// an effect may be committed**. Such a message is dead, or done if its completion was committed too (it
    /// then counts as `lost` as well). An event of level ERROR names it.
    pub transaction_lost: u64,
    /// Messages given back at the shutdown, their attempt not counted.
    pub released: u64,
    /// Attempts whose outcome could not be written down, since the database could not be reached. Their
    /// leases run out.
    pub unsettled: u64,
}

impl<S: Deferred + Clone + 'static> Worker<S> {
    /// A worker with the defaults that its setters name.
    pub fn new(inbox: Inbox<S>) -> Self {
        Self {
            inbox,
            concurrency: 8,
            batch: 100,
            lease: Duration::from_secs(30),
            max_attempts: 10,
            backoff: Backoff::default(),
            poll: Duration::from_secs(1),
            order: None,
            handler_timeout: None,
            retryable: None,
            grace: Duration::from_secs(30),
        }
    }

    /// How many handlers run at a time, each in a transaction and so on a connection of its own. 8 by
    /// default; the pool needs two connections more. SQLite has one writer: there they take turns, and it says how many are claimed at once.
    #[must_use]
    pub fn with_concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.max(1);
        self
    }

    /// How many messages a transaction of [`run_batches`](Self::run_batches) has at most. 100 by default.
    #[must_use]
    pub fn with_batch(mut self, messages: u32) -> Self {
        self.batch = messages.max(1);
        self
    }

    /// How long a message stays with a worker that does not answer any more. 30 s by default; renewed at a
    /// third of it. Kept in the row, so that every worker judges it alike (B87).
    ///
    /// Choose it longer than a handler takes. While a handler runs its row is locked, and nobody takes it over
    /// nor renews it; if it *fails* after its lease has run out, another worker may claim the message before the
    /// failure is written down: the attempt counts, but its error, its backoff and a "never retry" are lost.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often a message is claimed before it becomes a dead letter. 10 by default.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// How long a failed message waits for its next attempt.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How long it takes at most until a message that is due is noticed, when nothing told of it. 1 s by
    /// default. Where the engine does not tell of messages, an idle worker looks at a twentieth of it
    /// first and then ever more seldom.
    #[must_use]
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Keeps the order of each [ordering key](crate::OrderingKey): while one message of a key is waiting,
    /// leased or to be retried, the later ones wait (D7). Off by default: then nothing is promised. All
    /// workers of a consumer must be set alike.
    #[must_use]
    pub fn with_order(mut self, after_dead: AfterDead) -> Self {
        self.order = Some(after_dead);
        self
    }

    /// How long a handler may take; past it the attempt has failed. No limit by default. Set it shorter than
    /// the [lease](Self::with_lease).
    #[must_use]
    pub fn with_handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = Some(timeout);
        self
    }

    /// Which of the handler's errors say nothing about the message, such as a deadlock in its own SQL: the
    /// transaction is run again at once, under the same lease and as part of the same attempt, as long as the
    /// inbox's [`with_retry`](Inbox::with_retry) says. None by default. Each backend has an `is_retryable` for its
    /// driver's errors, which [`HandlerError::downcast_ref`] brings back.
    ///
    /// ```no_run
    /// # use inbox_core::{Deferred, HandlerError, Worker};
    /// # mod inbox_postgres { pub fn is_retryable(_: &std::io::Error) -> bool { true } }
    /// # use std::io::Error as SqlxError;
    /// # fn example<S: Deferred + Clone + 'static>(worker: Worker<S>) {
    /// let again = |error: &HandlerError| {
    ///     error.downcast_ref::<SqlxError>().is_some_and(inbox_postgres::is_retryable)
    /// };
    /// let worker = worker.with_retryable(again);
    /// # }
    /// ```
    #[must_use]
    pub fn with_retryable(
        mut self,
        retryable: impl Fn(&HandlerError) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.retryable = Some(Arc::new(retryable));
        self
    }

    /// How long a shutdown waits for handlers that are running. 30 s by default; after it they are rolled
    /// back, and their attempt has failed. To write that down takes 5 s more at most.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    fn span(&self) -> tracing::Span {
        tracing::info_span!("inbox.worker", consumer = %self.inbox.consumer())
    }

    /// The inbox.
    pub fn inbox(&self) -> &Inbox<S> {
        &self.inbox
    }

    /// Works until `shutdown` is ready, whatever it answers (`tokio::signal::ctrl_c()` does); then claims
    /// nothing more and finishes what is in hand.
    ///
    /// The handler changes no capture and is no `async move` closure: of others the compiler says that they do
    /// not implement `Fn`. In a task of its own: `tokio::spawn(async move { worker.run(stop, async |tx, message| …).await })`.
    ///
    /// Waits out an outage of the database. Dropping the future rolls back what is running and leaves the
    /// leases to run out; a claim that was on its way may still lease messages then, and gives them back. Handlers run inside this future: what blocks its thread blocks them all, but not
    /// the renewal of leases, if the runtime has another thread.
    ///
    /// # Errors
    ///
    /// What no waiting mends, when claiming: `Schema`, `Backend`. What was in hand is finished first.
    pub fn run<'a, F>(
        &'a self,
        shutdown: impl Future<Output: Send> + Send + 'a,
        handler: F,
    ) -> impl Future<Output = Result<WorkerReport, Error>> + Send + 'a
    where
        F: for<'t, 'm> AsyncFn(&'t mut S::Tx, &'m StoredMessage) -> Result<(), HandlerError>
            + for<'t, 'm> MessageHandler<&'t mut S::Tx, &'m StoredMessage, Fut: Send>
            + Send
            + Sync
            + 'a,
    {
        let span = self.span();
        async move { run::run(self, 1, Until::Told(Box::pin(shutdown.map(drop))), &OneByOne(handler)).await }
            .instrument(span)
    }

    /// Works until no message of the consumer is pending any more: what failed is waited for and tried
    /// again. For tests, and for jobs that run now and then.
    ///
    /// Does not end while somebody goes on receiving, nor while a dead letter blocks its key
    /// ([`AfterDead::Block`]).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_until_drained<'a, F>(
        &'a self,
        handler: F,
    ) -> impl Future<Output = Result<WorkerReport, Error>> + Send + 'a
    where
        F: for<'t, 'm> AsyncFn(&'t mut S::Tx, &'m StoredMessage) -> Result<(), HandlerError>
            + for<'t, 'm> MessageHandler<&'t mut S::Tx, &'m StoredMessage, Fut: Send>
            + Send
            + Sync
            + 'a,
    {
        let span = self.span();
        async move { run::run(self, 1, Until::Drained, &OneByOne(handler)).await }.instrument(span)
    }

    /// As [`run`](Self::run), with many messages in one transaction: the handler gets up to
    /// [`with_batch`](Self::with_batch) of them. If it fails, each of its messages is handled alone, so
    /// that one does not condemn the others (R18).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_batches<'a, F>(
        &'a self,
        shutdown: impl Future<Output: Send> + Send + 'a,
        handler: F,
    ) -> impl Future<Output = Result<WorkerReport, Error>> + Send + 'a
    where
        F: for<'t, 'm> AsyncFn(&'t mut S::Tx, &'m [StoredMessage]) -> Result<(), HandlerError>
            + for<'t, 'm> MessageHandler<&'t mut S::Tx, &'m [StoredMessage], Fut: Send>
            + Send
            + Sync
            + 'a,
    {
        let span = self.span();
        async move {
            run::run(self, self.batch, Until::Told(Box::pin(shutdown.map(drop))), &Together(handler)).await
        }
        .instrument(span)
    }

    /// As [`run_batches`](Self::run_batches), until no message of the consumer is pending any more.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_batches_until_drained<'a, F>(
        &'a self,
        handler: F,
    ) -> impl Future<Output = Result<WorkerReport, Error>> + Send + 'a
    where
        F: for<'t, 'm> AsyncFn(&'t mut S::Tx, &'m [StoredMessage]) -> Result<(), HandlerError>
            + for<'t, 'm> MessageHandler<&'t mut S::Tx, &'m [StoredMessage], Fut: Send>
            + Send
            + Sync
            + 'a,
    {
        let span = self.span();
        async move { run::run(self, self.batch, Until::Drained, &Together(handler)).await }.instrument(span)
    }
}
