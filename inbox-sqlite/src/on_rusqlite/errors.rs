//! What rusqlite reports of an error: its kind, by result code (R13).

use std::error::Error as _;
use std::ffi::c_int;

use inbox_core::{Error, ErrorKind};
use rusqlite::{Connection, ffi};

use super::driver::at_once;
use crate::errors::DriverError;
pub(crate) use crate::errors::to_error;
use crate::statements::Statements;

/// The kind of an error that rusqlite reports, outside of a COMMIT.
///
/// | result code | kind | why |
/// |---|---|---|
/// | `BUSY` and its variants but one | `Busy` | another connection writes and did not end within the wait |
/// | `BUSY_SNAPSHOT` (517) | `Retryable` | a read came first and its snapshot is old: no wait helps, only a new transaction does |
/// | `LOCKED`, `PROTOCOL` | `Retryable` | a conflict in a shared cache; a race for the log's locks |
/// | `CANTOPEN`, `READONLY_DBMOVED` | `Unavailable` | the file is not there, or no longer where it was |
/// | `READONLY` | `Schema` | the database cannot be written: nothing will change until someone mends it |
/// | `FULL`, `IOERR`, `NOMEM`, `CORRUPT`, `NOTADB`, any other; no code | `Backend` | see the source |
///
/// The inbox's own statements that fail with `ERROR` are `Schema` if the table is not what it should
/// be; the code itself says nothing. At COMMIT, `IOERR` and `NOMEM` are `UnknownOutcome`.
pub fn kind_of(error: &rusqlite::Error) -> ErrorKind {
    error.kind()
}

/// Whether running the whole transaction again may succeed.
///
/// For handlers' own errors, in [`Inbox::process_retrying`](inbox_core::Inbox::process_retrying).
/// Running only the statement again does not help: inside a transaction that has read, `SQLITE_BUSY`
/// comes back until the transaction is over.
///
/// ```
/// # use rusqlite::{Error, ffi};
/// let busy = Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
/// assert!(inbox_sqlite::is_retryable(&busy));
/// assert!(!inbox_sqlite::is_retryable(&Error::QueryReturnedNoRows));
/// ```
pub fn is_retryable(error: &rusqlite::Error) -> bool {
    kind_of(error).is_retryable()
}

impl DriverError for rusqlite::Error {
    /// Read from the source: not every version of rusqlite has the second variant that carries a code.
    fn extended_code(&self) -> Option<i32> {
        self.source()?.downcast_ref::<ffi::Error>().map(|error| error.extended_code)
    }
}

/// The extended result code, if SQLite itself reported the error.
pub(crate) fn extended_code(error: &rusqlite::Error) -> Option<c_int> {
    error.extended_code()
}

/// The primary result code, if SQLite itself reported the error.
pub(crate) fn primary_code(error: &rusqlite::Error) -> Option<c_int> {
    error.primary_code()
}

/// An error of rusqlite's type that this crate raises itself.
pub(crate) fn raise(code: c_int, text: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(text.into()))
}

/// As [`to_error`], for a statement of ours on the inbox's table.
pub(crate) fn statement_error(
    conn: &Connection,
    sql: &Statements,
    doing: impl Into<String>,
    source: rusqlite::Error,
) -> Error {
    at_once(crate::errors::statement_error(&mut &*conn, sql, doing, source))
}

#[cfg(test)]
mod tests {
    use inbox_core::TableName;

    use super::*;

    #[test]
    fn r13_every_code_of_the_table_has_its_kind() {
        for (code, kind) in [
            (ffi::SQLITE_BUSY, ErrorKind::Busy),
            (ffi::SQLITE_BUSY_RECOVERY, ErrorKind::Busy),
            (ffi::SQLITE_BUSY_TIMEOUT, ErrorKind::Busy),
            (ffi::SQLITE_BUSY_SNAPSHOT, ErrorKind::Retryable),
            (ffi::SQLITE_LOCKED, ErrorKind::Retryable),
            (ffi::SQLITE_LOCKED_SHAREDCACHE, ErrorKind::Retryable),
            (ffi::SQLITE_PROTOCOL, ErrorKind::Retryable),
            (ffi::SQLITE_CANTOPEN, ErrorKind::Unavailable),
            (ffi::SQLITE_CANTOPEN_ISDIR, ErrorKind::Unavailable),
            (ffi::SQLITE_READONLY, ErrorKind::Schema),
            (ffi::SQLITE_READONLY_DIRECTORY, ErrorKind::Schema),
            (ffi::SQLITE_READONLY_DBMOVED, ErrorKind::Unavailable),
            (ffi::SQLITE_FULL, ErrorKind::Backend),
            (ffi::SQLITE_IOERR_FSYNC, ErrorKind::Backend),
            (ffi::SQLITE_NOMEM, ErrorKind::Backend),
            (ffi::SQLITE_CORRUPT, ErrorKind::Backend),
            (ffi::SQLITE_NOTADB, ErrorKind::Backend),
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, ErrorKind::Backend),
            (ffi::SQLITE_ERROR, ErrorKind::Backend),
        ] {
            let error = to_error("try", raise(code, "text that decides nothing: database is locked"));
            assert_eq!(error.kind(), kind, "{code}");
            assert_eq!(kind_of(&raise(code, "")), kind, "{code}");
            assert_eq!(is_retryable(&raise(code, "")), kind.is_retryable(), "{code}");
        }
    }

    #[test]
    fn b51_the_source_keeps_517_apart_from_5() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_SNAPSHOT] {
            let error = to_error("try", raise(code, ""));
            let source = error.source().and_then(|source| source.downcast_ref::<rusqlite::Error>());
            assert_eq!(source.and_then(extended_code), Some(code));
        }
    }

    #[test]
    fn a_generic_error_is_of_the_schema_only_if_the_table_is() {
        let conn = Connection::open_in_memory().unwrap();
        let sql = Statements::new(TableName::new("main", "inbox").unwrap());
        let kind_and_text = || {
            let error = statement_error(&conn, &sql, "try", raise(ffi::SQLITE_ERROR, "no such table"));
            (error.kind(), error.to_string())
        };

        let (kind, text) = kind_and_text();
        assert_eq!(kind, ErrorKind::Schema);
        assert!(text.contains("there is no table main.inbox; run create_schema"), "{text}");

        conn.execute_batch("CREATE TABLE inbox (consumer TEXT, message_id TEXT)").unwrap();
        let (kind, text) = kind_and_text();
        assert_eq!(kind, ErrorKind::Schema);
        assert!(text.contains("lacks a column"), "{text}");

        conn.execute_batch("DROP TABLE inbox").unwrap();
        conn.execute_batch(&sql.create_table).unwrap();
        assert_eq!(kind_and_text().0, ErrorKind::Backend);
    }
}
