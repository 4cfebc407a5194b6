//! Beginning a transaction of our own, so that a cancelled call leaves none open (R17).

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Error, ErrorKind};
use sqlx::{PgPool, Postgres, Transaction};
use tracing::Instrument;

use crate::{PostgresStore, errors, transaction};

#[async_trait]
impl Begin for PostgresStore {
    type Tx = Transaction<'static, Postgres>;

    /// Begins at the session's default level; the wait is the pool's `acquire_timeout`, not ours.
    async fn begin(&self, _wait: Option<Duration>) -> Result<Self::Tx, Error> {
        begin(self.pool(), "begin a transaction").await
    }
}

/// Begins in a task of its own: sqlx 0.9 leaks an open transaction into the pool where `begin` is
/// cancelled between sending BEGIN and reading its answer. A task whose caller has gone finishes,
/// and drops the transaction.
pub(crate) async fn begin(pool: &PgPool, doing: &str) -> Result<Transaction<'static, Postgres>, Error> {
    let pool = pool.clone();
    let task = tokio::spawn(async move { begin_past_leftovers(&pool).await }.in_current_span());
    match task.await {
        Ok(begun) => outermost(begun.map_err(|source| errors::begin_error(doing, source))?, doing),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(failed) => Err(Error::new(ErrorKind::Unavailable, doing)
            .with_detail("the runtime is shutting down")
            .with_source(failed)),
    }
}

/// Begins, also where a raw BEGIN was left on a connection and its transaction has failed.
///
/// Not with ROLLBACK every time: where nothing is open, the server's log has a warning of each.
async fn begin_past_leftovers(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    match pool.begin().await {
        Err(failed) if errors::has_code(&failed, errors::ABORTED) => pool.begin_with("ROLLBACK; BEGIN").await,
        begun => begun,
    }
}

/// Refuses a transaction inside another one that was leaked on the connection, since its commit
/// would be none; and ends both, so that the connection is good for the next.
fn outermost(
    mut tx: Transaction<'static, Postgres>,
    doing: &str,
) -> Result<Transaction<'static, Postgres>, Error> {
    if transaction::depth(&tx) == 1 {
        return Ok(tx);
    }
    while transaction::depth(&tx) > 0 {
        transaction::queue_rollback(&mut tx);
    }
    Err(Error::new(ErrorKind::Unavailable, doing).with_detail(
        "a transaction was leaked on the pool's connection (with mem::forget, say); it is rolled back now",
    ))
}
