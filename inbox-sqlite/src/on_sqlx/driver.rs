//! sqlx's side of [`Driver`].

use std::sync::Arc;

use inbox_core::{Consumer, Fingerprint, Message, MessageId, Original};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use crate::driver::{Driver, Row};
use crate::register::original;
use crate::statements::Statements;

/// A statement of ours for sqlx. Safe to send: only a table's name, which needs no escaping, is put into a text.
fn ours(text: &Arc<str>) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(Arc::clone(text))
}

impl Driver for SqliteConnection {
    type Error = sqlx::Error;

    async fn insert(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        message: &Message,
    ) -> Result<bool, sqlx::Error> {
        let inserted = sqlx::query(ours(&sql.insert))
            .bind(consumer.as_str())
            .bind(message.id().as_str())
            .bind(message.event_type().as_str())
            .bind(message.fingerprint().map(|fingerprint| fingerprint.as_bytes().to_vec()))
            .execute(self)
            .await?;
        Ok(inserted.rows_affected() > 0)
    }

    async fn original(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        id: &MessageId,
    ) -> Result<Option<Original>, sqlx::Error> {
        let row: Option<(String, Option<Vec<u8>>, i64)> = sqlx::query_as(ours(&sql.read_original))
            .bind(consumer.as_str())
            .bind(id.as_str())
            .fetch_optional(self)
            .await?;
        row.map(|(event_type, fingerprint, registered_at)| {
            let fingerprint = fingerprint.map(<[u8; Fingerprint::LEN]>::try_from).transpose();
            let fingerprint = fingerprint.map_err(|bytes| {
                sqlx::Error::Decode(format!("the original's fingerprint has {} bytes", bytes.len()).into())
            })?;
            Ok(original(event_type, fingerprint, registered_at))
        })
        .transpose()
    }

    async fn is_registered(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        id: &MessageId,
    ) -> Result<bool, sqlx::Error> {
        let found = sqlx::query(ours(&sql.still_registered))
            .bind(consumer.as_str())
            .bind(id.as_str())
            .fetch_optional(self)
            .await?;
        Ok(found.is_some())
    }

    async fn rows(&mut self, text: &str, args: &[&str]) -> Result<Vec<Row>, sqlx::Error> {
        let mut query = sqlx::query(AssertSqlSafe(text)).persistent(false);
        for arg in args {
            query = query.bind(*arg);
        }
        let rows = query.fetch_all(self).await?;
        // Unchecked: SQLite makes a text of any value.
        let texts =
            rows.iter().map(|row| (0..row.len()).map(|column| row.try_get_unchecked(column)).collect());
        texts.map(|texts: Result<_, _>| texts.map(Row)).collect()
    }

    async fn run(&mut self, text: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(self).await.map(drop)
    }

    async fn compile(&mut self, text: &str) -> Result<(), sqlx::Error> {
        self.prepare(AssertSqlSafe(text).into_sql_str()).await.map(drop)
    }
}
