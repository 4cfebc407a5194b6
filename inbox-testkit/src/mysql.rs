//! Building blocks for a [`Stand`](crate::suite::Stand) and a [`Probe`](crate::suite::Probe) on MySQL
//! and MariaDB through sqlx: an effect table, the wait view, kills, isolation levels.
//!
//! All of them work for any store whose transaction is sqlx's, over whatever table layout.

use std::time::{Duration, Instant};

use inbox_core::BoxError;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlPool, Row, Transaction};

use crate::suite::{Level, Need};

/// sqlx's transaction on MySQL and MariaDB.
pub type MySqlTx = Transaction<'static, MySql>;

/// The isolation levels of InnoDB. None of them refuses a commit: SERIALIZABLE locks what it reads, and
/// keeps a snapshot for what it writes (MariaDB's `innodb_snapshot_isolation`).
pub const LEVELS: [Level; 4] = [
    Level { name: "read_uncommitted", snapshot: false, serializable: false },
    Level { name: "read_committed", snapshot: false, serializable: false },
    Level { name: "repeatable_read", snapshot: true, serializable: false },
    Level { name: "serializable", snapshot: true, serializable: false },
];

/// What these building blocks offer to a probe, besides `Schema` and `SwallowedInserts`, which
/// depend on the store's table, and `OpenTransactions`, which needs a server's performance schema.
///
/// No `ShadowTable`: here a temporary table hides a qualified name as well.
pub const OFFERS: [Need; 6] =
    [Need::Sql, Need::WaitView, Need::Kill, Need::SnapshotLevel, Need::AbortingSql, Need::Settings];

/// What a deadlock does: the transaction is rolled back, and the statement fails.
pub const ABORTING_SQL: &str = "ROLLBACK; SIGNAL SQLSTATE '45000'";

/// A small pool, which is what a case needs.
///
/// # Errors
///
/// sqlx's, if the server cannot be reached.
pub async fn pool(url: &str) -> Result<MySqlPool, sqlx::Error> {
    MySqlPoolOptions::new().max_connections(10).acquire_timeout(Duration::from_secs(30)).connect(url).await
}

/// Creates the table of effects.
///
/// # Errors
///
/// sqlx's.
pub async fn create_effects(pool: &MySqlPool) -> Result<(), sqlx::Error> {
    let create = "CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(600) NOT NULL, KEY (name)) \
                  ENGINE = InnoDB";
    pool.execute(create).await.map(drop)
}

/// Writes one effect.
///
/// # Errors
///
/// sqlx's.
pub async fn write_effect(tx: &mut MySqlTx, name: &str) -> Result<(), BoxError> {
    sqlx::query("INSERT INTO effect (name) VALUES (?)").bind(name.as_bytes()).execute(&mut **tx).await?;
    Ok(())
}

/// Counts the committed effects of a name.
///
/// # Errors
///
/// sqlx's.
pub async fn count_effects(pool: &MySqlPool, name: &str) -> Result<i64, BoxError> {
    let count = sqlx::query_scalar("SELECT count(*) FROM effect WHERE name = ?").bind(name.as_bytes());
    Ok(count.fetch_one(pool).await?)
}

/// Begins a transaction at a level.
///
/// # Errors
///
/// sqlx's.
pub async fn begin_at(pool: &MySqlPool, level: &Level) -> Result<MySqlTx, BoxError> {
    let level = level.name.replace('_', " ");
    let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    Ok(pool.begin_with(AssertSqlSafe(begin)).await?)
}

/// Runs statements in a transaction, as text.
///
/// # Errors
///
/// sqlx's.
pub async fn execute(tx: &mut MySqlTx, sql: &str) -> Result<(), BoxError> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **tx).await?;
    Ok(())
}

/// Runs statements beside any transaction.
///
/// # Errors
///
/// sqlx's.
pub async fn execute_beside(pool: &MySqlPool, sql: &str) -> Result<(), BoxError> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
    Ok(())
}

/// The id of the transaction's connection.
///
/// # Errors
///
/// sqlx's.
pub async fn session(tx: &mut MySqlTx) -> Result<String, BoxError> {
    let id: u64 = sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut **tx).await?;
    Ok(id.to_string())
}

/// Whether a connection waits for a lock of another one.
///
/// MySQL's performance schema knows at once. MariaDB's is off by default, so there the monitor's text
/// is read. Not `information_schema.innodb_trx`: it shows a copy that is renewed only once nobody has
/// read it for 100 ms.
///
/// # Errors
///
/// sqlx's.
pub async fn is_waiting(pool: &MySqlPool, session: &str) -> Result<bool, BoxError> {
    let id: u64 = session.parse()?;
    let mut connection = pool.acquire().await?;
    let mariadb: i64 = sqlx::query_scalar("SELECT 0 /*M! + 1 */").fetch_one(&mut *connection).await?;
    if mariadb == 0 {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*)
               FROM performance_schema.data_lock_waits AS wait
               JOIN performance_schema.threads AS thread ON thread.thread_id = wait.requesting_thread_id
              WHERE thread.processlist_id = ?",
        )
        .bind(id)
        .fetch_one(&mut *connection)
        .await?;
        return Ok(waiting > 0);
    }
    let row = sqlx::raw_sql("SHOW ENGINE INNODB STATUS").fetch_one(&mut *connection).await?;
    let monitor: String = row.try_get("Status")?;
    let thread = format!("thread id {id},");
    // What precedes the list may tell of the latest deadlock.
    let mut transactions = monitor.split("---TRANSACTION").skip(1);
    let of_session = transactions.find(|transaction| transaction.contains(&thread));
    Ok(of_session.is_some_and(|transaction| transaction.contains("LOCK WAIT")))
}

/// Kills a connection and returns when it is gone, which is after its rollback.
///
/// # Errors
///
/// sqlx's, or after 10 s.
pub async fn kill(pool: &MySqlPool, session: &str) -> Result<(), BoxError> {
    let id: u64 = session.parse()?;
    execute_beside(pool, &format!("KILL {id}")).await?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        let left: i64 =
            sqlx::query_scalar("SELECT count(*) FROM information_schema.processlist WHERE id = ?")
                .bind(id)
                .fetch_one(pool)
                .await?;
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(format!("connection {id} did not end within 10 s").into())
}

/// The settings that an inbox might touch.
///
/// # Errors
///
/// sqlx's.
pub async fn settings(tx: &mut MySqlTx) -> Result<String, BoxError> {
    let settings: String = sqlx::query_scalar(
        "SELECT CAST(CONCAT_WS(', ', @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@autocommit, @@sql_mode,
                               @@time_zone, @@unique_checks, @@foreign_key_checks, @@completion_type,
                               @@character_set_client, @@collation_connection, DATABASE(),
                               IFNULL(@inbox_wait, 'unset')) AS CHAR)",
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(settings)
}

/// How many transactions of other connections to this database are open, by the performance schema.
///
/// # Errors
///
/// sqlx's.
pub async fn open_transactions(pool: &MySqlPool) -> Result<u64, BoxError> {
    let open: i64 = sqlx::query_scalar(
        "SELECT count(*)
           FROM performance_schema.events_transactions_current AS event
           JOIN performance_schema.threads AS thread ON thread.thread_id = event.thread_id
          WHERE event.state = 'ACTIVE' AND event.autocommit = 'NO'
            AND thread.processlist_db = DATABASE() AND thread.processlist_id <> CONNECTION_ID()",
    )
    .fetch_one(pool)
    .await?;
    Ok(open.try_into()?)
}

/// Creates the table by which a store built for tests (`with_test_clock`) moves its clock.
///
/// # Errors
///
/// sqlx's.
pub async fn create_test_clock(pool: &MySqlPool) -> Result<(), sqlx::Error> {
    let create = "CREATE TABLE inbox_test_clock (shift_micros BIGINT NOT NULL) ENGINE = InnoDB;
                  INSERT INTO inbox_test_clock VALUES (0)";
    sqlx::raw_sql(create).execute(pool).await.map(drop)
}

/// Moves that clock forward.
///
/// # Errors
///
/// sqlx's.
pub async fn advance_test_clock(pool: &MySqlPool, by: Duration) -> Result<(), BoxError> {
    let advance = sqlx::query("UPDATE inbox_test_clock SET shift_micros = shift_micros + ?");
    advance.bind(inbox_core::duration_micros(by)).execute(pool).await?;
    Ok(())
}
