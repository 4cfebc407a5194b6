//! sqlx's side of [`Driver`].

use std::sync::Arc;

use inbox_core::{Consumer, Fingerprint, Message, MessageId, MessageRow, Original};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use crate::driver::{Driver, Row, Value};
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

    async fn change(&mut self, text: &Arc<str>, args: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        Ok(bound(text, args).execute(self).await?.rows_affected())
    }

    async fn numbers(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> Result<Vec<Vec<Option<i64>>>, sqlx::Error> {
        let rows = bound(text, args).fetch_all(self).await?;
        let numbers = |row: &SqliteRow| (0..row.len()).map(|column| row.try_get_unchecked(column)).collect();
        rows.iter().map(numbers).collect()
    }

    async fn messages(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> Result<Vec<MessageRow>, sqlx::Error> {
        bound(text, args).fetch_all(self).await?.iter().map(message_row).collect()
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

fn bound(text: &Arc<str>, args: &[Value<'_>]) -> Query<'static, Sqlite, SqliteArguments> {
    args.iter().fold(sqlx::query(ours(text)), |query, arg| match *arg {
        Value::Null => query.bind(None::<i64>),
        Value::Integer(integer) => query.bind(integer),
        Value::Text(text) => query.bind(text),
        Value::Blob(bytes) => query.bind(bytes),
    })
}

/// Unchecked: whoever wrote the row, reading it does not fail.
fn message_row(row: &SqliteRow) -> Result<MessageRow, sqlx::Error> {
    Ok(MessageRow {
        sequence: row.try_get_unchecked(0)?,
        message_id: row.try_get_unchecked(1)?,
        event_type: row.try_get_unchecked(2)?,
        fingerprint: row.try_get_unchecked(3)?,
        headers: row.try_get_unchecked(4)?,
        content_type: row.try_get_unchecked(5)?,
        ordering_key: row.try_get_unchecked(6)?,
        state: row.try_get_unchecked(7)?,
        leased: row.try_get_unchecked(8)?,
        due_at: row.try_get_unchecked(9)?,
        attempts: row.try_get_unchecked(10)?,
        allowed: row.try_get_unchecked(11)?,
        history: row.try_get_unchecked(12)?,
        received_at: row.try_get_unchecked(13)?,
        state_since: row.try_get_unchecked(14)?,
        payload: row.try_get_unchecked(15)?,
    })
}
