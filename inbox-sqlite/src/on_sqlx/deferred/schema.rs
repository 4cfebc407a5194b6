//! Creates the table of kept messages.

use inbox_core::{Error, TableName};

use super::super::errors::commit_error;
use super::super::store::SqlxSqliteStore;
use crate::deferred::schema::{create_in_transaction, creating};

impl SqlxSqliteStore {
    /// The table of kept messages: the inbox's name and `_messages`.
    pub fn messages_table(&self) -> &TableName {
        &self.sql().messages.table
    }

    /// Creates the table of kept messages with its indexes if it is missing. The file too, if the pool's
    /// options say [`create_if_missing`](sqlx::sqlite::SqliteConnectOptions::create_if_missing).
    ///
    /// May run at any time and in many processes at once: it looks and creates in one write transaction.
    /// A table that is there already is [verified](Self::verify_messages), never changed.
    ///
    /// # Errors
    ///
    /// As [`create_schema`](Self::create_schema).
    pub async fn create_message_schema(&self) -> Result<(), Error> {
        let doing = creating(self.sql());
        let mut tx = self.begin_for(self.wait(), doing.clone()).await?;
        create_in_transaction(&mut *tx, self.sql()).await?;
        tx.commit().await.map_err(|source| commit_error(doing, source))
    }
}
