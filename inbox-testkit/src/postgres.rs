//! Building blocks for a [`Stand`](crate::suite::Stand) and a [`Probe`](crate::suite::Probe) on
//! PostgreSQL through sqlx: an effect table, the wait view, kills, isolation levels.
//!
//! All of them work for any store whose transaction is sqlx's, over whatever table layout.

use std::time::Duration;

use inbox_core::BoxError;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool, Postgres, Transaction};

use crate::suite::{Level, Need};

/// sqlx's transaction on PostgreSQL.
pub type PgTx = Transaction<'static, Postgres>;

/// The isolation levels of PostgreSQL (READ UNCOMMITTED is READ COMMITTED there).
pub const LEVELS: [Level; 3] = [
    Level { name: "read_committed", snapshot: false, serializable: false },
    Level { name: "repeatable_read", snapshot: true, serializable: false },
    Level { name: "serializable", snapshot: true, serializable: true },
];

/// What these building blocks offer to a probe, besides `Schema` and `SwallowedInserts`, which
/// depend on the store's table.
pub const OFFERS: [Need; 8] = [
    Need::Sql,
    Need::WaitView,
    Need::Kill,
    Need::SnapshotLevel,
    Need::SerializableLevel,
    Need::AbortingSql,
    Need::Settings,
    Need::OpenTransactions,
];

/// A statement that fails at run time.
pub const ABORTING_SQL: &str = "SELECT 1 / 0";

/// A small pool, which is what a case needs.
///
/// # Errors
///
/// sqlx's, if the server cannot be reached.
pub async fn pool(url: &str) -> Result<PgPool, sqlx::Error> {
    PgPoolOptions::new().max_connections(10).acquire_timeout(Duration::from_secs(30)).connect(url).await
}

/// Creates the table of effects.
///
/// # Errors
///
/// sqlx's.
pub async fn create_effects(pool: &PgPool) -> Result<(), sqlx::Error> {
    pool.execute("CREATE TABLE effect (name text NOT NULL)").await.map(drop)
}

/// Writes one effect. Not prepared by name, so that it works behind a pooler as well.
///
/// # Errors
///
/// sqlx's.
pub async fn write_effect(tx: &mut PgTx, name: &str) -> Result<(), BoxError> {
    let insert = sqlx::query("INSERT INTO effect (name) VALUES ($1)").bind(name).persistent(false);
    insert.execute(&mut **tx).await?;
    Ok(())
}

/// Counts the committed effects of a name.
///
/// # Errors
///
/// sqlx's.
pub async fn count_effects(pool: &PgPool, name: &str) -> Result<i64, BoxError> {
    let count = sqlx::query_scalar("SELECT count(*) FROM effect WHERE name = $1").bind(name);
    Ok(count.fetch_one(pool).await?)
}

/// Begins a transaction at a level.
///
/// # Errors
///
/// sqlx's.
pub async fn begin_at(pool: &PgPool, level: &Level) -> Result<PgTx, BoxError> {
    let begin = format!("BEGIN ISOLATION LEVEL {}", level.name.replace('_', " "));
    Ok(pool.begin_with(AssertSqlSafe(begin)).await?)
}

/// Runs one statement in a transaction, by the simple protocol.
///
/// # Errors
///
/// sqlx's.
pub async fn execute(tx: &mut PgTx, sql: &str) -> Result<(), BoxError> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **tx).await?;
    Ok(())
}

/// Runs one statement beside any transaction.
///
/// # Errors
///
/// sqlx's.
pub async fn execute_beside(pool: &PgPool, sql: &str) -> Result<(), BoxError> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
    Ok(())
}

/// The process id of the transaction's backend.
///
/// # Errors
///
/// sqlx's.
pub async fn session(tx: &mut PgTx) -> Result<String, BoxError> {
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").persistent(false).fetch_one(&mut **tx).await?;
    Ok(pid.to_string())
}

/// Whether a backend waits for a lock of another one (`pg_blocking_pids`).
///
/// # Errors
///
/// sqlx's.
pub async fn is_waiting(pool: &PgPool, session: &str) -> Result<bool, BoxError> {
    let waits =
        sqlx::query_scalar("SELECT cardinality(pg_blocking_pids($1)) > 0").bind(session.parse::<i32>()?);
    Ok(waits.fetch_one(pool).await?)
}

/// Terminates a backend and returns when it is gone.
///
/// # Errors
///
/// sqlx's.
pub async fn kill(pool: &PgPool, session: &str) -> Result<(), BoxError> {
    let pid: i32 = session.parse()?;
    // The second argument makes the server wait, in milliseconds, until the backend has ended.
    let ended: bool =
        sqlx::query_scalar("SELECT pg_terminate_backend($1, 10000)").bind(pid).fetch_one(pool).await?;
    if ended { Ok(()) } else { Err(format!("backend {pid} did not end within 10 s").into()) }
}

/// The settings that an inbox might touch.
///
/// # Errors
///
/// sqlx's.
pub async fn settings(tx: &mut PgTx) -> Result<String, BoxError> {
    let settings = sqlx::query_scalar(
        "SELECT string_agg(name || '=' || setting, ', ' ORDER BY name) FROM pg_settings
          WHERE name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout', 'search_path',
                         'synchronous_commit', 'TimeZone', 'transaction_read_only', 'session_replication_role',
                         'enable_seqscan', 'client_min_messages', 'deadlock_timeout')",
    );
    Ok(settings.persistent(false).fetch_one(&mut **tx).await?)
}

/// How many sessions of the database are not idle, the asking one not counted.
///
/// # Errors
///
/// sqlx's.
pub async fn open_transactions(pool: &PgPool) -> Result<u64, BoxError> {
    let mut connection = pool.acquire().await?;
    connection.ping().await?;
    let open: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend'
            AND pid <> pg_backend_pid() AND state <> 'idle'",
    )
    .fetch_one(&mut *connection)
    .await?;
    Ok(open.try_into()?)
}

/// Creates the table by which a store built for tests (`with_test_clock`) moves its clock.
///
/// # Errors
///
/// sqlx's.
pub async fn create_test_clock(pool: &PgPool) -> Result<(), sqlx::Error> {
    let create = "CREATE TABLE inbox_test_clock (shift_micros bigint NOT NULL);
                  INSERT INTO inbox_test_clock VALUES (0)";
    sqlx::raw_sql(create).execute(pool).await.map(drop)
}

/// Moves that clock forward.
///
/// # Errors
///
/// sqlx's.
pub async fn advance_test_clock(pool: &PgPool, by: Duration) -> Result<(), BoxError> {
    let advance = sqlx::query("UPDATE inbox_test_clock SET shift_micros = shift_micros + $1");
    advance.bind(inbox_core::duration_micros(by)).execute(pool).await?;
    Ok(())
}
