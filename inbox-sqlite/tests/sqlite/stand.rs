//! Stands to test on, and an application with one table, `points`.

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use inbox_core::{Consumer, Error, Inbox, Message, MessageId};
use inbox_sqlite::{SqliteStore, SqliteTx};
use rusqlite::Connection;
use tempfile::TempDir;

/// What a handler of an application fails with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error(transparent)]
    Inbox(#[from] Error),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("refused")]
    Refused,
}

pub(crate) const POINTS: &str = "CREATE TABLE IF NOT EXISTS points (amount INTEGER NOT NULL) STRICT";

/// A database file that goes with the value.
pub(crate) struct File {
    dir: TempDir,
}

impl File {
    /// A file with the inbox's table and `points`.
    pub(crate) async fn new() -> (Self, SqliteStore) {
        let file = Self::empty();
        let store = file.store();
        store.create_schema().await.unwrap();
        store.call(|conn| conn.execute_batch(POINTS)).await.unwrap();
        (file, store)
    }

    pub(crate) fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("app.sqlite")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::new(self.path()).unwrap()
    }

    /// A connection that is not the store's, as another process would have it; waits up to 10 s.
    pub(crate) fn foreign(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(Duration::from_secs(10)).unwrap();
        conn
    }
}

pub(crate) async fn in_memory() -> SqliteStore {
    let store = SqliteStore::in_memory().unwrap();
    store.create_schema().await.unwrap();
    store.call(|conn| conn.execute_batch(POINTS)).await.unwrap();
    store
}

pub(crate) fn consumer() -> Consumer {
    Consumer::new("loyalty").unwrap()
}

pub(crate) fn inbox(store: &SqliteStore) -> Inbox<SqliteStore> {
    Inbox::new(store.clone(), consumer())
}

pub(crate) fn message(id: &str) -> Message {
    Message::new(MessageId::new(id).unwrap(), "PaymentConfirmed").unwrap()
}

/// The effect: one row in `points`.
pub(crate) async fn credit(tx: &mut SqliteTx) -> Result<(), AppError> {
    tx.call(|conn| conn.execute("INSERT INTO points VALUES (10)", [])).await?;
    Ok(())
}

/// How many effects are committed.
pub(crate) async fn credits(store: &SqliteStore) -> i64 {
    count(store, "SELECT count(*) FROM points").await
}

pub(crate) async fn count(store: &SqliteStore, sql: &'static str) -> i64 {
    store.call(move |conn| conn.query_row(sql, [], |row| row.get(0))).await.unwrap()
}

pub(crate) async fn is_registered(store: &SqliteStore, id: &str) -> bool {
    inbox(store).find(&MessageId::new(id).unwrap()).await.unwrap().is_some()
}

/// Polls once and says whether the future is finished.
pub(crate) async fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}
