//! Creates the table of kept messages.

use std::sync::Arc;

use inbox_core::{Deadline, Error, TableName};
use rusqlite::Connection;

use super::super::connections::Missing;
use super::super::driver::at_once;
use super::super::errors::to_error;
use super::super::offload::offload;
use super::super::store::SqliteStore;
use crate::deferred::schema::{create_in_transaction, creating};
use crate::statements::Statements;

/// Creates the table of kept messages on a connection of yours, as [`SqliteStore::create_message_schema`]
/// does. `table` is the inbox's table.
///
/// Call it outside of a transaction, or in one that you commit.
///
/// # Errors
///
/// As [`SqliteStore::create_message_schema`].
pub fn create_message_schema_on(conn: &Connection, table: &TableName) -> Result<(), Error> {
    let sql = Statements::new(table.clone());
    if !conn.is_autocommit() {
        return at_once(create_in_transaction(&mut &*conn, &sql));
    }
    let failed = |source| to_error(creating(&sql), source);
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    at_once(create_in_transaction(&mut &*tx, &sql))?;
    tx.commit().map_err(failed)
}

impl SqliteStore {
    /// The table of kept messages: the inbox's name and `_messages`.
    pub fn messages_table(&self) -> &TableName {
        &self.sql.messages.table
    }

    /// Creates the table of kept messages with its indexes if it is missing, and the file if that is.
    ///
    /// May run at any time and in many processes at once: it looks and creates in one write transaction.
    /// A table that is there already is [verified](Self::verify_messages), never changed.
    ///
    /// # Errors
    ///
    /// As [`create_schema`](Self::create_schema).
    pub async fn create_message_schema(&self) -> Result<(), Error> {
        let sql = Arc::clone(&self.sql);
        let failed = |source| to_error(creating(&self.sql), source);
        let lease = self.begin_lease(Deadline::after(self.wait), Missing::Create).await.map_err(failed)?;
        let created = offload(move || {
            at_once(create_in_transaction(&mut lease.conn(), &sql))?;
            lease.conn().execute_batch("COMMIT").map_err(|source| to_error(creating(&sql), source))
        });
        created.await.map_err(failed)?
    }
}
