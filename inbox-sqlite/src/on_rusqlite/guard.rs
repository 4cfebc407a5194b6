//! The guard's savepoint on rusqlite's connection.

use rusqlite::Connection;

pub(crate) use crate::guard::is_gone;
use crate::guard::{RELEASE, ROLLBACK_TO, SET};

pub(crate) fn set(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(SET)
}

pub(crate) fn release(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(RELEASE)
}

pub(crate) fn roll_back_to(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(ROLLBACK_TO)
}
