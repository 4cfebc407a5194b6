//! The table: its DDL, the rights on it, and creating it (R15).

use inbox_core::{Deadline, Error, Identifier, TableName};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::wait::lock_timeout;
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
    match table.schema().as_str() {
        "public" => table_ddl(table),
        _ => schema_ddl(table) + &table_ddl(table),
    }
}

pub(crate) fn schema_ddl(table: &TableName) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS \"{}\";\n", table.schema())
}

fn table_ddl(table: &TableName) -> String {
    let tables = statements::without_comments(include_str!("sql/table.sql"))
        .replace("{table}", &table.quoted())
        .replace("{time_index}", &format!("\"{}_registered_at\"", table.table()))
        .replace("{comment}", &format!("{COMMENT}{SCHEMA_VERSION}"));
    format!("{tables}\n")
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
    /// May be called again, and by many processes at once. A table that is there is left as it is
    /// and [verified](Self::verify), so a name that is taken by something else is refused.
    ///
    /// The role needs CREATE on the schema, and on the database only if the schema is not there; it
    /// will own the table. Other sessions that create or lock the same are waited for no longer than
    /// [`with_wait`](Self::with_wait) says.
    ///
    /// # Errors
    ///
    /// `Schema` if the role may not create the table, or if one is there that `verify` refuses;
    /// `Busy` past the wait; `Unavailable`, or what the server reports.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let doing = format!("create the inbox table {}", self.table());
        let wait = Deadline::after(self.wait());
        let mut tx = begin::begin(self.pool(), &doing).await?;
        let exists = self.lock_and_look(&mut tx, self.table(), &wait).await;
        let exists = exists.map_err(|source| errors::error_within(&wait, &*doing, source))?;
        if exists.table {
            return self.verify_on(&mut tx, &doing).await.map(drop);
        }
        self.create(&mut tx, exists, &wait).await.map_err(|source| {
            let no_right = errors::has_code(&source, errors::NO_RIGHT);
            let error = errors::error_within(&wait, &*doing, source);
            if no_right { error.with_detail(missing_right(exists)) } else { error }
        })?;
        tx.commit().await.map_err(|source| errors::commit_error(&*doing, source))
    }

    /// Lets one session at a time go on: CREATE … IF NOT EXISTS is not safe in two at once, one gets
    /// a unique violation.
    pub(crate) async fn lock_and_look(
        &self,
        conn: &mut PgConnection,
        table: &TableName,
        wait: &Deadline,
    ) -> Result<Exists, sqlx::Error> {
        self.bound_waits(conn, wait).await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .persistent(self.prepared())
            .bind(LOCK)
            .execute(&mut *conn)
            .await?;
        let (schema, table) = sqlx::query_as(include_str!("sql/exists.sql"))
            .persistent(self.prepared())
            .bind(table.schema().as_str())
            .bind(table.table().as_str())
            .fetch_one(conn)
            .await?;
        Ok(Exists { schema, table })
    }

    async fn create(
        &self,
        conn: &mut PgConnection,
        exists: Exists,
        wait: &Deadline,
    ) -> Result<(), sqlx::Error> {
        self.bound_waits(conn, wait).await?;
        let mut text = table_ddl(self.table());
        // CREATE SCHEMA needs a right on the database, IF NOT EXISTS or not.
        if !exists.schema {
            text.insert_str(0, &schema_ddl(self.table()));
        }
        // Safe to send: only names that need no escaping are put into the text.
        sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await.map(drop)
    }

    /// Bounds each wait of the transaction by what is left.
    pub(crate) async fn bound_waits(
        &self,
        conn: &mut PgConnection,
        wait: &Deadline,
    ) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT set_config('lock_timeout', $1, true)")
            .persistent(self.prepared())
            .bind(lock_timeout(wait))
            .execute(conn)
            .await
            .map(drop)
    }
}

/// What is there already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exists {
    pub(crate) schema: bool,
    pub(crate) table: bool,
}

/// The right without which the DDL failed.
pub(crate) fn missing_right(exists: Exists) -> &'static str {
    if exists.schema {
        "this role needs CREATE on the schema, or let its owner run the text of ddl"
    } else {
        "this role needs CREATE on the database, or let its owner run the text of ddl"
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
