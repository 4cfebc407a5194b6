//! The savepoint that tells whether a transaction is still the one that was begun (R12).

use rusqlite::{Connection, ffi};

use crate::errors::primary_code;

/// Set right after BEGIN. It dies with its transaction, so a raw `COMMIT; BEGIN` in a handler, after
/// which SQLite reports a transaction just as before, shows at the end.
const SET: &str = "SAVEPOINT inbox_guard";
const RELEASE: &str = "RELEASE inbox_guard";
const ROLLBACK_TO: &str = "ROLLBACK TO inbox_guard";

pub(crate) fn set(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(SET)
}

/// Releases the guard, before a commit.
pub(crate) fn release(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(RELEASE)
}

/// Undoes all that was written under the guard, before a rollback.
pub(crate) fn roll_back_to(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(ROLLBACK_TO)
}

/// Whether the guard is gone: `SQLITE_ERROR` of its statements has one meaning, that there is no such savepoint.
pub(crate) fn is_gone(error: &rusqlite::Error) -> bool {
    primary_code(error) == Some(ffi::SQLITE_ERROR)
}
