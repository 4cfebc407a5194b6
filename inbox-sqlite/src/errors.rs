//! Which kind an error of SQLite is: decided by result code, never by text (R13).

use inbox_core::{Error, ErrorKind};

use crate::driver::Driver;
use crate::statements::Statements;

// From <https://sqlite.org/rescode.html>. Not the drivers' names for them, so that neither is needed.
pub(crate) const ERROR: i32 = 1;
pub(crate) const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NOMEM: i32 = 7;
pub(crate) const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const BUSY_SNAPSHOT: i32 = 517;
const READONLY_DBMOVED: i32 = 1032;

/// An error of one driver.
pub(crate) trait DriverError: std::error::Error + Send + Sync + 'static {
    /// The extended result code, if SQLite itself reported the error.
    fn extended_code(&self) -> Option<i32>;

    /// The primary result code, if SQLite itself reported the error.
    fn primary_code(&self) -> Option<i32> {
        self.extended_code().map(|code| code & 0xff)
    }

    /// The kind, outside of a COMMIT.
    fn kind(&self) -> ErrorKind {
        self.extended_code().map_or(ErrorKind::Backend, kind_of_code)
    }
}

pub(crate) fn kind_of_code(extended_code: i32) -> ErrorKind {
    match (extended_code & 0xff, extended_code) {
        (_, BUSY_SNAPSHOT) => ErrorKind::Retryable,
        (BUSY, _) => ErrorKind::Busy,
        (LOCKED | PROTOCOL, _) => ErrorKind::Retryable,
        (CANTOPEN, _) | (_, READONLY_DBMOVED) => ErrorKind::Unavailable,
        (READONLY, _) => ErrorKind::Schema,
        _ => ErrorKind::Backend,
    }
}

/// The inbox's error for one of the driver, with the source kept.
pub(crate) fn to_error(doing: impl Into<String>, source: impl DriverError) -> Error {
    Error::new(source.kind(), doing).with_source(source)
}

/// The error of a failed COMMIT.
///
/// After most errors SQLite has not committed, and a rollback follows (<https://sqlite.org/lang_transaction.html>):
/// `BUSY` and `CONSTRAINT_FOREIGNKEY` leave the transaction open, `FULL` means that the commit record
/// was not written. `IOERR` and `NOMEM` are another matter. SQLite rolls back in memory, but the
/// commit record may already stand in the log (the sync after it failed), or the rollback journal
/// may already be gone, and recovery after a crash would then find a committed transaction.
pub(crate) fn commit_error(doing: impl Into<String>, source: impl DriverError) -> Error {
    match source.primary_code() {
        Some(IOERR | NOMEM) => Error::new(ErrorKind::UnknownOutcome, doing)
            .with_detail("SQLite failed while it wrote the commit")
            .with_source(source),
        _ => to_error(doing, source),
    }
}

/// The error of a transaction that is not the one that was begun any more, or lost a registration.
pub(crate) fn lost(doing: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::TransactionLost, doing).with_detail(detail)
}

/// As [`to_error`], for a statement of ours on the inbox's table: the generic code `SQLITE_ERROR`
/// is `Schema` if the table is missing or lacks a column.
pub(crate) async fn statement_error<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    doing: impl Into<String>,
    source: D::Error,
) -> Error {
    let fault = match source.primary_code() {
        Some(ERROR) => fault_of_table(conn, sql).await,
        _ => None,
    };
    match fault {
        Some(fault) => Error::new(ErrorKind::Schema, doing).with_detail(fault).with_source(source),
        None => to_error(doing, source),
    }
}

/// As [`statement_error`], for a statement on the table of kept messages.
pub(crate) async fn message_error<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    doing: impl Into<String>,
    source: D::Error,
) -> Error {
    let fault = match source.primary_code() {
        Some(ERROR) => fault_of_messages(conn, sql).await,
        _ => None,
    };
    match fault {
        Some(fault) => Error::new(ErrorKind::Schema, doing).with_detail(fault).with_source(source),
        None => to_error(doing, source),
    }
}

async fn fault_of_messages<D: Driver>(conn: &mut D, sql: &Statements) -> Option<String> {
    let messages = &sql.messages;
    if compiles(conn, &messages.insert).await && compiles(conn, &messages.claim).await {
        return None;
    }
    let table = &messages.table;
    Some(if compiles(conn, &format!("SELECT 1 FROM {}", table.quoted())).await {
        format!("the table {table} lacks a column of the kept messages; run verify_messages")
    } else {
        format!("there is no table {table}; run create_message_schema")
    })
}

/// What is wrong with a table on which our statements do not even compile.
async fn fault_of_table<D: Driver>(conn: &mut D, sql: &Statements) -> Option<String> {
    if compiles(conn, &sql.read_original).await && compiles(conn, &sql.insert).await {
        return None;
    }
    let table = &sql.table;
    Some(if compiles(conn, &format!("SELECT 1 FROM {}", table.quoted())).await {
        format!("the table {table} lacks a column of the inbox; run verify")
    } else {
        format!("there is no table {table}; run create_schema")
    })
}

async fn compiles<D: Driver>(conn: &mut D, text: &str) -> bool {
    conn.compile(text).await.map_or_else(|error| error.primary_code() != Some(ERROR), |()| true)
}
