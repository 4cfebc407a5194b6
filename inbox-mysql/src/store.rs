//! [`MySqlStore`]: a pool, a table, and how long to wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Capabilities, DEFAULT_WAIT, Error, ErrorKind, InboxStore, Register, RegisterBatch, Registration,
    TableName, Waits,
};
use sqlx::{MySql, MySqlPool, Transaction};

use crate::deferred::MessageStatements;
use crate::statements::Statements;
use crate::{batch, condemn, dialect, register, schema};

/// The inbox's store on MySQL 8.0.13 or later and MariaDB 10.6 or later, through sqlx. Cloning is cheap.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use inbox_core::{Consumer, Inbox, Message, MessageId};
/// use inbox_mysql::MySqlStore;
///
/// let pool = sqlx::MySqlPool::connect("mysql://app@localhost/shop").await?;
/// let inbox = Inbox::new(MySqlStore::open(pool).await?, Consumer::new("loyalty")?);
///
/// let message = Message::new(MessageId::new("payment-17")?, "PaymentConfirmed")?;
/// inbox
///     .process(&message, async |tx| {
///         sqlx::query("UPDATE account SET points = points + 10 WHERE id = 7").execute(&mut **tx).await?;
///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
///     })
///     .await
///     .map_err(|error| error.to_string())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MySqlStore {
    pool: MySqlPool,
    table: TableName,
    statements: Arc<Statements>,
    messages: Arc<MessageStatements>,
    dialect: Arc<dialect::Known>,
    side: Option<MySqlPool>,
    wait: Duration,
}

impl MySqlStore {
    /// A store on the table `inbox` of the database that the pool's URL names. Does no I/O and checks
    /// nothing: see [`open`](Self::open), [`verify`](Self::verify) and
    /// [`create_schema`](Self::create_schema).
    ///
    /// The pool serves `process`, `begin` and the operator's calls; transactions that you pass in
    /// may come from anywhere, as long as they are of the same database.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] if the pool's URL names no database, or one whose name is no
    /// [`Identifier`](inbox_core::Identifier): give the table by [`on_table`](Self::on_table).
    pub fn new(pool: MySqlPool) -> Result<Self, Error> {
        let options = pool.connect_options();
        let Some(database) = options.get_database() else {
            return Err(Error::new(ErrorKind::Schema, "find the inbox table").with_detail(
                "the pool's URL names no database; name one, or give the table to MySqlStore::on_table",
            ));
        };
        let table = TableName::new(database, schema::DEFAULT_TABLE)?;
        Ok(Self::on_table(pool, table))
    }

    /// A store on a table of any database. Does no I/O and checks nothing.
    pub fn on_table(pool: MySqlPool, table: TableName) -> Self {
        let statements = Arc::new(Statements::new(&table));
        let messages = Arc::new(MessageStatements::new(&table, false));
        Self { pool, table, statements, messages, dialect: Arc::default(), side: None, wait: DEFAULT_WAIT }
    }

    /// A store as of [`new`](Self::new), [verified](Self::verify); warnings go to `tracing`.
    ///
    /// For another table call [`on_table`](Self::on_table), the setters and [`verify`](Self::verify).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`verify`](Self::verify).
    pub async fn open(pool: MySqlPool) -> Result<Self, Error> {
        let store = Self::new(pool)?;
        store.verify().await?;
        Ok(store)
    }

    /// Uses another table.
    #[must_use]
    pub fn with_table(mut self, table: TableName) -> Self {
        self.statements = Arc::new(Statements::new(&table));
        self.messages = Arc::new(self.messages.on(&table));
        self.table = table;
        self
    }

    /// Bounds the wait for another transaction that holds an id, where a call does not set its own
    /// (R6). [`DEFAULT_WAIT`] unless set.
    ///
    /// MySQL counts in whole seconds, from 1 s (which zero means too), and for each row of a batch
    /// anew. MariaDB counts in microseconds, from 50 ms (zero is no wait).
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Bounds MySQL's waits exactly, from 50 ms on (which no wait means too), and those of a batch as a
    /// whole: past the bound, a connection of this pool ends the waiting statement by KILL QUERY. Without it MySQL counts as
    /// [`with_wait`](Self::with_wait) says. MariaDB needs none, and uses none.
    ///
    /// The pool's account must be the same, or have the right CONNECTION_ADMIN, and it must reach
    /// **the very server** of the transactions, past any proxy: connections are told by number, and
    /// another server's number would be somebody else's statement. One connection is enough; where
    /// none is free within a second, MySQL's own bound holds, two seconds later.
    #[must_use]
    pub fn with_side_pool(mut self, side: MySqlPool) -> Self {
        self.side = Some(side);
        self
    }

    /// Adds to the clock of the deferred inbox what the table `inbox_test_clock` of the same database says.
    #[cfg(feature = "test-clock")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(mut self) -> Self {
        self.messages = Arc::new(MessageStatements::new(&self.table, true));
        self
    }

    /// The pool.
    pub fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    pub(crate) fn messages(&self) -> &MessageStatements {
        &self.messages
    }

    pub(crate) fn dialect(&self) -> &dialect::Known {
        &self.dialect
    }

    pub(crate) fn side(&self) -> Option<&MySqlPool> {
        self.side.as_ref()
    }

    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// All that the contract names, waiting where a message is registered; MySQL's own bound of the
    /// wait is one in whole seconds.
    pub(crate) fn all_capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::all(Waits::WhenRegistering);
        capabilities.wait_resolution = match self.side {
            Some(_) => Duration::from_millis(50),
            None => Duration::from_secs(1),
        };
        capabilities
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStore")
            .field("table", &self.table)
            .field("wait", &self.wait)
            .field("side", &self.side.is_some())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<'c> InboxStore<Transaction<'c, MySql>> for MySqlStore {
    async fn register_if_new(
        &self,
        tx: &mut Transaction<'c, MySql>,
        request: &Register<'_>,
    ) -> Result<Registration, Error> {
        register::register_if_new(self, tx, request).await
    }

    async fn register_batch(
        &self,
        tx: &mut Transaction<'c, MySql>,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        batch::register_batch(self, tx, request).await
    }

    async fn condemn(&self, tx: &mut Transaction<'c, MySql>) {
        condemn::condemn(tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        self.all_capabilities()
    }
}
