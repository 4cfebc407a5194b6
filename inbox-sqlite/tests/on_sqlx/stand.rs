//! Stands to test on, and an application with one table, `points`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use inbox_core::{Begin as _, Consumer, Error, ErrorKind, Inbox, Message, MessageId};
use inbox_sqlite::on_sqlx::SqlxSqliteStore;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use tempfile::TempDir;

/// What a handler of an application fails with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error(transparent)]
    Inbox(#[from] Error),
    #[error(transparent)]
    Sqlx(#[from] sqlx::Error),
}

pub(crate) const POINTS: &str = "CREATE TABLE IF NOT EXISTS points (amount INTEGER NOT NULL) STRICT";

/// A database file that goes with the value.
pub(crate) struct File {
    dir: TempDir,
}

impl File {
    /// A file in a write-ahead log with the inbox's table and `points`.
    pub(crate) async fn new() -> (Self, SqlxSqliteStore) {
        Self::with(SqliteJournalMode::Wal, 10).await
    }

    pub(crate) async fn with(journal: SqliteJournalMode, connections: u32) -> (Self, SqlxSqliteStore) {
        let file = Self { dir: tempfile::tempdir().unwrap() };
        let options = file.options().create_if_missing(true).journal_mode(journal);
        let pool = SqlitePoolOptions::new().max_connections(connections).connect_with(options).await.unwrap();
        let store = with_tables(pool).await;
        (file, store)
    }

    pub(crate) fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(self.dir.path().join("app.sqlite"))
    }

    /// A connection that is not the pool's, as another process would have it; it does not wait.
    pub(crate) async fn foreign(&self) -> SqliteConnection {
        self.options().busy_timeout(Duration::ZERO).connect().await.unwrap()
    }
}

async fn with_tables(pool: SqlitePool) -> SqlxSqliteStore {
    let store = SqlxSqliteStore::new(pool);
    store.create_schema().await.unwrap();
    sqlx::raw_sql(POINTS).execute(store.pool()).await.unwrap();
    store
}

pub(crate) async fn in_memory() -> SqlxSqliteStore {
    let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    with_tables(options.connect("sqlite::memory:").await.unwrap()).await
}

pub(crate) fn consumer() -> Consumer {
    Consumer::new("loyalty").unwrap()
}

pub(crate) fn inbox(store: &SqlxSqliteStore) -> Inbox<SqlxSqliteStore> {
    Inbox::new(store.clone(), consumer())
}

pub(crate) fn message(id: &str) -> Message {
    Message::new(MessageId::new(id).unwrap(), "PaymentConfirmed").unwrap()
}

/// Runs statements on a connection, also on that of a transaction.
pub(crate) async fn sql(conn: &mut SqliteConnection, text: &str) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await.map(drop)
}

/// Keeps sqlx's thread for the connection busy, so that what is sent next is not answered at once.
pub(crate) async fn keep_busy(conn: &mut SqliteConnection) {
    const SLOW: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
                        SELECT count(*) FROM n";
    let mut counting = Box::pin(sqlx::query(SLOW).fetch_all(conn));
    assert!(poll_once(&mut counting).await.is_none());
}

/// The effect: one row in `points`.
pub(crate) async fn credit(conn: &mut SqliteConnection) -> Result<(), AppError> {
    Ok(sql(conn, "INSERT INTO points VALUES (10)").await?)
}

/// How many effects are committed.
pub(crate) async fn credits(store: &SqlxSqliteStore) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM points").fetch_one(store.pool()).await.unwrap()
}

pub(crate) async fn is_registered(store: &SqlxSqliteStore, id: &str) -> bool {
    inbox(store).find(&MessageId::new(id).unwrap()).await.unwrap().is_some()
}

pub(crate) fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// The pool's connections are good for anybody: the driver and the store can begin and commit on them.
pub(crate) async fn assert_sound(store: &SqlxSqliteStore) {
    // The driver first, since the store mends what it finds.
    let tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    tx.commit().await.unwrap();
    drop(store.begin(Some(Duration::from_secs(5))).await.unwrap());
    let timeout: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(store.pool()).await.unwrap();
    assert_eq!(timeout, 5000, "R15: sqlx's own setting");
}

/// Has the store mend the pool's one connection, where the driver was left to end a lost transaction.
pub(crate) async fn mend(store: &SqlxSqliteStore) {
    drop(store.begin(None).await.unwrap());
}

/// As [`assert_sound`], and neither "m" nor an effect is there.
pub(crate) async fn assert_forgotten(store: &SqlxSqliteStore) {
    assert_sound(store).await;
    assert!(!is_registered(store, "m").await);
    assert_eq!(credits(store).await, 0);
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
