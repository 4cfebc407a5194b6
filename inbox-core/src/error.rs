//! [`Error`]: what went wrong, of which kind, while doing what, and what to do about it.

use std::fmt;

/// The source of an [`Error`]: the driver's own error, kept whole.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Any failure of the inbox. It is never folded into an answer (rule R9).
///
/// The kind says what may be done: see [`ErrorKind`]. The driver's error, where there is one, is
/// the [`source`](std::error::Error::source).
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    doing: String,
    detail: Option<String>,
    source: Option<BoxError>,
}

impl Error {
    /// An error of `kind`, met while `doing` something ("register message \"m-1\" for consumer …").
    pub fn new(kind: ErrorKind, doing: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, doing: doing.into(), detail: None, source: None }))
    }

    /// Adds what is particular to this error: the value, the limit, the remedy.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Keeps the driver's error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind, which decides what may be done next.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether running the whole transaction again may succeed. See [`ErrorKind::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.0.doing, self.0.kind.meaning())?;
        if let Some(detail) = &self.0.detail {
            write!(f, " ({detail})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("doing", &self.0.doing)
            .field("detail", &self.0.detail)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// What kind of failure an [`Error`] is. The table is normative (rule R13).
///
/// | kind | retryable | what happened | what to do |
/// |---|---|---|---|
/// | `InvalidMessage` | no | an id, consumer or event type breaks the limits; no SQL was sent | park or reject the message |
/// | `Busy` | yes | another transaction holds the id and did not end within the wait | run the transaction again, or let the broker redeliver |
/// | `Retryable` | yes | the engine chose this transaction as the loser (deadlock, serialisation) | run the transaction again |
/// | `Mismatch` | no | the id is registered with another fingerprint: one id, two payloads | park the message, look at the producer |
/// | `Unconfirmed` | no | the row was neither inserted nor found | look for triggers, rules, row security; run `verify` |
/// | `Aborted` | no | an earlier error in this transaction already condemned it | roll back, look at the earlier error |
/// | `TransactionLost` | no | the transaction was ended behind our back; an effect may be committed | look in the handler for a swallowed deadlock, DDL, a raw COMMIT, a failed nested begin |
/// | `UnknownOutcome` | yes | the connection was lost during COMMIT | run the message again: it is new or a duplicate |
/// | `LeaseLost` | no | another worker has taken the kept message over, or it is settled; nothing was changed | write no effect; whoever has it handles it |
/// | `Schema` | no | the table is missing, or cannot keep the contract | create or mend it |
/// | `Unavailable` | yes | no connection, or the server is starting, stopping or read-only | wait and run again |
/// | `PartialEffect` | no | a command inside EXEC failed after others had been applied (Redis) | mend the effect by hand |
/// | `Backend` | no | any other error of the driver or the engine | see the source |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An id, consumer, event type or option breaks its limits; raised before any SQL (R7).
    InvalidMessage,
    /// Another transaction holds the id and did not end within the wait (R6). Retryable.
    Busy,
    /// The engine made this transaction the loser; run it again (R5, R13). Retryable.
    Retryable,
    /// The id is registered with another fingerprint (R11).
    Mismatch,
    /// The row was neither inserted nor found (R8).
    Unconfirmed,
    /// An earlier error in this transaction condemned it (R9, R12).
    Aborted,
    /// The transaction was ended behind our back (R12).
    TransactionLost,
    /// The connection was lost during COMMIT (R12). Retryable: the registration tells on the next run.
    UnknownOutcome,
    /// The lease on a kept message was taken over, or the message is settled; nothing was changed (D3).
    LeaseLost,
    /// The table is missing or cannot keep the contract (R16).
    Schema,
    /// No connection, or a server that cannot serve now. Retryable.
    Unavailable,
    /// A command inside EXEC failed after others had been applied (Redis).
    PartialEffect,
    /// Any other error of the driver or the engine.
    Backend,
}

impl ErrorKind {
    /// Every kind, in the order of the table.
    pub const ALL: &'static [ErrorKind] = &[
        Self::InvalidMessage,
        Self::Busy,
        Self::Retryable,
        Self::Mismatch,
        Self::Unconfirmed,
        Self::Aborted,
        Self::TransactionLost,
        Self::UnknownOutcome,
        Self::LeaseLost,
        Self::Schema,
        Self::Unavailable,
        Self::PartialEffect,
        Self::Backend,
    ];

    /// Whether running the whole transaction again, from its begin, may succeed (R13).
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Busy | Self::Retryable | Self::Unavailable | Self::UnknownOutcome)
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::InvalidMessage => "the message breaks a limit; nothing was sent to the database",
            Self::Busy => {
                "another transaction is in the way and did not end within the wait; run the transaction again"
            }
            Self::Retryable => "the database made this transaction the loser; run it again from its begin",
            Self::Mismatch => {
                "the id is already registered with another fingerprint; park the message and look at its producer"
            }
            Self::Unconfirmed => {
                "the row was neither inserted nor found; look for triggers, rules or row security on the table and run verify"
            }
            Self::Aborted => {
                "an earlier error already condemned this transaction; roll it back and look at that error"
            }
            Self::TransactionLost => {
                "the transaction was ended behind the inbox's back and an effect may be committed; look for an error of SQL that the handler did not return (a deadlock), DDL, a raw COMMIT or ROLLBACK, or a failed nested begin"
            }
            Self::UnknownOutcome => {
                "the connection was lost during commit and the outcome is unknown; run the message again, it will be new or a duplicate"
            }
            Self::LeaseLost => {
                "another worker has taken the message over, or it is settled; nothing was changed, and whoever has it handles it"
            }
            Self::Schema => "the table cannot keep the contract; create or mend it as the detail says",
            Self::Unavailable => "the database cannot serve now; wait and run again",
            Self::PartialEffect => "a command failed after others had been applied; mend the effect by hand",
            Self::Backend => "the database or its driver reported an error",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_four_kinds_of_the_table_are_retryable() {
        let retryable: Vec<_> = ErrorKind::ALL.iter().copied().filter(|kind| kind.is_retryable()).collect();
        assert_eq!(
            retryable,
            [ErrorKind::Busy, ErrorKind::Retryable, ErrorKind::UnknownOutcome, ErrorKind::Unavailable]
        );
    }

    #[test]
    fn text_says_what_was_done_with_what_and_the_source_is_kept() {
        let error = Error::new(ErrorKind::Busy, "register message \"m-1\"")
            .with_detail("waited 10s")
            .with_source(std::io::Error::other("55P03"));

        assert_eq!(
            error.to_string(),
            "could not register message \"m-1\": another transaction is in the way and did not end within the wait; run the transaction again (waited 10s)"
        );
        assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some("55P03".into()));
    }
}
