//! [`PostgresStore`]: a pool, a table, and how long to wait.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Capabilities, DEFAULT_WAIT, Error, InboxStore, Register, RegisterBatch, Registration, TableName, Waits,
};
use sqlx::{PgPool, Postgres, Transaction};

use crate::statements::Statements;
use crate::{batch, condemn, deferred, register, schema};

/// The inbox's store on PostgreSQL 12 or later, through sqlx. Cloning is cheap.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use inbox_core::{Consumer, Inbox, Message, MessageId};
/// use inbox_postgres::PostgresStore;
///
/// let pool = sqlx::PgPool::connect("postgres://app@localhost/shop").await?;
/// let inbox = Inbox::new(PostgresStore::open(pool).await?, Consumer::new("loyalty")?);
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
pub struct PostgresStore {
    pool: PgPool,
    table: TableName,
    statements: Arc<Statements>,
    wait: Duration,
    prepared: bool,
    /// The channel on which it tells of messages that were kept.
    channel: Option<Arc<str>>,
    now: Clock,
    /// Whether the pool's sessions begin at READ COMMITTED, once it was asked.
    reads_committed: Arc<OnceLock<bool>>,
}

/// Where the deferred inbox reads the time.
#[derive(Debug, Clone, Copy)]
enum Clock {
    Database,
    /// The database's, moved by what a table beside the inbox's says.
    #[cfg(feature = "test-clock")]
    Moved,
}

impl Clock {
    /// The time as an expression in a statement.
    #[cfg_attr(not(feature = "test-clock"), allow(unused_variables))]
    fn now(self, table: &TableName) -> String {
        match self {
            Self::Database => "clock_timestamp()".to_owned(),
            #[cfg(feature = "test-clock")]
            Self::Moved => format!(
                "(clock_timestamp() + (SELECT shift_micros FROM \"{}\".\"inbox_test_clock\") * interval '1 microsecond')",
                table.schema()
            ),
        }
    }
}

impl PostgresStore {
    /// A store on the table `public.inbox`. Does no I/O and checks nothing: see
    /// [`open`](Self::open), [`verify`](Self::verify) and [`create_schema`](Self::create_schema).
    ///
    /// The pool serves `process`, `begin` and the operator's calls; transactions that you pass in
    /// may come from anywhere, as long as they are of the same database.
    pub fn new(pool: PgPool) -> Self {
        let table = schema::default_table();
        let now = Clock::Database;
        let statements = Arc::new(Statements::new(&table, &now.now(&table)));
        let channel = Some(deferred::channel_of(&table.messages()).into());
        let reads_committed = Arc::default();
        Self { pool, table, statements, wait: DEFAULT_WAIT, prepared: true, channel, now, reads_committed }
    }

    /// A store on the table `public.inbox`, [verified](Self::verify); warnings go to `tracing`.
    ///
    /// For another table, or behind PgBouncer, call [`new`](Self::new), the setters and
    /// [`verify`](Self::verify).
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub async fn open(pool: PgPool) -> Result<Self, Error> {
        let store = Self::new(pool);
        store.verify().await?;
        Ok(store)
    }

    /// Uses another table.
    #[must_use]
    pub fn with_table(mut self, table: TableName) -> Self {
        self.statements = Arc::new(Statements::new(&table, &self.now.now(&table)));
        self.channel = self.channel.map(|_| deferred::channel_of(&table.messages()).into());
        self.table = table;
        self
    }

    /// Reads the deferred inbox's time past the shift in the table `inbox_test_clock`, for tests.
    #[cfg(feature = "test-clock")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(mut self) -> Self {
        self.now = Clock::Moved;
        self.statements = Arc::new(Statements::new(&self.table, &self.now.now(&self.table)));
        self
    }

    /// Sets whether workers are told of messages that are received or replayed, by NOTIFY in that very
    /// transaction, so that they need not wait for their next look. On unless set.
    ///
    /// The server serialises the commits of transactions that notify, over all of its databases: each
    /// holds one lock while it commits, the write to the disk included, so they cannot share one. Switch
    /// it off where thousands of messages a second are received one by one, and let workers look more
    /// often, or receive in batches: a statement notifies once.
    ///
    /// A worker that is told holds one more connection with the pool's options, outside the pool. LISTEN
    /// does not work through a pooler in transaction mode: switch it off there for the workers' store. A
    /// store that is [`unprepared`](Self::unprepared) does not listen, but tells others.
    #[must_use]
    pub fn with_notifications(mut self, notifications: bool) -> Self {
        self.channel = notifications.then(|| deferred::channel_of(&self.table.messages()).into());
        self
    }

    /// Bounds the wait for another transaction that holds an id, where a call does not set its own
    /// (R6). [`DEFAULT_WAIT`] unless set.
    ///
    /// Counted in whole milliseconds, from 1 ms (which zero means too: PostgreSQL takes 0 for no
    /// limit) to about 24 days.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Keeps no prepared statement on the server, for a pooler in transaction mode that does not
    /// track them (PgBouncer before 1.21, or with `max_prepared_statements = 0`): there a statement
    /// that one client has prepared is missing, or another's, on the next server connection.
    ///
    /// Needs a pool of its own, best with
    /// [`statement_cache_capacity(0)`](sqlx::postgres::PgConnectOptions::statement_cache_capacity):
    /// sqlx looks into a connection's cache first, so where the same statement was prepared before,
    /// by a store without this setting on the same pool, that one is used.
    ///
    /// Costs a second round trip for each statement.
    #[must_use]
    pub fn unprepared(mut self) -> Self {
        self.prepared = false;
        self
    }

    /// The pool.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// The channel on which to tell of messages, if at all.
    pub(crate) fn channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    pub(crate) fn reads_committed(&self) -> &OnceLock<bool> {
        &self.reads_committed
    }

    /// What sqlx calls persistent: whether a statement stays prepared on its connection.
    pub(crate) fn prepared(&self) -> bool {
        self.prepared
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("table", &self.table)
            .field("wait", &self.wait)
            .field("prepared", &self.prepared)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// PostgreSQL does all that the contract names, waiting where a message is registered.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities::all(Waits::WhenRegistering)
}

#[async_trait]
impl<'c> InboxStore<Transaction<'c, Postgres>> for PostgresStore {
    async fn register_if_new(
        &self,
        tx: &mut Transaction<'c, Postgres>,
        request: &Register<'_>,
    ) -> Result<Registration, Error> {
        register::register_if_new(self, tx, request).await
    }

    async fn register_batch(
        &self,
        tx: &mut Transaction<'c, Postgres>,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        batch::register_batch(self, tx, request).await
    }

    async fn condemn(&self, tx: &mut Transaction<'c, Postgres>) {
        condemn::condemn(tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }
}
