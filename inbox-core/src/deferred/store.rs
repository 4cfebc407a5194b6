//! What a backend implements so that it can keep messages: [`KeepMessages`] and [`Deferred`].
//!
//! All times are the database's (D2): requests carry durations, and the statement adds them to its clock.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    Begin, Consumer, Envelope, Error, ErrorKind, EventType, InboxStore, MessageId, MessageRow, OrderingKey,
    State,
};

/// A claim's mark on the rows that it took. Whoever does not know it can change nothing (D3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    /// A token that nobody else has.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The 16 bytes, for a store to keep.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

/// The right to handle one message, until it runs out or is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The message's row.
    pub sequence: i64,
    /// The claim's token.
    pub token: LeaseToken,
}

/// A request to keep messages that were registered as new in this very transaction.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct KeepRequest<'a> {
    /// Whose messages they are.
    pub consumer: &'a Consumer,
    /// The messages, in the order of receiving, each once.
    pub envelopes: &'a [&'a Envelope],
}

impl<'a> KeepRequest<'a> {
    /// A request to keep these messages, in this order.
    pub fn new(consumer: &'a Consumer, envelopes: &'a [&'a Envelope]) -> Self {
        Self { consumer, envelopes }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        let consumer = self.consumer.as_str();
        match self.envelopes {
            [one] => format!("keep message {:?} of consumer {consumer:?}", one.message().id().as_str()),
            many => format!("keep {} messages of consumer {consumer:?}", many.len()),
        }
    }
}

/// Keeps whole messages in the **caller's** transaction.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot keep a message in a `{Tx}`",
    label = "this is not a transaction of a store that keeps messages",
    note = "pass the transaction by `&mut`; the stores of inbox-postgres, inbox-mysql and inbox-sqlite keep messages"
)]
#[async_trait]
pub trait KeepMessages<Tx: Send>: InboxStore<Tx> {
    /// Inserts the messages as pending, after their ids were registered as new in `tx`. Their
    /// `sequence` grows in the order given. Whoever watches for messages is told when `tx` commits.
    ///
    /// # Errors
    ///
    /// As [`InboxStore::register_if_new`]. Nothing is kept half: an error condemns the transaction.
    async fn keep(&self, tx: &mut Tx, request: &KeepRequest<'_>) -> Result<(), Error>;
}

/// A request to claim messages that are due.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// Whose messages.
    pub consumer: &'a Consumer,
    /// How many at most, from 1.
    pub limit: u32,
    /// How long the lease holds unless it is renewed.
    pub lease: Duration,
    /// What to mark the rows with.
    pub token: LeaseToken,
    /// A message that was claimed so often becomes dead instead, unless a replay allowed it another attempt.
    pub max_attempts: u32,
    /// Whether to keep the order of each key (D7).
    pub order: Option<AfterDead>,
}

impl<'a> Claim<'a> {
    /// In how many windows a claim in order looks at most, where all that it saw has to wait for something else.
    pub const WINDOWS: u32 = 50;

    /// How many due messages a claim in order looks at in one go.
    pub fn window(&self) -> u32 {
        self.limit.saturating_mul(4).max(200)
    }

    /// A claim of one message under a new token, without an order.
    pub fn new(consumer: &'a Consumer, lease: Duration, max_attempts: u32) -> Self {
        Self { consumer, limit: 1, lease, token: LeaseToken::random(), max_attempts, order: None }
    }

    /// Claims up to so many.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit.max(1);
        self
    }

    /// Keeps the order of each key.
    #[must_use]
    pub fn order(mut self, order: Option<AfterDead>) -> Self {
        self.order = order;
        self
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("claim messages of consumer {:?}", self.consumer.as_str())
    }
}

/// What a dead message does to the later ones of its key, where the order is kept (D7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDead {
    /// They wait until it is replayed and done.
    Block,
    /// They go on without it.
    Pass,
}

/// A request to renew leases.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Renew<'a> {
    /// Whose messages they are.
    pub consumer: &'a Consumer,
    /// The leases.
    pub leases: &'a [Lease],
    /// How long they hold from now on.
    pub lease: Duration,
}

impl<'a> Renew<'a> {
    /// A request to let these leases hold so long from now on.
    pub fn new(consumer: &'a Consumer, leases: &'a [Lease], lease: Duration) -> Self {
        Self { consumer, leases, lease }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("renew {} leases of consumer {:?}", self.leases.len(), self.consumer.as_str())
    }
}

/// What became of a lease that was to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It holds on.
    Renewed,
    /// A transaction has the row locked, as the handler's own does; nobody can take it over meanwhile.
    Locked,
    /// Somebody else has the message, or it is settled. Nothing was changed.
    Lost,
}

/// A request to mark messages as done in the transaction of their effect.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Complete<'a> {
    /// Whose messages they are.
    pub consumer: &'a Consumer,
    /// The leases; no two of one row.
    pub leases: &'a [Lease],
}

impl<'a> Complete<'a> {
    /// A request to complete what these leases stand for.
    pub fn new(consumer: &'a Consumer, leases: &'a [Lease]) -> Self {
        Self { consumer, leases }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("complete {} messages of consumer {:?}", self.leases.len(), self.consumer.as_str())
    }
}

/// A request to write down that an attempt failed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Fail<'a> {
    /// Whose message it is.
    pub consumer: &'a Consumer,
    /// The lease.
    pub lease: Lease,
    /// How long to wait for the next attempt; `None` makes the message dead.
    pub retry_after: Option<Duration>,
    /// The error's text as a JSON string, quotes included, for the line of the history.
    pub error_json: &'a str,
}

impl<'a> Fail<'a> {
    /// A failed attempt with its error, as a JSON string.
    pub fn new(
        consumer: &'a Consumer,
        lease: Lease,
        retry_after: Option<Duration>,
        error_json: &'a str,
    ) -> Self {
        Self { consumer, lease, retry_after, error_json }
    }

    /// The error where the row does not bear the lease any more.
    pub fn lease_lost(&self) -> Error {
        Error::new(ErrorKind::LeaseLost, self.doing())
            .with_detail("the lease was taken over, or the message is settled; nothing was changed")
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        let (consumer, sequence) = (self.consumer.as_str(), self.lease.sequence);
        format!("write down a failed attempt at the message of sequence {sequence} of consumer {consumer:?}")
    }
}

/// A request to give messages back whose handling has not begun: the attempt does not count.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Release<'a> {
    /// Whose messages they are.
    pub consumer: &'a Consumer,
    /// The leases.
    pub leases: &'a [Lease],
}

impl<'a> Release<'a> {
    /// A request to give these back.
    pub fn new(consumer: &'a Consumer, leases: &'a [Lease]) -> Self {
        Self { consumer, leases }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("release {} messages of consumer {:?}", self.leases.len(), self.consumer.as_str())
    }
}

/// A request to let the next message of a key go on, after the one before it was settled.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Unblock<'a> {
    /// Whose messages they are.
    pub consumer: &'a Consumer,
    /// The keys.
    pub keys: &'a [OrderingKey],
}

impl<'a> Unblock<'a> {
    /// A request to let the next message of each of these keys go on.
    pub fn new(consumer: &'a Consumer, keys: &'a [OrderingKey]) -> Self {
        Self { consumer, keys }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("unblock {} ordering keys of consumer {:?}", self.keys.len(), self.consumer.as_str())
    }
}

/// Which kept messages an operator means.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Select<'a> {
    /// Those of some ids, in any state.
    Ids(&'a [MessageId]),
    /// Those in a state, the ones first that came into it first.
    InState {
        /// The state.
        state: State,
        /// Only of this event type.
        event_type: Option<&'a EventType>,
        /// Only those that have been in the state for so long.
        older_than: Option<Duration>,
        /// Only those after this place: `state_since` in microseconds since 1970, and the sequence.
        after: Option<(i64, i64)>,
        /// How many at most.
        limit: u32,
        /// With their payloads. A listing by ids always has them.
        payloads: bool,
    },
}

impl Select<'_> {
    /// What reading messages is doing, for the text of an error.
    pub fn doing(consumer: &Consumer) -> String {
        format!("read kept messages of consumer {:?}", consumer.as_str())
    }

    /// The error of a store for a selection that is newer than it.
    pub fn unknown(doing: impl Into<String>) -> Error {
        Error::new(ErrorKind::Backend, doing).with_detail("the store knows no such selection")
    }
}

/// A request for another attempt at messages that are dead or done.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Replay<'a> {
    /// Whose messages they are.
    pub consumer: &'a Consumer,
    /// Which. Of `Select::Ids` those that are dead or done; `payloads` and `after` mean nothing here.
    pub which: Select<'a>,
}

impl<'a> Replay<'a> {
    /// A request to give these one more attempt each.
    pub fn new(consumer: &'a Consumer, which: Select<'a>) -> Self {
        Self { consumer, which }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("replay messages of consumer {:?}", self.consumer.as_str())
    }
}

/// A request to count the messages in each state.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Count<'a> {
    /// Whose messages.
    pub consumer: &'a Consumer,
    /// Count no further than this in each state, so that a look never reads millions of index entries.
    pub at_most: u32,
}

impl<'a> Count<'a> {
    /// A request to count up to `at_most` in each state.
    pub fn new(consumer: &'a Consumer, at_most: u32) -> Self {
        Self { consumer, at_most }
    }

    /// What the call is doing, for the text of an error.
    pub fn doing(&self) -> String {
        format!("count the messages of consumer {:?}", self.consumer.as_str())
    }
}

/// How many messages are in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateCount {
    /// The state.
    pub state: State,
    /// How many, or the most that were to be counted.
    pub count: u32,
    /// How long the oldest has been in the state, by the database's clock; `None` if there is none.
    pub oldest: Option<Duration>,
}

impl StateCount {
    /// A count as a store read it: how many, and the oldest one's age in microseconds, which is negative where
    /// the clock was set back.
    pub fn new(state: State, count: i64, oldest: Option<i64>) -> Self {
        Self {
            state,
            count: u32::try_from(count.max(0)).unwrap_or(u32::MAX),
            oldest: oldest.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
        }
    }
}

/// A store that keeps whole messages, and hands them to workers.
///
/// Each call but [`complete`](Self::complete) is a short transaction of its own, on a connection of the
/// store's own, at READ COMMITTED where the engine has levels. An implementation keeps rules D1 to D11;
/// run the conformance suite of `inbox-testkit` on it.
#[async_trait]
pub trait Deferred: Begin + KeepMessages<<Self as Begin>::Tx> {
    /// Leases messages that are pending and due, the one that has been due longest first, and counts the
    /// attempt (D2). A row that another transaction has locked is passed over.
    ///
    /// The answer has the rows as they are now. Those that had spent their attempts are `dead` now, and
    /// those whose lease had run out have a line more in their history.
    ///
    /// With an order, a message is only taken if no earlier one of its key is pending (or dead, with
    /// [`AfterDead::Block`]). What has to wait for another message is looked at again after `lease`, or
    /// once [`unblock`](Self::unblock) says so, so that a claim does not read past it each time (D9).
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Retryable`, `Busy`, `Schema`, or what the engine reports. Nothing is claimed then,
    /// as far as the answer was not lost on its way.
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error>;

    /// Lets leases hold longer; answers by position. Waits for no row.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error>;

    /// Marks messages as done in the transaction of their effect, before the handler writes: whose lease
    /// was taken over finds out here, and the row stays locked until the transaction ends (D3). Answers by
    /// position whether the lease still held; where it did not, nothing was changed.
    ///
    /// The commit proves the completion as it proves a registration: see [`End`](crate::End).
    ///
    /// # Errors
    ///
    /// As [`InboxStore::register_if_new`].
    async fn complete(&self, tx: &mut Self::Tx, request: &Complete<'_>) -> Result<Vec<bool>, Error>;

    /// Writes down that an attempt failed: the message waits for its next one, or is dead.
    ///
    /// # Errors
    ///
    /// `LeaseLost` if the lease was taken over or the message is settled; nothing was changed. Otherwise
    /// as [`claim`](Self::claim).
    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error>;

    /// Gives messages back whose handling has not begun: they are due at once, and the attempt does not
    /// count. Answers how many leases still held.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn release(&self, request: &Release<'_>) -> Result<u64, Error>;

    /// Lets the first pending message of each key be looked at again when it is due by itself.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error>;

    /// Makes dead or done messages pending and due, with one attempt more than they had, whatever a worker
    /// allows; the history stays and gets a line (D8). Answers how many: of replays at the same time, each
    /// message is one's.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error>;

    /// The kept messages that are meant, as they are committed.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error>;

    /// How many messages are in each state, in the order of [`State::ALL`], by an index alone.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error>;

    /// Watches for messages that are received, where the engine tells of them. `None` where it does not:
    /// a worker looks at intervals.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    async fn watch(&self, consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error>;
}

/// Tells of messages that may have come.
#[async_trait]
pub trait Watch: Send {
    /// Returns when there may be something to claim. What it misses, a worker finds at its next interval.
    /// Dropping the future loses no news.
    ///
    /// # Errors
    ///
    /// `Unavailable`, or what the engine reports: watch anew.
    async fn changed(&mut self) -> Result<(), Error>;
}

/// A time in microseconds since 1970, for a store's statement; beyond the engines' range, the edge of it.
pub fn micros_of(time: SystemTime) -> i64 {
    /// The year 9999, beyond which MySQL's DATETIME does not go.
    const LATEST: i64 = 253_402_214_400_000_000;
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).map_or(LATEST, |micros| micros.min(LATEST)),
        // Before 1970 is as due as 1970 is.
        Err(_) => 0,
    }
}

/// A duration in microseconds for a store's statement, a thousand years at most.
pub fn duration_micros(duration: Duration) -> i64 {
    const LONGEST: i64 = 31_557_600_000_000_000;
    i64::try_from(duration.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}
