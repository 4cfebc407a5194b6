//! What sqlx reports of an error: its kind, by result code (R13).

use inbox_core::{Error, ErrorKind};
use sqlx::error::DatabaseError;

use crate::errors::DriverError;

/// What COMMIT fails with if a commit hook refused it.
const CONSTRAINT_COMMITHOOK: i32 = 531;

/// The kind of an error that sqlx reports, outside of a COMMIT.
///
/// | result code | kind |
/// |---|---|
/// | `BUSY` and its variants but one | `Busy` |
/// | `BUSY_SNAPSHOT` (517), `LOCKED`, `PROTOCOL` | `Retryable` |
/// | `CANTOPEN`, `READONLY_DBMOVED` | `Unavailable` |
/// | `READONLY` | `Schema` |
/// | any other | `Backend` |
///
/// Without a code: errors of the pool and of sqlx's worker thread are `Unavailable`, any other is
/// `Backend`.
///
/// The inbox's own statements that fail with `ERROR` are `Schema` if the table is not what it should
/// be. At COMMIT, `IOERR`, `NOMEM` and a worker thread that is gone are `UnknownOutcome`.
pub fn kind_of(error: &sqlx::Error) -> ErrorKind {
    error.kind()
}

/// Whether running the whole transaction again may succeed.
///
/// For handlers' own errors, in [`Inbox::process_retrying`](inbox_core::Inbox::process_retrying).
/// Running only the statement again does not help: inside a transaction that has read, `SQLITE_BUSY`
/// comes back until the transaction is over.
pub fn is_retryable(error: &sqlx::Error) -> bool {
    kind_of(error).is_retryable()
}

impl DriverError for sqlx::Error {
    fn extended_code(&self) -> Option<i32> {
        self.as_database_error().and_then(DatabaseError::code)?.parse().ok()
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Database(_) => self.extended_code().map_or(ErrorKind::Backend, crate::errors::kind_of_code),
            Self::Io(_) | Self::PoolTimedOut | Self::PoolClosed | Self::WorkerCrashed => {
                ErrorKind::Unavailable
            }
            _ => ErrorKind::Backend,
        }
    }
}

/// The error of a failed COMMIT.
pub(crate) fn commit_error(doing: String, source: sqlx::Error) -> Error {
    match source {
        sqlx::Error::WorkerCrashed => Error::new(ErrorKind::UnknownOutcome, doing).with_source(source),
        _ if source.extended_code() == Some(CONSTRAINT_COMMITHOOK) => Error::new(ErrorKind::Aborted, doing)
            .with_detail("a commit hook refused it: the inbox's own after an earlier error, or one of yours")
            .with_source(source),
        _ => crate::errors::commit_error(doing, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_errors_without_a_code_are_told_by_their_variant() {
        for unavailable in [sqlx::Error::PoolTimedOut, sqlx::Error::PoolClosed, sqlx::Error::WorkerCrashed] {
            assert_eq!(kind_of(&unavailable), ErrorKind::Unavailable);
            assert!(is_retryable(&unavailable));
        }
        assert_eq!(kind_of(&sqlx::Error::RowNotFound), ErrorKind::Backend);
    }

    #[test]
    fn r12_a_worker_that_is_gone_at_commit_is_an_unknown_outcome() {
        let error = commit_error("commit".to_owned(), sqlx::Error::WorkerCrashed);
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    }
}
