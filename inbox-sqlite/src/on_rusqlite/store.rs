//! [`SqliteStore`]: the store, and how it is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Capabilities, DEFAULT_WAIT, Deadline, Error, ErrorKind, InboxStore, Register, RegisterBatch,
    Registration, TableName, Waits,
};
use rusqlite::{Connection, ffi};

use super::batch::register_batch;
use super::connections::{Connections, Missing, fault_of_path, hold_statements};
use super::errors::{raise, to_error};
use super::offload::offload;
use super::register::register;
use super::tx::SqliteTx;
#[cfg(feature = "test-clock")]
use crate::statements::Clock;
use crate::statements::Statements;

/// The inbox's table in one SQLite database, and the connections to it.
///
/// Cloning is cheap, and clones share the connections: one writer with a fair queue, and on a file
/// one reader. Make one store per database and process. Other connections and processes may use the
/// same file at the same time.
///
/// Its async methods need a tokio runtime with timers.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub(crate) connections: Arc<Connections>,
    pub(crate) sql: Arc<Statements>,
    pub(crate) wait: Duration,
}

impl SqliteStore {
    /// A store on the table `main.inbox` of a database file, or of a `file:` URI. Does no I/O: the
    /// first use opens the file. Only [`create_schema`](Self::create_schema) creates one.
    ///
    /// Its connections set `journal_mode = WAL` if the file allows, and `synchronous = FULL`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] for a path that is an in-memory database (empty, `:memory:`, a URI with
    /// `mode=memory`), of which each connection would have its own, and for `cache=shared`, `nolock`
    /// and a `vfs` without locks (`unix-none`).
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        if let Some(fault) = fault_of_path(&path) {
            return Err(Error::new(ErrorKind::Schema, format!("use {path:?} as a store")).with_detail(fault));
        }
        Ok(Self::over(Connections::on_file(path)))
    }

    /// As [`new`](Self::new), and verifies the table `main.inbox`. For a table of another name:
    /// `new`, [`with_table`](Self::with_table), [`verify`](Self::verify).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`verify`](Self::verify).
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let store = Self::new(path)?;
        store.verify().await?;
        Ok(store)
    }

    /// A store on an empty in-memory database of its own, for tests. The database lives as long as
    /// the store, its clones and its open transactions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backend`] if SQLite has no memory for it.
    pub fn in_memory() -> Result<Self, Error> {
        let conn =
            Connection::open_in_memory().map_err(|source| to_error("open a database in memory", source))?;
        hold_statements(&conn);
        Self::from_connection(conn)
    }

    /// A store that does everything on one connection of yours, in memory or not: one with attached
    /// files, functions or a key. It is used as it is, except for its busy timeout.
    ///
    /// There is no reader beside the writer then: `find` waits for open transactions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] if a transaction is open on it.
    pub fn from_connection(conn: Connection) -> Result<Self, Error> {
        if !conn.is_autocommit() {
            return Err(Error::new(ErrorKind::Schema, "make a store of a connection")
                .with_detail("a transaction is open on it: commit it or roll it back first"));
        }
        Ok(Self::over(Connections::single(conn)))
    }

    fn over(connections: Connections) -> Self {
        Self {
            connections: Arc::new(connections),
            sql: Arc::new(Statements::new(crate::schema::default_table())),
            wait: DEFAULT_WAIT,
        }
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
    /// In this store the wait is fair; for other connections and processes SQLite polls, at most
    /// every 100 ms. A commit may wait as long again, for readers of a file without a write-ahead
    /// log. [`Inbox::with_wait`](inbox_core::Inbox::with_wait) sets both for one inbox.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.sql.table
    }

    /// Runs `work` on the writer's connection outside of any transaction of the inbox, for the
    /// application's own tables. As any writer, it waits for open transactions of this store.
    ///
    /// # Errors
    ///
    /// Those of `work`; `SQLITE_BUSY` if the connection did not come free within the wait; what
    /// SQLite reports when opening the file; `SQLITE_MISUSE` if `work` leaves a transaction open,
    /// which is then rolled back.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime. A panic in `work` goes on in the caller.
    pub async fn call<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<rusqlite::Error> + Send + 'static,
    {
        let deadline = Deadline::after(self.wait);
        let turn = self.connections.writer().turn(deadline).await?;
        offload(move || {
            let lease = turn.connect(deadline.left(), Missing::Fail)?;
            let result = work(lease.conn());
            if result.is_ok() && lease.in_transaction() {
                return Err(
                    raise(ffi::SQLITE_MISUSE, "the call left a transaction open; it is rolled back").into()
                );
            }
            result
        })
        .await?
    }
}

#[async_trait]
impl InboxStore<SqliteTx> for SqliteStore {
    async fn register_if_new(
        &self,
        tx: &mut SqliteTx,
        request: &Register<'_>,
    ) -> Result<Registration, Error> {
        let sql = Arc::clone(&self.sql);
        let (consumer, message) = (request.consumer.clone(), request.message.clone());
        tx.run(|| request.doing(), move |conn| register(conn, &sql, &Register::new(&consumer, &message)))
            .await
    }

    async fn register_batch(
        &self,
        tx: &mut SqliteTx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        let sql = Arc::clone(&self.sql);
        let (consumer, messages) = (request.consumer.clone(), request.messages.to_vec());
        tx.run(
            || request.doing(),
            move |conn| register_batch(conn, &sql, &RegisterBatch::new(&consumer, &messages)),
        )
        .await
    }

    async fn condemn(&self, tx: &mut SqliteTx) {
        tx.condemn();
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all(Waits::WhenBeginning)
    }
}
