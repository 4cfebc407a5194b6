//! What a backend implements: [`InboxStore`], [`Transactional`], [`Begin`], [`Administer`].

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Consumer, Error, ErrorKind, Lease, Message, MessageId, Original, Registration};

/// A boxed future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How long a call waits for another transaction that holds the id, unless told otherwise (R6).
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// A request to register one message. Made by [`Register::new`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Register<'a> {
    /// Who handles the message.
    pub consumer: &'a Consumer,
    /// The message.
    pub message: &'a Message,
    /// The longest wait for another transaction that holds the id; `None` is the store's own
    /// default, zero is no wait. Past it the call is an error of kind `Busy` (R6).
    pub wait: Option<Duration>,
    /// How the registration stands to a [`GuardedTx`](crate::GuardedTx).
    pub guard: Guard,
}

impl<'a> Register<'a> {
    /// A request with the store's default wait, outside any guard.
    pub fn new(consumer: &'a Consumer, message: &'a Message) -> Self {
        Self { consumer, message, wait: None, guard: Guard::Outside }
    }

    /// Sets the longest wait.
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Says how the registration stands to a guard.
    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("register message {:?} for consumer {:?}", self.message.id().as_str(), self.consumer.as_str())
    }
}

/// A request to register many messages of one consumer. Made by [`RegisterBatch::new`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RegisterBatch<'a> {
    /// Who handles the messages.
    pub consumer: &'a Consumer,
    /// The messages; repeats are allowed.
    pub messages: &'a [Message],
    /// The longest wait of the whole call, see [`Register::wait`].
    pub wait: Option<Duration>,
    /// See [`Register::guard`].
    pub guard: Guard,
}

impl<'a> RegisterBatch<'a> {
    /// A request with the store's default wait, outside any guard.
    pub fn new(consumer: &'a Consumer, messages: &'a [Message]) -> Self {
        Self { consumer, messages, wait: None, guard: Guard::Outside }
    }

    /// Sets the longest wait of the whole call.
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Says how the registrations stand to a guard.
    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// The store's answers, if there is one for each message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backend`] otherwise: answers that cannot be told apart by position are none.
    pub(crate) fn one_each(&self, answers: Vec<Registration>) -> Result<Vec<Registration>, Error> {
        if answers.len() == self.messages.len() {
            return Ok(answers);
        }
        let detail = format!("the store answered {} of {} messages", answers.len(), self.messages.len());
        Err(Error::new(ErrorKind::Backend, self.doing()).with_detail(detail))
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!(
            "register a batch of {} messages for consumer {:?}",
            self.messages.len(),
            self.consumer.as_str()
        )
    }
}

/// How a registration stands to the guard of its transaction: whether [`Transactional::commit`] will
/// ask the store to prove it (R12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// By reference, without a guard: no commit will ask for it.
    Outside,
    /// The first call of a guard on a transaction that the caller began and passed by value. A store
    /// that needs a mark in the transaction sets it here, in the same round trip.
    Opens,
    /// The guard was set by [`Begin::begin`], [`Transactional::guard`] or an earlier call, and nothing
    /// but calls of the guard has touched the transaction since.
    Fresh,
    /// The guard was set, and the caller has had the transaction in hand since: it may have ended it,
    /// or set a savepoint.
    Lent,
}

impl Guard {
    /// Whether the commit will ask for the registration.
    pub fn is_guarded(self) -> bool {
        self != Self::Outside
    }

    /// What the next call is, after one that answered.
    #[must_use]
    pub fn after(self) -> Self {
        if self == Self::Opens { Self::Fresh } else { self }
    }
}

/// A request to end a transaction: which new registrations it must still hold (R12).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct End<'a> {
    /// Whose registrations they are.
    pub consumer: &'a Consumer,
    /// The ids that were answered `New` through the guard, each once, in the order of their bytes.
    pub registered: &'a [MessageId],
    /// Those of them that were registered after the caller had the transaction in hand, so that a
    /// savepoint of the caller's may be older and may have undone them. The others can only be
    /// undone by what undoes the guard as well.
    pub undoable: &'a [MessageId],
    /// The kept messages that were completed in it, by the guard's first calls, so that no savepoint of
    /// the caller's can undo them alone.
    pub completed: &'a [Lease],
}

impl<'a> End<'a> {
    /// A request to end a transaction that holds these new registrations, any of which may have been
    /// undone by a savepoint.
    pub fn new(consumer: &'a Consumer, registered: &'a [MessageId]) -> Self {
        Self { consumer, registered, undoable: registered, completed: &[] }
    }

    /// Says which of the registrations a savepoint may have undone.
    #[must_use]
    pub fn undoable(mut self, undoable: &'a [MessageId]) -> Self {
        self.undoable = undoable;
        self
    }

    /// Says which kept messages were completed in it.
    #[must_use]
    pub fn completed(mut self, completed: &'a [Lease]) -> Self {
        self.completed = completed;
        self
    }

    /// What the call is doing, for the text of an error; `verb` is "commit" or "roll back".
    pub fn doing(&self, verb: &str) -> String {
        let consumer = self.consumer.as_str();
        match self.registered {
            [] if !self.completed.is_empty() => {
                let count = self.completed.len();
                let first = self.completed[0].sequence;
                format!(
                    "{verb} {count} kept messages of consumer {consumer:?}, the first of sequence {first}"
                )
            }
            [] => format!("{verb} a transaction of consumer {consumer:?}"),
            [id] => format!("{verb} message {:?} of consumer {consumer:?}", id.as_str()),
            [id, ..] => {
                let count = self.registered.len();
                format!("{verb} {count} messages of consumer {consumer:?}, the first {:?}", id.as_str())
            }
        }
    }
}

/// Registers ids in the **caller's** transaction. `Tx` is that transaction's type, so one store can
/// serve several drivers.
///
/// An implementation keeps rules R1 to R13; run the conformance suite of `inbox-testkit` on it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot register in a `{Tx}`",
    label = "this is not a transaction of the store's database",
    note = "pass the transaction in which the effect is written (for sqlx: what `pool.begin()` returns), not a pool or a plain connection: outside a transaction the registration would be committed without the effect",
    note = "by reference pass `&mut tx`; in sqlx `&mut *tx` is the plain connection inside it"
)]
#[async_trait]
pub trait InboxStore<Tx: Send>: Send + Sync {
    /// Inserts (consumer, message id) unless it is there, and says which.
    ///
    /// A mismatch is an answer here; [`Inbox`](crate::Inbox) and [`GuardedTx`](crate::GuardedTx) make it an error.
    ///
    /// # Errors
    ///
    /// Any kind of [`ErrorKind`](crate::ErrorKind) but `UnknownOutcome` and `Mismatch`.
    async fn register_if_new(&self, tx: &mut Tx, request: &Register<'_>) -> Result<Registration, Error>;

    /// Registers many messages; answers by position, as single calls one after the other would (R10).
    ///
    /// [`BatchPlan`](crate::BatchPlan) sorts and de-duplicates for a set-based statement;
    /// [`register_one_by_one`](crate::register_one_by_one) is a correct, slow body.
    ///
    /// # Errors
    ///
    /// As [`register_if_new`](Self::register_if_new), but a mismatch is an answer at its position.
    async fn register_batch(
        &self,
        tx: &mut Tx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error>;

    /// Sees to it that `tx` can only be rolled back, as far as the driver lets it (R9).
    ///
    /// [`Inbox`](crate::Inbox) calls it after an error in a transaction that it does not own. It has
    /// no error of its own: what fails here leaves the transaction as broken as it was meant to be.
    async fn condemn(&self, tx: &mut Tx);

    /// What the store and its engine can do; chooses the conformance cases.
    fn capabilities(&self) -> Capabilities;
}

/// A store that can end a transaction and tell for certain how it ended (R12).
///
/// The one trait here without `#[async_trait]`: a transaction that is passed by value and borrows from
/// its pool does not fit it. An implementation returns `Box::pin(async move { … })`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot register in and commit a `{Tx}`",
    label = "this is not a transaction of the store's database",
    note = "pass the transaction in which the effect is written, by value (for sqlx: what `pool.begin()` returns), not a pool or a plain connection: outside a transaction the registration would be committed without the effect"
)]
pub trait Transactional<Tx: Send>: InboxStore<Tx> {
    /// Puts the store's mark on a transaction that the caller began, so that
    /// [`commit`](Self::commit) can prove what is registered from here on. [`Begin::begin`] does the
    /// same for a transaction of the store's own.
    ///
    /// A store whose guard needs no mark returns `Ok`.
    ///
    /// # Errors
    ///
    /// `TransactionLost` if the driver has none open, `Unavailable`, or what the engine reports.
    fn guard<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), Error>>;

    /// Commits, and answers `Ok` only if the commit is certain and the registrations of `request`
    /// were still in the transaction.
    ///
    /// # Errors
    ///
    /// `Aborted`, `TransactionLost`, `Retryable`, `UnknownOutcome`, or what the engine reports.
    fn commit<'a>(&'a self, tx: Tx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        Tx: 'a;

    /// Rolls back. Dropping the transaction does the same without reporting an error.
    ///
    /// # Errors
    ///
    /// `TransactionLost` if the transaction had been ended behind the store's back, so that an effect
    /// may be committed: it is over, or another one was begun that lacks the registrations; `Unavailable` or what the engine reports. The transaction is over in any case.
    fn rollback<'a>(&'a self, tx: Tx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        Tx: 'a;
}

/// A store that can begin transactions of its own, so that [`Inbox::process`](crate::Inbox::process) works.
#[async_trait]
pub trait Begin: Transactional<<Self as Begin>::Tx> {
    /// The transaction that `begin` returns and that handlers get.
    type Tx: Send + 'static;

    /// Begins a transaction. Dropping the future leaves none open (R17).
    ///
    /// `wait` bounds the wait where the engine waits here and not when registering (SQLite);
    /// elsewhere it is ignored.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Busy`, or what the engine reports.
    async fn begin(&self, wait: Option<Duration>) -> Result<Self::Tx, Error>;
}

/// What an operator does, each on a connection of its own.
#[async_trait]
pub trait Administer: Send + Sync {
    /// The committed original of an id. For people: it is no check to act on, since another
    /// transaction may be about to register the id.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Schema`, or what the engine reports.
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error>;

    /// Deletes one registration on purpose, so that the next delivery of the id is new **and its
    /// effect happens again**. Answers whether there was one.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find), and `Busy` if a transaction holds the row past the store's wait.
    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error>;
}

/// What a store and its engine can do. Declared truthfully: the conformance suite skips the cases
/// that a missing capability excludes, and fails a capability that is denied but works.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Where a transaction meets another one that holds the id.
    pub waits: Waits,
    /// The smallest difference in the bounded wait that the store honours (R6): a wait may last so
    /// much longer than its bound.
    pub wait_resolution: Duration,
    /// Savepoints inside the caller's transaction forget a registration when rolled back (R4).
    pub savepoints: bool,
    /// A commit of a transaction that an error aborted, or that was ended behind the store's back,
    /// is an error (R12).
    pub proves_commit: bool,
    /// A commit notices a registration that a savepoint undid (R12).
    pub notices_undone_savepoint: bool,
    /// A commit and a rollback notice that the transaction was committed by raw SQL and another one
    /// begun in its place (R12).
    pub notices_restart: bool,
}

impl Capabilities {
    /// Capabilities of a store that does everything, waiting where `waits` says.
    pub fn all(waits: Waits) -> Self {
        Self {
            waits,
            wait_resolution: Duration::from_millis(1),
            savepoints: true,
            proves_commit: true,
            notices_undone_savepoint: true,
            notices_restart: true,
        }
    }
}

/// Where a transaction meets another one that holds the same id (R5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waits {
    /// Registering waits for the other transaction's end (PostgreSQL, MySQL, MariaDB).
    WhenRegistering,
    /// Beginning waits: transactions are serial (SQLite).
    WhenBeginning,
    /// Nobody waits; the loser gets a retryable error at commit (Redis).
    LosesAtCommit,
}
