//! [`SqliteStore::verify`], and the same on a connection of the caller's.

use std::sync::Arc;

use inbox_core::{Deadline, Error, SchemaReport, TableName};
use rusqlite::Connection;

use super::connections::Missing;
use super::driver::at_once;
use super::errors::to_error;
use super::offload::offload;
use super::store::SqliteStore;
use crate::verify::{inspect, verifying};

impl SqliteStore {
    /// Checks that the table, the database and the writer's connection keep the contract, and says
    /// what to do about what does not. Writes nothing, but takes the writer's turn.
    ///
    /// # Errors
    ///
    /// `Schema` with every refusal; warnings are in the report and go to `tracing`.
    /// `Busy` if the writer did not come free within the wait, `Unavailable` if there is no file.
    pub async fn verify(&self) -> Result<SchemaReport, Error> {
        let deadline = Deadline::after(self.wait);
        let failed = |source| to_error(verifying(&self.sql.table), source);
        let sql = Arc::clone(&self.sql);
        let turn = self.connections.writer().turn(deadline).await.map_err(failed)?;
        let verified = offload(move || {
            let lease = turn.connect(deadline.left(), Missing::Fail);
            let lease = lease.map_err(|source| to_error(verifying(&sql.table), source))?;
            verify_on(lease.conn(), &sql.table)
        });
        verified.await.map_err(failed)?
    }
}

/// As [`SqliteStore::verify`], on a connection of yours and as that connection sees the table:
/// temporary triggers and most settings belong to a connection.
///
/// # Errors
///
/// As [`SqliteStore::verify`].
pub fn verify_on(conn: &Connection, table: &TableName) -> Result<SchemaReport, Error> {
    at_once(inspect(&mut &*conn, table))
}
