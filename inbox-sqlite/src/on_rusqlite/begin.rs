//! Begins a transaction that is the writer from its start, with a guard that tells if it was ended.

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Deadline, Error};
use rusqlite::Connection;

use super::connections::{Lease, Missing};
use super::errors::to_error;
use super::guard;
use super::offload::offload;
use super::store::SqliteStore;
use super::tx::SqliteTx;

/// IMMEDIATE, since a transaction that reads first cannot wait for the writer later (B51).
const BEGIN: &str = "BEGIN IMMEDIATE";

#[async_trait]
impl Begin for SqliteStore {
    type Tx = SqliteTx;

    async fn begin(&self, wait: Option<Duration>) -> Result<SqliteTx, Error> {
        let deadline = Deadline::after(wait.unwrap_or(self.wait));
        match self.begin_lease(deadline, Missing::Fail).await {
            Ok(lease) => Ok(SqliteTx::new(lease)),
            Err(source) => Err(to_error(format!("begin a transaction for {}", self.sql.table), source)),
        }
    }
}

impl SqliteStore {
    /// The writer's connection in a transaction.
    pub(crate) async fn begin_lease(&self, deadline: Deadline, missing: Missing) -> rusqlite::Result<Lease> {
        let turn = self.connections.writer().turn(deadline).await?;
        offload(move || {
            let mut lease = turn.connect(deadline.left(), missing)?;
            begin_on(lease.conn()).map_err(|error| lease.close_after_begin(error))?;
            // The whole bound anew: COMMIT is a call of its own, which waits for readers where the
            // journal is not a write-ahead log. What is left of begin's is nothing if begin waited.
            super::wait::set_busy_timeout(lease.conn(), deadline.bound())?;
            Ok(lease)
        })
        .await?
    }
}

fn begin_on(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(BEGIN)?;
    guard::set(conn)
}
