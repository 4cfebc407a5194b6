//! Beginning a transaction of our own, so that a cancelled call leaves none open (R17).

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Error, ErrorKind, in_own_task};
use sqlx::{PgPool, Postgres, Transaction};

use crate::{PostgresStore, errors, transaction};

#[async_trait]
impl Begin for PostgresStore {
    type Tx = Transaction<'static, Postgres>;

    /// Begins at the session's default level; the wait is the pool's `acquire_timeout`, not ours.
    async fn begin(&self, _wait: Option<Duration>) -> Result<Self::Tx, Error> {
        begin(self.pool(), "begin a transaction").await
    }
}

/// Begins, also where the caller goes away meanwhile.
pub(crate) async fn begin(pool: &PgPool, doing: &str) -> Result<Transaction<'static, Postgres>, Error> {
    let pool = pool.clone();
    let begun = in_own_task(doing, async move { begin_past_leftovers(&pool).await }).await?;
    outermost(begun.map_err(|source| errors::begin_error(doing, source))?, doing)
}

/// The same at READ COMMITTED, whatever level the session has.
pub(crate) async fn begin_read_committed(
    pool: &PgPool,
    doing: &str,
) -> Result<Transaction<'static, Postgres>, Error> {
    let shared = pool.clone();
    let begun = in_own_task(doing, async move {
        match shared.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await {
            Err(failed) if errors::has_code(&failed, errors::ABORTED) => {
                shared.begin_with("ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED").await
            }
            begun => begun,
        }
    });
    match begun.await? {
        // sqlx sends no BEGIN of ours inside a transaction that was leaked; its own puts that right.
        Err(sqlx::Error::InvalidSavePointStatement) => {
            begin(pool, doing).await?;
            Err(leaked(doing))
        }
        begun => begun.map_err(|source| errors::begin_error(doing, source)),
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
    Err(leaked(doing))
}

fn leaked(doing: &str) -> Error {
    Error::new(ErrorKind::Unavailable, doing).with_detail(
        "a transaction was leaked on the pool's connection (with mem::forget, say); it is rolled back now",
    )
}
