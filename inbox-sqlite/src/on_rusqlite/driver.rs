//! rusqlite's side of [`Driver`].

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use inbox_core::{Consumer, Message, MessageId, MessageRow, Original};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use crate::driver::{Driver, Row, Value};
use crate::register::original;
use crate::statements::Statements;

/// The output of shared code that runs on rusqlite: its calls block, so no future of it is ever pending.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a future over rusqlite's connection is ready at once"),
    }
}

impl Driver for &Connection {
    type Error = rusqlite::Error;

    fn insert(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        message: &Message,
    ) -> impl Future<Output = rusqlite::Result<bool>> + Send {
        ready(insert(self, sql, consumer, message))
    }

    fn original(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        id: &MessageId,
    ) -> impl Future<Output = rusqlite::Result<Option<Original>>> + Send {
        ready(read_original(self, sql, consumer, id))
    }

    fn is_registered(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        id: &MessageId,
    ) -> impl Future<Output = rusqlite::Result<bool>> + Send {
        ready(is_registered(self, sql, consumer, id))
    }

    fn change(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> impl Future<Output = rusqlite::Result<u64>> + Send {
        ready(change(self, text, args))
    }

    fn numbers(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> impl Future<Output = rusqlite::Result<Vec<Vec<Option<i64>>>>> + Send {
        ready(each(self, text, args, |row, columns| (0..columns).map(|column| row.get(column)).collect()))
    }

    fn messages(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> impl Future<Output = rusqlite::Result<Vec<MessageRow>>> + Send {
        ready(each(self, text, args, |row, _| message_row(row)))
    }

    fn rows(&mut self, text: &str, args: &[&str]) -> impl Future<Output = rusqlite::Result<Vec<Row>>> + Send {
        ready(rows(self, text, args))
    }

    fn run(&mut self, text: &str) -> impl Future<Output = rusqlite::Result<()>> + Send {
        ready(self.execute_batch(text))
    }

    fn compile(&mut self, text: &str) -> impl Future<Output = rusqlite::Result<()>> + Send {
        ready(self.prepare(text).map(drop))
    }
}

fn insert(
    conn: &Connection,
    sql: &Statements,
    consumer: &Consumer,
    message: &Message,
) -> rusqlite::Result<bool> {
    let fingerprint = message.fingerprint();
    let fingerprint: Option<&[u8]> = fingerprint.as_ref().map(|fingerprint| &fingerprint.as_bytes()[..]);
    let rows = conn.prepare_cached(&sql.insert)?.execute(params![
        consumer.as_str(),
        message.id().as_str(),
        message.event_type().as_str(),
        fingerprint,
    ])?;
    Ok(rows > 0)
}

/// The original as this connection sees it.
pub(crate) fn read_original(
    conn: &Connection,
    sql: &Statements,
    consumer: &Consumer,
    id: &MessageId,
) -> rusqlite::Result<Option<Original>> {
    conn.prepare_cached(&sql.read_original)?
        .query_row(params![consumer.as_str(), id.as_str()], |row| {
            Ok(original(row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()
}

/// Whether the id is registered, as this connection sees it.
pub(crate) fn is_registered(
    conn: &Connection,
    sql: &Statements,
    consumer: &Consumer,
    id: &MessageId,
) -> rusqlite::Result<bool> {
    conn.prepare_cached(&sql.still_registered)?.exists(params![consumer.as_str(), id.as_str()])
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Null => ValueRef::Null,
            Self::Integer(integer) => ValueRef::Integer(integer),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn change(conn: &Connection, text: &str, args: &[Value<'_>]) -> rusqlite::Result<u64> {
    let changed = conn.prepare_cached(text)?.execute(params_from_iter(args))?;
    Ok(u64::try_from(changed).unwrap_or(u64::MAX))
}

fn each<T>(
    conn: &Connection,
    text: &str,
    args: &[Value<'_>],
    read: impl Fn(&rusqlite::Row<'_>, usize) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = conn.prepare_cached(text)?;
    let columns = statement.column_count();
    let rows = statement.query_map(params_from_iter(args), |row| read(row, columns))?;
    rows.collect()
}

fn message_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<MessageRow> {
    // Bytes of a text too: whoever wrote the row, reading it does not fail.
    let bytes = |column| -> rusqlite::Result<Option<Vec<u8>>> {
        Ok(match row.get_ref(column)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
            _ => None,
        })
    };
    let some_bytes = |column| bytes(column).map(Option::unwrap_or_default);
    Ok(MessageRow {
        sequence: row.get(0)?,
        message_id: some_bytes(1)?,
        event_type: some_bytes(2)?,
        fingerprint: bytes(3)?,
        headers: some_bytes(4)?,
        content_type: bytes(5)?,
        ordering_key: bytes(6)?,
        state: some_bytes(7)?,
        leased: row.get(8)?,
        due_at: row.get(9)?,
        attempts: row.get(10)?,
        allowed: row.get(11)?,
        history: some_bytes(12)?,
        received_at: row.get(13)?,
        state_since: row.get(14)?,
        payload: some_bytes(15)?,
    })
}

fn rows(conn: &Connection, text: &str, args: &[&str]) -> rusqlite::Result<Vec<Row>> {
    let mut statement = conn.prepare(text)?;
    let columns = statement.column_count();
    let rows = statement.query_map(params_from_iter(args), |row| {
        (0..columns).map(|column| row.get_ref(column).map(text_of)).collect::<Result<_, _>>().map(Row)
    })?;
    rows.collect()
}

/// What SQLite's own cast to TEXT gives.
fn text_of(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(integer) => Some(integer.to_string()),
        ValueRef::Real(real) => Some(real.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use crate::statements::NOW;

    #[test]
    fn the_databases_clock_is_the_unix_clock_to_the_millisecond() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        let millis =
            || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();

        let before = millis();
        let now: i64 = conn.query_row(&format!("SELECT {NOW}"), [], |row| row.get(0)).unwrap();
        let after = millis();

        assert!((before - 1..=after + 1).contains(&(now / 1000)), "{before} {now} {after}");
        assert_eq!(now % 1000, 0);
    }
}
