//! [`StoredMessage`]: a kept message as it is read back, and [`MessageRow`], as a store reads it.

use std::time::SystemTime;

use crate::registration::time_of_micros;
use crate::{ContentType, Error, ErrorKind, Fingerprint, Headers, Incident, Message, MessageId, OrderingKey};

/// What became of a kept message (D1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Not handled yet: waiting, leased to a worker, or to be tried again.
    Pending,
    /// Its effect is committed.
    Done,
    /// A dead letter: it failed as often as it may, or with an error that says never to try again.
    Dead,
}

impl State {
    /// Every state.
    pub const ALL: [State; 3] = [Self::Pending, Self::Done, Self::Dead];

    /// As a store keeps it: `pending`, `done`, `dead`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }
}

/// A message's row as a store reads it, not checked yet: whoever wrote it, reading never fails for it.
///
/// Times are microseconds since 1970 by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the columns of docs/semantics.md, one to one")]
pub struct MessageRow {
    pub sequence: i64,
    pub message_id: Vec<u8>,
    pub event_type: Vec<u8>,
    pub fingerprint: Option<Vec<u8>>,
    /// Empty where the payload was not asked for.
    pub payload: Vec<u8>,
    pub headers: Vec<u8>,
    pub content_type: Option<Vec<u8>>,
    pub ordering_key: Option<Vec<u8>>,
    pub state: Vec<u8>,
    /// Whether the row bears a lease.
    pub leased: bool,
    pub due_at: i64,
    pub attempts: i64,
    pub allowed: Option<i64>,
    pub history: Vec<u8>,
    pub received_at: i64,
    pub state_since: i64,
}

/// A message that was kept, as a handler or an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// Its place in the order of receiving, within its table.
    pub sequence: i64,
    /// The id, the event type and the fingerprint.
    pub message: Message,
    /// The payload as received; empty in a listing that did not ask for payloads.
    pub payload: Vec<u8>,
    /// The headers as received.
    pub headers: Headers,
    /// How the payload is encoded, if said.
    pub content_type: Option<ContentType>,
    /// What it belongs to, if said.
    pub ordering_key: Option<OrderingKey>,
    /// What became of it.
    pub state: State,
    /// Whether a worker holds a lease on it.
    pub leased: bool,
    /// When a claim looks at it next: its not-before time, its next attempt, or the end of its lease.
    pub due_at: SystemTime,
    /// How often it was claimed, over all replays; for a handler, the number of the attempt under way.
    pub attempts: u32,
    /// So many attempts in all, where a replay has given it another one; otherwise the worker says.
    pub allowed: Option<u32>,
    /// What happened to it, oldest first.
    pub history: Vec<Incident>,
    /// When it was received.
    pub received_at: SystemTime,
    /// Since when it is in its state.
    pub state_since: SystemTime,
}

impl StoredMessage {
    /// The message's id.
    pub fn id(&self) -> &MessageId {
        self.message.id()
    }

    /// The text of the last error, for a dead letter why it died.
    pub fn last_error(&self) -> Option<&str> {
        self.history.iter().rev().find_map(|incident| incident.error.as_deref())
    }
}

impl TryFrom<MessageRow> for StoredMessage {
    type Error = Error;

    /// Checks a row (D6).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backend`] with what is wrong in it.
    fn try_from(row: MessageRow) -> Result<Self, Error> {
        let checked = Checked { sequence: row.sequence };
        let id = checked.text("message_id", row.message_id, MessageId::new)?;
        let mut message = checked.text("event_type", row.event_type, |text| Message::new(id, text))?;
        if let Some(fingerprint) = row.fingerprint {
            let fingerprint = <[u8; Fingerprint::LEN]>::try_from(fingerprint)
                .map_err(|bytes| checked.damaged("fingerprint", format!("it has {} bytes", bytes.len())))?;
            message = message.with_fingerprint(Fingerprint::from_bytes(fingerprint));
        }
        let state = State::ALL.into_iter().find(|state| state.as_str().as_bytes() == row.state);
        Ok(Self {
            sequence: row.sequence,
            message,
            payload: row.payload,
            headers: Headers::from_json(&row.headers).map_err(|source| checked.damaged("headers", source))?,
            content_type: checked.optional("content_type", row.content_type, ContentType::new)?,
            ordering_key: checked.optional("ordering_key", row.ordering_key, OrderingKey::new)?,
            state: state.ok_or_else(|| checked.damaged("state", "there is no such state"))?,
            leased: row.leased,
            due_at: time_of_micros(row.due_at),
            attempts: count(row.attempts),
            allowed: row.allowed.map(count),
            history: Incident::read_all(&row.history),
            received_at: time_of_micros(row.received_at),
            state_since: time_of_micros(row.state_since),
        })
    }
}

pub(crate) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

struct Checked {
    sequence: i64,
}

impl Checked {
    fn text<T>(
        &self,
        column: &str,
        bytes: Vec<u8>,
        check: impl FnOnce(String) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let text = String::from_utf8(bytes).map_err(|source| self.damaged(column, source))?;
        check(text).map_err(|source| self.damaged(column, source))
    }

    fn optional<T>(
        &self,
        column: &str,
        bytes: Option<Vec<u8>>,
        check: impl FnOnce(String) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        bytes.map(|bytes| self.text(column, bytes, check)).transpose()
    }

    fn damaged(&self, column: &str, source: impl Into<crate::BoxError>) -> Error {
        let source = source.into();
        Error::new(ErrorKind::Backend, format!("read the kept message of sequence {}", self.sequence))
            .with_detail(format!("its column {column} is damaged: {source}"))
            .with_source(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> MessageRow {
        MessageRow {
            sequence: 7,
            message_id: b"m-1".into(),
            event_type: b"PaymentConfirmed".into(),
            headers: b"[]".into(),
            state: b"pending".into(),
            ..MessageRow::default()
        }
    }

    #[test]
    fn b79_a_damaged_row_says_what_is_damaged_in_it() {
        assert!(StoredMessage::try_from(row()).is_ok());
        type Damage = fn(&mut MessageRow);
        let damages: [(&str, Damage); 6] = [
            ("message_id", |row| row.message_id = vec![0xff]),
            ("event_type", |row| row.event_type.clear()),
            ("fingerprint", |row| row.fingerprint = Some(vec![1])),
            ("headers", |row| row.headers = b"{".into()),
            ("ordering_key", |row| row.ordering_key = Some(b" ".into())),
            ("state", |row| row.state = b"unknown".into()),
        ];
        for (column, damage) in damages {
            let mut damaged = row();
            damage(&mut damaged);
            let error = StoredMessage::try_from(damaged).unwrap_err().to_string();
            assert!(error.contains(column) && error.contains("sequence 7"), "{error}");
        }
    }

    #[test]
    fn times_and_counts_beyond_all_bounds_do_not_panic() {
        for extreme in [i64::MIN, i64::MAX] {
            let mut row = row();
            (row.due_at, row.attempts, row.allowed) = (extreme, extreme, Some(extreme));
            assert!(StoredMessage::try_from(row).is_ok());
        }
    }
}
