//! Refusing a table that cannot keep the contract, before it breaks it (R16).

use inbox_core::{Consumer, Error, EventType, MessageId, SchemaReport, TableName};
use sqlx::{MySqlConnection, Row};

use crate::dialect::Dialect;
use crate::schema::SCHEMA_VERSION;
use crate::script::{Failed, Script};
use crate::statements::{quoted, without_comments};
use crate::{MySqlStore, errors};

impl MySqlStore {
    /// Looks at the server, the table and this account's rights, on a connection of the pool, and
    /// refuses what cannot keep the contract. The report has the warnings.
    ///
    /// Nearly all of it is in one query of `information_schema`, `sql/verify.sql`: what is looked at, why,
    /// and what to do about it. It waits for a session that is altering the table.
    ///
    /// MySQL, and older MariaDBs, show triggers only to an account with the right TRIGGER, which
    /// [`grants`](crate::grants) does not give, since it is the right to create them too. Without it
    /// there is a warning that they may have gone unseen: verify once as the table's owner, as
    /// [`create_schema`](Self::create_schema) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`](inbox_core::ErrorKind::Schema) naming everything that was refused;
    /// `Unavailable`, or what the server reports.
    pub async fn verify(&self) -> Result<SchemaReport, Error> {
        let doing = format!("verify the inbox table {}", self.table());
        let mut conn = self.pool().acquire().await.map_err(|source| errors::error(&*doing, source))?;
        self.verify_on(&mut conn, &doing).await
    }

    pub(crate) async fn verify_on(
        &self,
        conn: &mut MySqlConnection,
        doing: &str,
    ) -> Result<SchemaReport, Error> {
        self.verify_table(conn, doing, self.table(), |dialect| self.query(dialect)).await
    }

    /// What a query finds of a table.
    pub(crate) async fn verify_table(
        &self,
        conn: &mut MySqlConnection,
        doing: &str,
        table: &TableName,
        query: impl FnOnce(Dialect) -> String + Send,
    ) -> Result<SchemaReport, Error> {
        let mut report = SchemaReport::new();
        let found = self.look(conn, table, query).await.map_err(|source| errors::error(doing, source))?;
        let Some(findings) = found else {
            report.refuse(TOO_OLD);
            return report.into_result(table);
        };
        for (refused, text) in findings {
            if refused { report.refuse(text) } else { report.warn(text) }
        }
        report.into_result(table)
    }

    /// What `sql/verify.sql` finds; None where the server would not understand it.
    async fn look(
        &self,
        conn: &mut MySqlConnection,
        table: &TableName,
        query: impl FnOnce(Dialect) -> String + Send,
    ) -> Result<Option<Vec<(bool, String)>>, sqlx::Error> {
        let dialect = self.dialect().ask(conn).await?;
        let probed = Script::new().then(PROBE).run(conn).await.map_err(Failed::into_source)?;
        if probed[0].rows.is_empty() {
            return Ok(None);
        }
        let answers = Script::new().then(query(dialect)).run(conn).await.map_err(Failed::into_source)?;
        let read = |row: &sqlx::mysql::MySqlRow| Ok((row.try_get::<i64, _>(0)? != 0, row.try_get(1)?));
        let mut findings = answers[0].rows.iter().map(read).collect::<Result<Vec<_>, sqlx::Error>>()?;
        if is_temporary(conn, table).await? {
            findings.push((true, TEMPORARY.to_owned()));
        }
        Ok(Some(findings))
    }

    fn query(&self, dialect: Dialect) -> String {
        let (session_read_only, index_is_used) = match dialect {
            Dialect::MySql => ("@@transaction_read_only", "is_visible = 'YES'"),
            Dialect::MariaDb => ("@@tx_read_only", "ignored = 'NO'"),
        };
        without_comments(include_str!("sql/verify.sql"))
            .replace("{session_read_only}", session_read_only)
            .replace("{index_is_used}", index_is_used)
            .replace("{schema}", self.table().schema().as_str())
            .replace("{table}", self.table().table().as_str())
            .replace("{consumer_limit}", &Consumer::MAX_BYTES.to_string())
            .replace("{id_limit}", &MessageId::MAX_BYTES.to_string())
            .replace("{type_limit}", &EventType::MAX_BYTES.to_string())
            .replace("{version}", &SCHEMA_VERSION.to_string())
    }
}

/// Whether this session has a temporary table of the name, which takes the place of the other one
/// even where that is named with its database. Only newer MariaDBs list them in
/// `information_schema`.
async fn is_temporary(conn: &mut MySqlConnection, table: &TableName) -> Result<bool, sqlx::Error> {
    let show = Script::new().then(format!("SHOW CREATE TABLE {}", quoted(table)));
    match show.run(conn).await {
        Ok(answers) => {
            let text = answers[0].rows.first().map(|row| row.try_get::<String, _>(1)).transpose()?;
            Ok(text.is_some_and(|text| text.starts_with("CREATE TEMPORARY ")))
        }
        // There is none, or no right to see it, which the query has told.
        Err(failed) if failed.source.as_database_error().is_some() => Ok(false),
        Err(failed) => Err(failed.into_source()),
    }
}

/// Tells a server that is new enough by what came with it, since versions are spelt as forks like:
/// expressions as keys and as defaults came to MySQL together (8.0.13), ignored indexes to MariaDB
/// with 10.6.
const PROBE: &str = "SELECT 1
FROM information_schema.columns
WHERE table_schema = 'information_schema' AND table_name = 'STATISTICS'
  AND column_name IN ('EXPRESSION', 'IGNORED')";

const TEMPORARY: &str = "a temporary table of this session has the table's name: other sessions do not see what is \
                         registered there, and it ends with the session; drop it";

const TOO_OLD: &str = "the server is too old: it has neither MySQL's indexes on expressions nor MariaDB's \
                       ignored indexes, nor what came with them; use MySQL 8.0.13 or MariaDB 10.6, or later";
