//! The guard's savepoint on rusqlite's connection.

use rusqlite::Connection;

use crate::guard::SET;
pub(crate) use crate::guard::is_gone;

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
