//! The table's DDL and its version, and creating the table.

use inbox_core::{Error, TableName};

use crate::driver::Driver;
use crate::errors::to_error;
use crate::statements::Statements;
use crate::verify::inspect;

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
    Statements::new(table.clone()).create_table.to_string()
}

pub(crate) fn creating(table: &TableName) -> String {
    format!("create the inbox table {table}")
}

/// Looks and creates, in the write transaction that is open on `conn`; a table that is there is verified.
pub(crate) async fn create_in_transaction<D: Driver>(conn: &mut D, sql: &Statements) -> Result<(), Error> {
    let failed = |source| to_error(creating(&sql.table), source);
    match ddl_of(conn, &sql.table).await.map_err(failed)? {
        None => conn.run(&sql.create_table).await.map_err(failed),
        Some(_) => inspect(conn, &sql.table).await.map(drop),
    }
}

/// The text with which a table was created, as `sqlite_schema` keeps it.
pub(crate) async fn ddl_of<D: Driver>(conn: &mut D, table: &TableName) -> Result<Option<String>, D::Error> {
    let schema = table.schema();
    let select = format!(
        "SELECT coalesce(sql, '') FROM \"{schema}\".sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')"
    );
    let found = conn.rows(&select, &[table.table().as_str()]).await?;
    Ok(found.first().map(|row| row.text(0)))
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
    fn a_newer_table_is_refused_and_a_foreign_one_has_no_version() {
        assert_eq!(newer_version(&ddl(&default_table())), None);
        let newer = ddl(&default_table()).replace("inbox schema 1", "inbox schema 2");
        assert!(newer_version(&newer).unwrap().contains("update the library"));
        assert_eq!(version_of("CREATE TABLE inbox (a)"), None);
    }
}
