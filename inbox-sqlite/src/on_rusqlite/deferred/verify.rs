//! [`SqliteStore::verify_messages`].

use std::sync::Arc;

use inbox_core::{Deadline, Error, SchemaReport, TableName};
use rusqlite::Connection;

use super::super::connections::Missing;
use super::super::driver::at_once;
use super::super::errors::to_error;
use super::super::offload::offload;
use super::super::store::SqliteStore;
use crate::deferred::verify::{inspect, verifying};
use crate::statements::Statements;

impl SqliteStore {
    /// As [`verify`](Self::verify), for the table of kept messages; a missing index is a warning that
    /// says what it costs, that of the claims is refused.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub async fn verify_messages(&self) -> Result<SchemaReport, Error> {
        let deadline = Deadline::after(self.wait);
        let failed = |source| to_error(verifying(&self.sql), source);
        let sql = Arc::clone(&self.sql);
        let turn = self.connections.writer().turn(deadline).await.map_err(failed)?;
        let verified = offload(move || {
            let lease = turn.connect(deadline.left(), Missing::Fail);
            let lease = lease.map_err(|source| to_error(verifying(&sql), source))?;
            inspect_on(lease.conn(), &sql)
        });
        verified.await.map_err(failed)?
    }
}

/// As [`SqliteStore::verify_messages`], on a connection of yours and as that connection sees the table.
/// `table` is the inbox's table.
///
/// # Errors
///
/// As [`SqliteStore::verify`].
pub fn verify_messages_on(conn: &Connection, table: &TableName) -> Result<SchemaReport, Error> {
    inspect_on(conn, &Statements::new(table.clone()))
}

fn inspect_on(conn: &Connection, sql: &Statements) -> Result<SchemaReport, Error> {
    at_once(inspect(&mut &*conn, sql))
}
