//! [`SqlxSqliteStore`]: a pool, a table, and how long to wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Capabilities, DEFAULT_WAIT, Error, InboxStore, Register, RegisterBatch, Registration, TableName, Waits,
};
use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqlitePool};
use tokio::sync::Semaphore;

use super::{condemn, register};
use crate::schema;
#[cfg(feature = "test-clock")]
use crate::statements::Clock;
use crate::statements::Statements;

/// The inbox's store on SQLite through sqlx. Cloning is cheap.
///
/// Its clones share one queue for beginning: make one store per database and process. Other
/// connections and processes may use the same file at the same time.
///
/// The pool's connections are used as they are: give them `journal_mode(SqliteJournalMode::Wal)`, so
/// that readers and the writer do not stop each other, and leave `synchronous` at FULL.
#[derive(Clone)]
pub struct SqlxSqliteStore {
    pool: SqlitePool,
    sql: Arc<Statements>,
    turns: Arc<Semaphore>,
    wait: Duration,
}

impl SqlxSqliteStore {
    /// A store on the table `main.inbox`. Does no I/O and checks nothing: see
    /// [`open`](Self::open), [`verify`](Self::verify) and [`create_schema`](Self::create_schema).
    ///
    /// The pool serves `process`, `begin` and the operator's calls; transactions that you pass in
    /// may come from anywhere, as long as they are of the same database.
    pub fn new(pool: SqlitePool) -> Self {
        let sql = Arc::new(Statements::new(schema::default_table()));
        Self { pool, sql, turns: Arc::new(Semaphore::new(1)), wait: DEFAULT_WAIT }
    }

    /// As [`new`](Self::new), and verifies the table `main.inbox`; warnings go to `tracing`. For
    /// another table: `new`, [`with_table`](Self::with_table), [`verify`](Self::verify).
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub async fn open(pool: SqlitePool) -> Result<Self, Error> {
        let store = Self::new(pool);
        store.verify().await?;
        Ok(store)
    }

    /// Uses another table. Its schema is `main`, or the name of an attached database.
    #[must_use]
    pub fn with_table(mut self, table: TableName) -> Self {
        self.sql = Arc::new(Statements::with_clock(table, self.sql.clock));
        self
    }

    /// Adds to the clock what the table `inbox_test_clock` says. For tests.
    #[cfg(feature = "test-clock")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(mut self) -> Self {
        self.sql = Arc::new(Statements::with_clock(self.sql.table.clone(), Clock::Shifted));
        self
    }

    /// Sets the longest wait for the writer, 10 s by default; zero is no wait. Resolution 1 ms.
    ///
    /// It covers the queue of this store, the pool's connections where all are in use, and other
    /// connections' transactions, for which SQLite polls, at most every 100 ms. To open a connection
    /// or to test an idle one is not counted. A commit waits for readers of a file without a
    /// write-ahead log, as long as the connection's own `busy_timeout` says.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The pool.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.sql.table
    }

    pub(crate) fn sql(&self) -> &Statements {
        &self.sql
    }

    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.turns)
    }

    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }
}

impl fmt::Debug for SqlxSqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxSqliteStore")
            .field("table", self.table())
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::all(Waits::WhenBeginning)
}

#[async_trait]
impl<'c> InboxStore<Transaction<'c, Sqlite>> for SqlxSqliteStore {
    async fn register_if_new(
        &self,
        tx: &mut Transaction<'c, Sqlite>,
        request: &Register<'_>,
    ) -> Result<Registration, Error> {
        register::register_if_new(self, tx, request).await
    }

    async fn register_batch(
        &self,
        tx: &mut Transaction<'c, Sqlite>,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        register::register_batch(self, tx, request).await
    }

    async fn condemn(&self, tx: &mut Transaction<'c, Sqlite>) {
        condemn::condemn(tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }
}
