//! What an operator does with kept messages: look, count, replay.

use std::time::Duration;

use crate::{
    Count, Deferred, Error, ErrorKind, EventType, Inbox, MessageId, MessageRow, Replay, Select, State,
    StateCount, StoredMessage,
};

/// Which kept messages are meant.
///
/// ```
/// use std::time::Duration;
/// use inbox_core::{EventType, Filter, MessageId, State};
///
/// let one = Filter::id(MessageId::new("payment-17")?);
/// let old_dead_letters = Filter::state(State::Dead)
///     .event_type(EventType::new("PaymentConfirmed")?)
///     .older_than(Duration::from_secs(3600))
///     .limit(50);
/// # Ok::<_, inbox_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Which);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    Ids(Vec<MessageId>),
    InState {
        state: State,
        event_type: Option<EventType>,
        older_than: Option<Duration>,
        after: Option<(i64, i64)>,
        limit: u32,
        payloads: bool,
    },
}

impl Filter {
    /// How many messages a filter by state means at most, unless told otherwise.
    pub const DEFAULT_LIMIT: u32 = 1000;

    /// One id, in any state.
    pub fn id(id: MessageId) -> Self {
        Self::ids([id])
    }

    /// Some ids, in any state.
    pub fn ids(ids: impl IntoIterator<Item = MessageId>) -> Self {
        Self(Which::Ids(ids.into_iter().collect()))
    }

    /// Those in a state, the ones first that came into it first, at most
    /// [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT).
    pub fn state(state: State) -> Self {
        Self(Which::InState {
            state,
            event_type: None,
            older_than: None,
            after: None,
            limit: Self::DEFAULT_LIMIT,
            payloads: false,
        })
    }

    /// Only of this event type. There is no index on it: rows of others are read and passed over. Of a filter by
    /// ids this and what follows mean nothing.
    #[must_use]
    pub fn event_type(mut self, wanted: EventType) -> Self {
        if let Which::InState { event_type, .. } = &mut self.0 {
            *event_type = Some(wanted);
        }
        self
    }

    /// Only those that have been in the state for so long, by the database's clock.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        if let Which::InState { older_than, .. } = &mut self.0 {
            *older_than = Some(age);
        }
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, most: u32) -> Self {
        if let Which::InState { limit, .. } = &mut self.0 {
            *limit = most;
        }
        self
    }

    /// With their payloads, which a listing by state leaves out unless told.
    #[must_use]
    pub fn with_payloads(mut self) -> Self {
        if let Which::InState { payloads, .. } = &mut self.0 {
            *payloads = true;
        }
        self
    }

    /// Only those after what a [`Listing`] ended with.
    #[must_use]
    pub fn after(mut self, listing: &Listing) -> Self {
        if let Which::InState { after, .. } = &mut self.0 {
            *after = listing.end;
        }
        self
    }

    fn select(&self) -> Select<'_> {
        match &self.0 {
            Which::Ids(ids) => Select::Ids(ids),
            Which::InState { state, event_type, older_than, after, limit, payloads } => Select::InState {
                state: *state,
                event_type: event_type.as_ref(),
                older_than: *older_than,
                after: *after,
                limit: *limit,
                payloads: *payloads,
            },
        }
    }
}

/// How many kept messages are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageCounts {
    /// Not handled yet.
    pub pending: StateCount,
    /// Their effect is committed.
    pub done: StateCount,
    /// Dead letters.
    pub dead: StateCount,
}

impl MessageCounts {
    /// The three, in the order of [`State::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &StateCount> {
        [&self.pending, &self.done, &self.dead].into_iter()
    }
}

/// Kept messages that an operator asked for.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The messages.
    pub messages: Vec<StoredMessage>,
    /// Rows that cannot be read: somebody else wrote them (D6).
    pub damaged: Vec<DamagedMessage>,
    /// Where it ended: `state_since` in microseconds since 1970, and the sequence.
    end: Option<(i64, i64)>,
}

/// A row that cannot be read. It hides no other.
#[derive(Debug)]
#[non_exhaustive]
pub struct DamagedMessage {
    /// Its place in the table.
    pub sequence: i64,
    /// Its id, as far as it is text.
    pub message_id: String,
    /// What is wrong in it.
    pub error: Error,
}

impl DamagedMessage {
    pub(crate) fn new(sequence: i64, message_id: &[u8], error: Error) -> Self {
        Self { sequence, message_id: String::from_utf8_lossy(message_id).into_owned(), error }
    }
}

impl Listing {
    /// Whether nothing was found: the end, for whoever goes on with [`Filter::after`].
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.damaged.is_empty()
    }

    /// What was found after a place; where there was nothing, that place is still the end.
    fn new(rows: Vec<MessageRow>, after: Option<(i64, i64)>) -> Self {
        let end = rows.last().map(|row| (row.state_since, row.sequence)).or(after);
        let mut listing = Self { messages: Vec::with_capacity(rows.len()), damaged: Vec::new(), end };
        for row in rows {
            let (sequence, message_id) = (row.sequence, row.message_id.clone());
            match StoredMessage::try_from(row) {
                Ok(message) => listing.messages.push(message),
                Err(error) => listing.damaged.push(DamagedMessage::new(sequence, &message_id, error)),
            }
        }
        listing
    }
}

impl<S: Deferred> Inbox<S> {
    /// Kept messages of this consumer, as they are committed.
    ///
    /// # Errors
    ///
    /// As [`Deferred::select`].
    pub async fn messages(&self, filter: &Filter) -> Result<Listing, Error> {
        let which = filter.select();
        let after = match which {
            Select::InState { after, .. } => after,
            _ => None,
        };
        Ok(Listing::new(self.store().select(self.consumer(), &which).await?, after))
    }

    /// How many kept messages are pending, done and dead, each counted up to `at_most`, and how long the
    /// oldest has been so.
    ///
    /// Reads an index, no more than `at_most` entries of it for each state.
    ///
    /// # Errors
    ///
    /// As [`Deferred::count`].
    pub async fn message_counts(&self, at_most: u32) -> Result<MessageCounts, Error> {
        let request = Count::new(self.consumer(), at_most);
        let counts = self.store().count(&request).await?;
        let of = |state| {
            let count = counts.iter().find(|count| count.state == state);
            count.copied().ok_or_else(|| {
                let missing = format!("the store did not count what is {}", state.as_str());
                Error::new(ErrorKind::Backend, request.doing()).with_detail(missing)
            })
        };
        Ok(MessageCounts { pending: of(State::Pending)?, done: of(State::Done)?, dead: of(State::Dead)? })
    }

    /// Gives messages that are dead or done one more attempt each, on purpose: **of one that was done, the
    /// effect happens again** (D8). Answers how many; of those pending, none.
    ///
    /// The ids stay registered, and the history is kept. Of replays at the same time each message is one's; a
    /// deadlock among them is run again, as [`with_retry`](Inbox::with_retry) says. After a lost connection the
    /// answer may leave out what the lost run has replayed.
    /// By state, at most the filter's limit: call again while the answer reaches it.
    ///
    /// # Errors
    ///
    /// `InvalidMessage` for a filter by the state pending; otherwise as [`Deferred::replay`].
    pub async fn replay(&self, filter: &Filter) -> Result<u64, Error> {
        let request = Replay::new(self.consumer(), filter.select());
        if matches!(request.which, Select::InState { state: State::Pending, .. }) {
            return Err(Error::new(ErrorKind::InvalidMessage, request.doing())
                .with_detail("what is pending has its attempt still before it; filter by dead or done"));
        }
        let replayed = self.replay_again(&request).await?;
        tracing::info!(consumer = %self.consumer(), replayed, "messages replayed on purpose");
        Ok(replayed)
    }

    async fn replay_again(&self, request: &Replay<'_>) -> Result<u64, Error> {
        let mut runs = self.retry().start();
        loop {
            match self.store().replay(request).await {
                Err(error) if error.is_retryable() => match runs.next_pause() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
                answer => return answer,
            }
        }
    }
}
