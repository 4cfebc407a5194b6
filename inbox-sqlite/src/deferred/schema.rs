//! The DDL of the table of kept messages and its version, and creating the table.

use inbox_core::{Error, TableName};

use super::verify::inspect;
use crate::driver::Driver;
use crate::errors::to_error;
use crate::schema::ddl_of;
use crate::statements::Statements;

/// The version of the table that [`messages_ddl`] makes.
pub(crate) const SCHEMA_VERSION: u32 = 1;

const MARK: &str = "/* inbox messages schema ";

/// The statements that create the table of kept messages and its indexes, for your own migrations.
/// `table` is the inbox's table; that of the messages has `_messages` after its name.
///
/// Keep the comment `/* inbox messages schema 1 */` in it: it carries the version.
///
/// ```
/// # use inbox_core::TableName;
/// let ddl = inbox_sqlite::messages_ddl(&TableName::new("main", "inbox")?);
/// assert!(ddl.contains("\"main\".\"inbox_messages\" ( /* inbox messages schema 1 */"));
/// # Ok::<_, inbox_core::Error>(())
/// ```
pub fn messages_ddl(table: &TableName) -> String {
    Statements::new(table.clone()).messages.create_table.to_string()
}

pub(crate) fn creating(sql: &Statements) -> String {
    format!("create the table of kept messages {}", sql.messages.table)
}

/// Looks and creates, in the write transaction that is open on `conn`; a table that is there is verified.
pub(crate) async fn create_in_transaction<D: Driver>(conn: &mut D, sql: &Statements) -> Result<(), Error> {
    let failed = |source| to_error(creating(sql), source);
    match ddl_of(conn, &sql.messages.table).await.map_err(failed)? {
        None => conn.run(&sql.messages.create_table).await.map_err(failed),
        Some(_) => inspect(conn, sql).await.map(drop),
    }
}

/// The comment that carries the version.
pub(super) fn version_mark(version: u32) -> String {
    format!("{MARK}{version} */")
}

/// The version in the mark of a table's DDL; `None` if someone else wrote the DDL.
pub(super) fn version_of(ddl: &str) -> Option<u32> {
    let (_, after) = ddl.split_once(MARK)?;
    let (version, _) = after.split_once(" */")?;
    version.parse().ok()
}
