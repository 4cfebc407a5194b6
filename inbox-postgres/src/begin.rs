//! Beginning a transaction of our own, so that a cancelled call leaves none open (R17).

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Error, ErrorKind};
use sqlx::{PgPool, Postgres, Transaction};
use tracing::Instrument;

use crate::{PostgresStore, errors};

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
    let task = tokio::spawn(async move { pool.begin().await }.in_current_span());
    match task.await {
        Ok(begun) => begun.map_err(|source| errors::error(doing, source)),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(failed) => Err(Error::new(ErrorKind::Unavailable, doing)
            .with_detail("the runtime is shutting down")
            .with_source(failed)),
    }
}
