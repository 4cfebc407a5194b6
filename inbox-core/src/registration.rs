//! [`Registration`]: the answer of a store, and [`Original`]: what the first registration left.

use std::time::{Duration, SystemTime};

use crate::{Consumer, Error, ErrorKind, Fingerprint, Message, MessageId};

/// The row that the first registration of an id left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Original {
    /// The event type given at the first registration.
    pub event_type: String,
    /// When it was registered, by the database's clock; to the microsecond, on SQLite to the millisecond.
    pub registered_at: SystemTime,
    /// The fingerprint given at the first registration.
    pub fingerprint: Option<Fingerprint>,
}

impl Original {
    /// An original as a store read it.
    pub fn new(
        event_type: impl Into<String>,
        registered_at: SystemTime,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        Self { event_type: event_type.into(), registered_at, fingerprint }
    }

    /// An original whose time was read in microseconds since 1970. A time that [`SystemTime`] cannot
    /// hold becomes 1970: it is an information for people.
    pub fn at_micros(event_type: impl Into<String>, micros: i64, fingerprint: Option<Fingerprint>) -> Self {
        Self::new(event_type, time_of_micros(micros), fingerprint)
    }

    /// The error of a message that has another fingerprint than this original.
    pub(crate) fn mismatch(&self, doing: String) -> Error {
        Error::new(ErrorKind::Mismatch, doing)
            .with_detail(format!("the original is of type {:?}", self.event_type))
    }

    /// What a message is to this original: a duplicate, or the same id with another fingerprint.
    ///
    /// A fingerprint missing on either side is no mismatch (R11).
    pub fn compare(self, message: &Message) -> Registration {
        match (self.fingerprint, message.fingerprint()) {
            (Some(kept), Some(given)) if kept != given => Registration::Mismatch(self),
            _ => Registration::Duplicate(self),
        }
    }
}

/// A time in microseconds since 1970; one that [`SystemTime`] cannot hold becomes 1970.
pub(crate) fn time_of_micros(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    let time = match micros {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What registering a message found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Registration {
    /// The id was not registered; it is now, in this transaction. Final only once that commits.
    New,
    /// The id was registered before, and its original was seen (R8).
    Duplicate(Original),
    /// The id was registered before with another fingerprint (R11). A batch answers this at its
    /// position; a single call of [`Inbox`](crate::Inbox) makes it an error of kind
    /// [`Mismatch`](crate::ErrorKind::Mismatch).
    Mismatch(Original),
}

impl Registration {
    /// Tells `tracing` what registering a message found.
    pub(crate) fn trace(&self, consumer: &Consumer, id: &MessageId) {
        let answer = match self {
            Self::New => "new",
            Self::Duplicate(_) => "duplicate",
            Self::Mismatch(_) => "mismatch",
        };
        tracing::debug!(%consumer, message_id = %id, answer, "message registered");
    }

    /// Makes a mismatch the error that a single call reports (R11).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] for a mismatch, while `doing` something.
    pub fn refuse_mismatch(self, doing: impl FnOnce() -> String) -> Result<Self, Error> {
        match self {
            Self::Mismatch(original) => Err(original.mismatch(doing())),
            answer => Ok(answer),
        }
    }

    /// Whether the id is new in this transaction.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_is_kept_and_one_beyond_all_clocks_does_not_panic() {
        let second = Duration::from_secs(1);
        let at = |micros| Original::at_micros("t", micros, None).registered_at;
        assert_eq!(at(-1_000_000), SystemTime::UNIX_EPOCH - second);
        assert_eq!(at(1_000_000), SystemTime::UNIX_EPOCH + second);
        for extreme in [i64::MIN, i64::MAX] {
            let _ = at(extreme);
        }
    }
}
