//! Beginning a transaction of our own: bounded, and so that a cancelled call leaves none open (R6, R17).

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Deadline, Error, ErrorKind, in_own_task};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{Sqlite, SqliteConnection};
use sqlx::{AssertSqlSafe, SqlSafeStr as _, Transaction};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::store::SqlxSqliteStore;
use super::transaction::{depth, end_all};
use crate::driver::Driver as _;
use crate::errors::{self, DriverError as _, to_error};
use crate::guard;
use crate::wait::busy_timeout_ms;

/// IMMEDIATE, since a transaction that reads first cannot wait for the writer later (B51).
const BEGIN: &str = "BEGIN IMMEDIATE";

/// How long a connection may take that nobody has to give up first: one that is idle, or to be opened.
const OPENING: Duration = Duration::from_secs(5);

#[async_trait]
impl Begin for SqlxSqliteStore {
    type Tx = Transaction<'static, Sqlite>;

    async fn begin(&self, wait: Option<Duration>) -> Result<Self::Tx, Error> {
        let wait = wait.unwrap_or(self.wait());
        self.begin_for(wait, format!("begin a transaction for {}", self.table())).await
    }
}

impl SqlxSqliteStore {
    /// Begins in a task of its own: one whose caller has gone puts the busy timeout back all the same,
    /// and drops the transaction.
    pub(crate) async fn begin_for(
        &self,
        wait: Duration,
        doing: String,
    ) -> Result<Transaction<'static, Sqlite>, Error> {
        let (store, deadline) = (self.clone(), Deadline::after(wait));
        let begin = {
            let doing = doing.clone();
            async move { store.begin_in_turn(deadline, &doing).await }
        };
        in_own_task(&doing, begin).await?
    }

    async fn begin_in_turn(
        &self,
        deadline: Deadline,
        doing: &str,
    ) -> Result<Transaction<'static, Sqlite>, Error> {
        let _turn = self.turn(deadline, doing).await?;
        let mut conn = self.acquire(deadline, doing).await?;
        let put_back = become_writer(&mut conn, deadline).await.map_err(|source| to_error(doing, source))?;
        // To sqlx the transaction begins here: its BEGIN may be any statement after which one is open.
        let begin = AssertSqlSafe(format!("{put_back};\n{}", guard::SET)).into_sql_str();
        Transaction::begin(conn, Some(begin)).await.map_err(|source| to_error(doing, source))
    }

    /// Who begins through this store is served in order: inside SQLite any newcomer may be faster.
    async fn turn(&self, deadline: Deadline, doing: &str) -> Result<OwnedSemaphorePermit, Error> {
        let turns = self.turns();
        let turn = match turns.clone().try_acquire_owned() {
            Ok(turn) => Some(turn),
            Err(_) => timeout(deadline.left(), turns.acquire_owned()).await.ok().and_then(Result::ok),
        };
        turn.ok_or_else(|| busy(doing, deadline, "for others that begin through this store"))
    }

    /// A connection of the pool on which nothing is open.
    pub(crate) async fn connection(
        &self,
        deadline: Deadline,
        doing: &str,
    ) -> Result<PoolConnection<Sqlite>, Error> {
        let mut conn = self.acquire(deadline, doing).await?;
        end_leftovers(&mut conn).await.map_err(|source| to_error(doing, source))?;
        Ok(conn)
    }

    async fn acquire(&self, deadline: Deadline, doing: &str) -> Result<PoolConnection<Sqlite>, Error> {
        let pool = self.pool();
        let is_free = pool.num_idle() > 0 || pool.size() < pool.options().get_max_connections();
        let patience = if is_free { deadline.left().max(OPENING) } else { deadline.left() };
        match timeout(patience, pool.acquire()).await {
            Ok(acquired) => acquired.map_err(|source| to_error(doing, source)),
            Err(_) => Err(busy(doing, deadline, "for a connection of the pool, which are all in use")),
        }
    }
}

fn busy(doing: &str, deadline: Deadline, for_what: &str) -> Error {
    Error::new(ErrorKind::Busy, doing).with_detail(format!("waited {:?} {for_what}", deadline.bound()))
}

/// Ends what was left open on a connection: a raw BEGIN, a leaked transaction, or one that SQLite has
/// rolled back while sqlx counts it as open. Left alone, `begin` would be a savepoint, or fail.
async fn end_leftovers(conn: &mut PoolConnection<Sqlite>) -> Result<(), sqlx::Error> {
    let ended = end_all(conn).await;
    if ended.is_err() {
        conn.close_on_drop();
    }
    ended
}

/// Begins as the writer, waiting for it inside SQLite no longer than the deadline. Answers the statement
/// that puts the connection's own busy timeout back, which is still to be run.
async fn become_writer(conn: &mut PoolConnection<Sqlite>, deadline: Deadline) -> Result<String, sqlx::Error> {
    let own =
        conn.rows("PRAGMA busy_timeout", &[]).await?.first().map_or_else(String::new, |row| row.text(0));
    let put_back = format!("PRAGMA busy_timeout = {own}");
    if depth(conn) > 0 {
        end_leftovers(conn).await?;
    }
    let begun = match begin_immediate(conn, deadline).await {
        // A transaction is open already.
        Err(failed) if failed.primary_code() == Some(errors::ERROR) => {
            end_leftovers(conn).await?;
            begin_immediate(conn, deadline).await
        }
        begun => begun,
    };
    if begun.is_err() && conn.run(&put_back).await.is_err() {
        conn.close_on_drop();
    }
    begun.map(|()| put_back)
}

async fn begin_immediate(conn: &mut SqliteConnection, deadline: Deadline) -> Result<(), sqlx::Error> {
    let wait = busy_timeout_ms(deadline.left());
    conn.run(&format!("PRAGMA busy_timeout = {wait};\n{BEGIN}")).await
}
