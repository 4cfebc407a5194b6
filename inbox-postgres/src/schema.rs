//! The table: its DDL, the rights on it, and creating it (R15).

use inbox_core::{Error, ErrorKind, Identifier, TableName};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{PostgresStore, begin, errors, statements};

/// The version of the schema that [`ddl`] makes. The table's comment carries it: `inbox schema 1`.
pub const SCHEMA_VERSION: u32 = 1;

/// The advisory lock under which schemas are created: "inbox ddl" in bytes, as far as they fit.
const LOCK: i64 = i64::from_be_bytes(*b"inboxddl");

/// The comment that tells an inbox's table from any other, up to its version.
const COMMENT: &str = "inbox schema ";

/// The table unless another is set: `public.inbox`.
pub(crate) fn default_table() -> TableName {
    // Both names keep the rule of `Identifier`, which a test checks.
    TableName::new("public", "inbox").unwrap_or_else(|error| unreachable!("{error}"))
}

/// The statements that create the table, for migrations of your own. They may be run again.
///
/// Besides the key there is a BRIN index on `registered_at`, of some kilobytes, for the purge.
pub fn ddl(table: &TableName) -> String {
    let tables = statements::without_comments(include_str!("sql/table.sql"))
        .replace("{table}", &table.quoted())
        .replace("{time_index}", &format!("\"{}_registered_at\"", table.table()))
        .replace("{comment}", &format!("{COMMENT}{SCHEMA_VERSION}"));
    match table.schema().as_str() {
        "public" => format!("{tables}\n"),
        schema => format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\";\n{tables}\n"),
    }
}

/// The statements that give a role what registering needs, and no more: it can neither change nor
/// delete a registration, nor choose its time.
pub fn grants(table: &TableName, role: &Identifier) -> String {
    let (schema, table) = (table.schema(), table.quoted());
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";\n\
         GRANT SELECT, INSERT (consumer, message_id, event_type, fingerprint) ON TABLE {table} TO \"{role}\";\n"
    )
}

/// The statements that give a role what forgetting and purging need.
pub fn operator_grants(table: &TableName, role: &Identifier) -> String {
    let (schema, table) = (table.schema(), table.quoted());
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";\n\
         GRANT SELECT, DELETE ON TABLE {table} TO \"{role}\";\n"
    )
}

impl PostgresStore {
    /// Creates the table and, if need be, its schema, on a connection of the pool: see [`ddl`].
    ///
    /// May be called again, and by many processes at once. A table that is there is left as it is,
    /// and not looked at beyond its version: see [`verify`](Self::verify).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] if a table of that name is there that is not the inbox's or is of a
    /// newer version, or if the role may not create it; `Unavailable`, or what the server reports.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let doing = format!("create the inbox table {}", self.table());
        let failed = |source| errors::error(&*doing, source);
        let mut tx = begin::begin(self.pool(), &doing).await?;
        // CREATE … IF NOT EXISTS is not safe in two sessions at once: one gets a unique violation.
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .persistent(self.prepared())
            .bind(LOCK)
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        match self.comment(&mut tx).await.map_err(failed)? {
            Some(comment) => return check_version(&doing, comment.as_deref()),
            None => self.create(&mut tx).await.map_err(failed)?,
        }
        tx.commit().await.map_err(|source| errors::commit_error(&*doing, source))
    }

    /// The comment of the table, if there is a table.
    async fn comment(&self, conn: &mut PgConnection) -> Result<Option<Option<String>>, sqlx::Error> {
        let found: Option<(Option<String>,)> = sqlx::query_as(include_str!("sql/comment.sql"))
            .persistent(self.prepared())
            .bind(self.table().schema().as_str())
            .bind(self.table().table().as_str())
            .fetch_optional(conn)
            .await?;
        Ok(found.map(|(comment,)| comment))
    }

    async fn create(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        // Safe to send: only names that need no escaping are put into the text.
        sqlx::raw_sql(AssertSqlSafe(ddl(self.table()))).execute(conn).await.map(drop)
    }
}

/// Accepts a table that is there, by the comment on it.
fn check_version(doing: &str, comment: Option<&str>) -> Result<(), Error> {
    let refuse = |detail: String| Err(Error::new(ErrorKind::Schema, doing).with_detail(detail));
    let version = comment.and_then(|comment| comment.strip_prefix(COMMENT)).map(str::parse::<u32>);
    match version {
        Some(Ok(version)) if version <= SCHEMA_VERSION => Ok(()),
        Some(Ok(version)) => refuse(format!(
            "it is there in version {version}, this library knows versions up to {SCHEMA_VERSION}; use a newer library"
        )),
        _ => refuse(format!(
            "a table of this name is there, and its comment does not say that it is the inbox's; choose another name, or set the comment to '{COMMENT}{SCHEMA_VERSION}' if it is"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_table_has_a_valid_name() {
        assert_eq!(default_table().quoted(), "\"public\".\"inbox\"");
    }

    #[test]
    fn a_schema_of_its_own_is_created_and_public_is_not() {
        assert!(!ddl(&default_table()).contains("CREATE SCHEMA"));
        assert!(
            ddl(&TableName::new("app", "inbox").unwrap()).starts_with("CREATE SCHEMA IF NOT EXISTS \"app\";")
        );
    }
}
