//! Registers many messages on rusqlite's connection.

use inbox_core::{Error, RegisterBatch, Registration};
use rusqlite::Connection;

use super::driver::at_once;
use crate::statements::Statements;

/// Registers a batch on a connection that is in a transaction; answers by position.
pub(crate) fn register_batch(
    conn: &Connection,
    sql: &Statements,
    request: &RegisterBatch<'_>,
) -> Result<Vec<Registration>, Error> {
    at_once(crate::batch::register_batch(&mut &*conn, sql, request))
}
