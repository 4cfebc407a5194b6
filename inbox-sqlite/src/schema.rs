//! Creates the table, and gives its DDL to your own migrations.

use std::sync::Arc;

use inbox_core::{Error, TableName};
use rusqlite::{Connection, OptionalExtension, params};

use crate::connections::Missing;
use crate::errors::to_error;
use crate::offload::offload;
use crate::statements::Statements;
use crate::store::SqliteStore;
use crate::verify::verify_on;
use crate::wait::Deadline;

/// The version of the schema that [`ddl`] makes. A comment in the table's SQL carries it: `/* inbox schema 1 */`.
pub const SCHEMA_VERSION: u32 = 1;

/// `main.inbox`.
pub(crate) fn default_table() -> TableName {
    TableName::new("main", "inbox").expect("both are valid names")
}

/// The statement that creates the table, for your own migrations.
///
/// Keep the comment in it: it carries the version.
///
/// ```
/// # use inbox_core::TableName;
/// let ddl = inbox_sqlite::ddl(&TableName::new("main", "inbox")?);
/// assert!(ddl.contains("/* inbox schema 1 */"));
/// # Ok::<_, inbox_core::Error>(())
/// ```
pub fn ddl(table: &TableName) -> String {
    Statements::new(table.clone()).create_table
}

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
        return create_in_transaction(conn, &sql);
    }
    let failed = |source| to_error(creating(table), source);
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    create_in_transaction(&tx, &sql)?;
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
            create_in_transaction(lease.conn(), &sql)?;
            lease.conn().execute_batch("COMMIT").map_err(|source| to_error(creating(&sql.table), source))
        });
        created.await.map_err(failed)?
    }
}

fn creating(table: &TableName) -> String {
    format!("create the inbox table {table}")
}

fn create_in_transaction(conn: &Connection, sql: &Statements) -> Result<(), Error> {
    let failed = |source| to_error(creating(&sql.table), source);
    match ddl_of(conn, &sql.table).map_err(failed)? {
        None => conn.execute_batch(&sql.create_table).map_err(failed),
        Some(_) => verify_on(conn, &sql.table).map(drop),
    }
}

/// The text with which a table was created, as `sqlite_schema` keeps it.
pub(crate) fn ddl_of(conn: &Connection, table: &TableName) -> rusqlite::Result<Option<String>> {
    let schema = table.schema();
    let select = format!(
        "SELECT coalesce(sql, '') FROM \"{schema}\".sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')"
    );
    conn.query_row(&select, params![table.table().as_str()], |row| row.get(0)).optional()
}

/// The comment that carries the version.
pub(crate) fn version_mark(version: u32) -> String {
    format!("/* inbox schema {version} */")
}

/// The version in the mark of a table's DDL; `None` if someone else wrote the DDL.
pub(crate) fn version_of(ddl: &str) -> Option<u32> {
    let (_, after) = ddl.split_once("/* inbox schema ")?;
    let (version, _) = after.split_once(" */")?;
    version.parse().ok()
}

/// The refusal of a newer table.
pub(crate) fn newer_version(ddl: &str) -> Option<String> {
    let version = version_of(ddl).filter(|&version| version > SCHEMA_VERSION)?;
    Some(format!(
        "the table is of version {version}, this library knows {SCHEMA_VERSION}: update the library"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_survives_in_the_database() {
        let conn = Connection::open_in_memory().unwrap();
        create_schema_on(&conn, &default_table()).unwrap();
        create_schema_on(&conn, &default_table()).unwrap();
        let kept = ddl_of(&conn, &default_table()).unwrap().unwrap();
        assert_eq!(version_of(&kept), Some(SCHEMA_VERSION));
    }

    #[test]
    fn a_newer_table_is_refused_and_a_foreign_one_has_no_version() {
        assert_eq!(newer_version(&ddl(&default_table())), None);
        let newer = ddl(&default_table()).replace("inbox schema 1", "inbox schema 2");
        assert!(newer_version(&newer).unwrap().contains("update the library"));
        assert_eq!(version_of("CREATE TABLE inbox (a)"), None);

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
