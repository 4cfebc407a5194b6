//! [`Lane`]: how a single statement is sent, so that it is one round trip where it can be.

use inbox_core::Error;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Transaction};

use crate::{PostgresStore, begin, errors, transaction};

/// A connection for one statement.
pub(crate) enum Lane {
    /// The statement is its own transaction.
    Alone(PoolConnection<Postgres>),
    /// Behind a pooler an unprepared statement's two round trips may be served by two servers, unless they
    /// are in a transaction.
    InTransaction(Transaction<'static, Postgres>),
}

impl Lane {
    pub(crate) async fn of(store: &PostgresStore, doing: &str) -> Result<Self, Error> {
        if store.prepared() {
            let conn = store.pool().acquire().await.map_err(|source| errors::begin_error(doing, source))?;
            // One that was leaked in a transaction is put right by beginning, which refuses it.
            if transaction::depth(&conn) == 0 {
                return Ok(Self::Alone(conn));
            }
            drop(conn);
        }
        Ok(Self::InTransaction(begin::begin(store.pool(), doing).await?))
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
