//! Beginning a transaction of our own, so that a cancelled call leaves none open (R17).

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Error, ErrorKind};
use sqlx::{MySql, MySqlPool, SqlSafeStr as _, Transaction};
use tracing::Instrument;

use crate::{MySqlStore, errors, transaction};

/// Begins, and sets the guard, in one round trip.
///
/// ROLLBACK first, since START TRANSACTION would *commit* what somebody left open on the connection.
const BEGIN: &str = "ROLLBACK AND NO CHAIN NO RELEASE; START TRANSACTION; SAVEPOINT inbox_guard";

#[async_trait]
impl Begin for MySqlStore {
    type Tx = Transaction<'static, MySql>;

    /// Begins at the session's default level; the wait is the pool's `acquire_timeout`, not ours.
    async fn begin(&self, _wait: Option<Duration>) -> Result<Self::Tx, Error> {
        begin(self.pool(), "begin a transaction").await
    }
}

/// Begins in a task of its own: sqlx 0.9 leaks an open transaction into the pool where `begin` is
/// cancelled between sending the statement and reading its answer. A task whose caller has gone
/// finishes, and drops the transaction.
pub(crate) async fn begin(pool: &MySqlPool, doing: &str) -> Result<Transaction<'static, MySql>, Error> {
    let pool = pool.clone();
    let task = tokio::spawn(async move { begin_on_a_clean_connection(&pool).await }.in_current_span());
    match task.await {
        Ok(begun) => begun.map_err(|source| errors::error(doing, source)),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(failed) => Err(Error::new(ErrorKind::Unavailable, doing)
            .with_detail("the runtime is shutting down")
            .with_source(failed)),
    }
}

/// What was leaked on a connection (with `mem::forget`, say) sqlx counts as open, and takes ours for one
/// inside it.
async fn begin_on_a_clean_connection(pool: &MySqlPool) -> Result<Transaction<'static, MySql>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    while transaction::depth(&conn) > 0 {
        transaction::queue_rollback(&mut conn);
    }
    Transaction::begin(conn, Some(BEGIN.into_sql_str())).await
}
