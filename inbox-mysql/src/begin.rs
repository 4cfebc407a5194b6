//! Beginning a transaction of our own, so that a cancelled call leaves none open (R17).

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, Error, in_own_task};
use sqlx::{AssertSqlSafe, MySql, MySqlPool, SqlSafeStr as _, Transaction};

use crate::{MySqlStore, errors, guard, transaction};

/// Begins, and sets the guard, in one round trip.
///
/// ROLLBACK first, since START TRANSACTION would *commit* what somebody left open on the connection.
fn begin_guarded() -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("{}; START TRANSACTION; {}", transaction::ROLLBACK, guard::set(1)))
}

#[async_trait]
impl Begin for MySqlStore {
    type Tx = Transaction<'static, MySql>;

    /// Begins at the session's default level; the wait is the pool's `acquire_timeout`, not ours.
    async fn begin(&self, _wait: Option<Duration>) -> Result<Self::Tx, Error> {
        begin(self.pool(), "begin a transaction").await
    }
}

/// Begins, also where the caller goes away meanwhile.
pub(crate) async fn begin(pool: &MySqlPool, doing: &str) -> Result<Transaction<'static, MySql>, Error> {
    let pool = pool.clone();
    let begun = in_own_task(doing, async move { begin_on_a_clean_connection(&pool).await }).await?;
    begun.map_err(|source| errors::error(doing, source))
}

/// What was leaked on a connection (with `mem::forget`, say) sqlx counts as open, and takes ours for one
/// inside it.
async fn begin_on_a_clean_connection(pool: &MySqlPool) -> Result<Transaction<'static, MySql>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    while transaction::depth(&conn) > 0 {
        transaction::queue_rollback(&mut conn);
    }
    Transaction::begin(conn, Some(begin_guarded().into_sql_str())).await
}
