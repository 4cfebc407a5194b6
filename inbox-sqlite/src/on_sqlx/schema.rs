//! Creates the table.

use inbox_core::Error;

use super::store::SqlxSqliteStore;
use crate::schema::{create_in_transaction, creating};

impl SqlxSqliteStore {
    /// Creates the table if it is missing. The file too, if the pool's options say
    /// [`create_if_missing`](sqlx::sqlite::SqliteConnectOptions::create_if_missing).
    ///
    /// May run at any time and in many processes at once: it looks and creates in one write
    /// transaction. A table that is there already is [verified](Self::verify), never changed; one
    /// that does not name its version is accepted if it keeps the contract.
    ///
    /// # Errors
    ///
    /// `Schema` if the table is of a newer version than this library knows, or cannot
    /// keep the contract; `Busy` if the writer did not come free within the wait; `Unavailable` if
    /// the file cannot be opened.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let mut tx = self.begin_for(self.wait(), creating(self.table())).await?;
        create_in_transaction(&mut *tx, self.sql()).await?;
        tx.commit().await.map_err(|source| super::errors::commit_error(creating(self.table()), source))
    }
}
