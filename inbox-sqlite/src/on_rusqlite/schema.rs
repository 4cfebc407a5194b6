//! Creates the table.

use std::sync::Arc;

use inbox_core::{Deadline, Error, TableName};
use rusqlite::Connection;

use super::connections::Missing;
use super::driver::at_once;
use super::errors::to_error;
use super::offload::offload;
use super::store::SqliteStore;
use crate::schema::{create_in_transaction, creating};
use crate::statements::Statements;

/// Creates the table on a connection of yours, as [`SqliteStore::create_schema`] does.
///
/// Call it outside of a transaction, or in one that you commit.
///
/// # Errors
///
/// As [`SqliteStore::create_schema`].
pub fn create_schema_on(conn: &Connection, table: &TableName) -> Result<(), Error> {
    let sql = Statements::new(table.clone());
    if !conn.is_autocommit() {
        return at_once(create_in_transaction(&mut &*conn, &sql));
    }
    let failed = |source| to_error(creating(table), source);
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    at_once(create_in_transaction(&mut &*tx, &sql))?;
    tx.commit().map_err(failed)
}

impl SqliteStore {
    /// Creates the file if it is missing and the table if it is missing.
    ///
    /// May run at any time and in many processes at once: it looks and creates in one write
    /// transaction. A table that is there already is [verified](Self::verify), never changed; one
    /// that does not name its version is accepted if it keeps the contract.
    ///
    /// # Errors
    ///
    /// `Schema` if the table is of a newer version than this library knows, or cannot
    /// keep the contract; `Busy` if the writer did not come free within the wait; `Unavailable` if
    /// the file cannot be opened or created.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let sql = Arc::clone(&self.sql);
        let failed = |source| to_error(creating(&self.sql.table), source);
        let lease = self.begin_lease(Deadline::after(self.wait), Missing::Create).await.map_err(failed)?;
        let created = offload(move || {
            at_once(create_in_transaction(&mut lease.conn(), &sql))?;
            lease.conn().execute_batch("COMMIT").map_err(|source| to_error(creating(&sql.table), source))
        });
        created.await.map_err(failed)?
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::{SCHEMA_VERSION, ddl, default_table, version_of};

    use super::*;

    fn ddl_of(conn: &Connection, table: &TableName) -> rusqlite::Result<Option<String>> {
        at_once(crate::schema::ddl_of(&mut &*conn, table))
    }

    #[test]
    fn the_version_survives_in_the_database() {
        let conn = Connection::open_in_memory().unwrap();
        create_schema_on(&conn, &default_table()).unwrap();
        create_schema_on(&conn, &default_table()).unwrap();
        let kept = ddl_of(&conn, &default_table()).unwrap().unwrap();
        assert_eq!(version_of(&kept), Some(SCHEMA_VERSION));
    }

    #[test]
    fn a_newer_table_is_refused() {
        let newer = ddl(&default_table()).replace("inbox schema 1", "inbox schema 2");
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&newer).unwrap();
        assert_eq!(
            create_schema_on(&conn, &default_table()).unwrap_err().kind(),
            inbox_core::ErrorKind::Schema
        );
    }

    #[test]
    fn a_table_can_be_created_inside_the_callers_migration() {
        let mut conn = Connection::open_in_memory().unwrap();
        let tx = conn.transaction().unwrap();
        create_schema_on(&tx, &default_table()).unwrap();
        tx.rollback().unwrap();
        assert_eq!(ddl_of(&conn, &default_table()).unwrap(), None);
    }
}
