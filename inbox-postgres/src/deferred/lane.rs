//! [`Lane`]: how a single statement is sent, so that it is one round trip where it can be.

use inbox_core::Error;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Transaction};

use crate::{PostgresStore, begin, errors, transaction};

/// A connection for one statement.
pub(crate) enum Lane {
    /// The statement is its own transaction, at the session's level.
    Alone(PoolConnection<Postgres>),
    /// At READ COMMITTED, where sessions begin at another level. And behind a pooler an unprepared
    /// statement's two round trips may be served by two servers, unless they are in a transaction.
    InTransaction(Transaction<'static, Postgres>),
}

impl Lane {
    pub(crate) async fn of(store: &PostgresStore, doing: &str) -> Result<Self, Error> {
        if store.prepared() && reads_committed(store, doing).await? {
            let conn = store.pool().acquire().await.map_err(|source| errors::begin_error(doing, source))?;
            // One that was leaked in a transaction is put right by beginning, which refuses it.
            if transaction::depth(&conn) == 0 {
                return Ok(Self::Alone(conn));
            }
            drop(conn);
        }
        Ok(Self::InTransaction(begin::begin_read_committed(store.pool(), doing).await?))
    }

    pub(crate) fn conn(&mut self) -> &mut PgConnection {
        match self {
            Self::Alone(conn) => conn,
            Self::InTransaction(tx) => tx,
        }
    }

    /// Commits what is not committed yet. Nothing in it can have failed unseen.
    pub(crate) async fn end(self, doing: &str) -> Result<(), Error> {
        match self {
            Self::Alone(_) => Ok(()),
            Self::InTransaction(tx) => {
                tx.commit().await.map_err(|source| errors::commit_error(doing, source))
            }
        }
    }
}

/// Whether a statement alone is at READ COMMITTED, where it waits for a change of its row and goes on, and
/// does not fail with 40001.
///
/// Asked once for a store: the level is the database's, the role's, or one of the pool's options.
async fn reads_committed(store: &PostgresStore, doing: &str) -> Result<bool, Error> {
    if let Some(known) = store.reads_committed().get() {
        return Ok(*known);
    }
    let level: String = sqlx::query_scalar("SELECT current_setting('default_transaction_isolation')")
        .persistent(false)
        .fetch_one(store.pool())
        .await
        .map_err(|source| errors::begin_error(doing, source))?;
    // PostgreSQL's READ UNCOMMITTED is the same.
    let committed = level == "read committed" || level == "read uncommitted";
    Ok(*store.reads_committed().get_or_init(|| committed))
}
