//! Ending a transaction, and telling for certain how it ended (R12).

use inbox_core::{BoxFuture, End, Error, Transactional};
use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqliteConnection};
use sqlx_core::transaction::TransactionManager as _;

use super::errors::commit_error;
use super::store::SqlxSqliteStore;
use super::transaction::{Manager, depth, end_all, refuse_lost};
use crate::deferred::complete::prove_completed;
use crate::driver::Driver as _;
use crate::errors::to_error;
use crate::guard::{guard_error, prove_registered};

impl<'c> Transactional<Transaction<'c, Sqlite>> for SqlxSqliteStore {
    fn guard<'a>(&'a self, tx: &'a mut Transaction<'c, Sqlite>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(set_guard(tx, || "guard a transaction".to_owned()))
    }

    /// Commits; of a nested transaction, which is a savepoint, it releases that.
    ///
    /// The driver's own commit answers `Ok` where a nested begin has rolled the transaction back.
    fn commit<'a>(
        &'a self,
        mut tx: Transaction<'c, Sqlite>,
        request: End<'a>,
    ) -> BoxFuture<'a, Result<(), Error>>
    where
        Transaction<'c, Sqlite>: 'a,
    {
        Box::pin(async move {
            if let Err(error) = self.prove(&mut tx, &request).await {
                return Err(given_up(tx, error).await);
            }
            if depth(&tx) > 1 {
                // Nothing is committed yet by a savepoint's release, so no outcome is unknown.
                return tx.commit().await.map_err(|source| to_error(request.doing("commit"), source));
            }
            // Not by `tx.commit()`: where SQLite rolls back at a failed COMMIT, the count is mended.
            match Manager::commit(&mut tx).await {
                Ok(()) => Ok(()),
                Err(source) => Err(given_up(tx, commit_error(request.doing("commit"), source)).await),
            }
        })
    }

    /// Rolls back; of a nested transaction, to its savepoint.
    ///
    /// A transaction that is not the one that was begun is `TransactionLost`. Whether SQLite rolled
    /// it back or somebody committed it is not asked: in either case what ran after the end is
    /// committed, and nothing here counts what that was.
    fn rollback<'a>(
        &'a self,
        mut tx: Transaction<'c, Sqlite>,
        request: End<'a>,
    ) -> BoxFuture<'a, Result<(), Error>>
    where
        Transaction<'c, Sqlite>: 'a,
    {
        Box::pin(async move {
            let doing = || request.doing("roll back");
            let proved = end_guard(&mut tx, "ROLLBACK TO", doing).await;
            match proved {
                Ok(()) => tx.rollback().await.map_err(|source| to_error(doing(), source)),
                Err(error) => Err(given_up(tx, error).await),
            }
        })
    }
}

impl SqlxSqliteStore {
    /// Whether the transaction is the one that was begun, and holds what was registered in it.
    async fn prove(&self, conn: &mut SqliteConnection, request: &End<'_>) -> Result<(), Error> {
        end_guard(conn, "RELEASE", || request.doing("commit")).await?;
        prove_registered(conn, self.sql(), request).await?;
        prove_completed(conn, self.sql(), request).await
    }
}

/// The guard of a transaction that is this deep in others; 1 is the outermost. Each depth has its own,
/// since releasing an outer one would end the inner transactions.
pub(crate) fn guard_at(depth: usize) -> String {
    match depth {
        0 | 1 => "inbox_guard".to_owned(),
        _ => format!("inbox_guard_{depth}"),
    }
}

/// Marks a transaction that the store did not begin; its own have the guard since they began.
pub(crate) async fn set_guard(conn: &mut SqliteConnection, doing: impl Fn() -> String) -> Result<(), Error> {
    // In autocommit a savepoint would begin a transaction of its own.
    refuse_lost(conn, &doing).await?;
    let set = format!("SAVEPOINT {}", guard_at(depth(conn)));
    conn.run(&set).await.map_err(|source| to_error(doing(), source))
}

/// Ends the guard, which is there only in the transaction that was begun.
async fn end_guard(conn: &mut SqliteConnection, verb: &str, doing: impl Fn() -> String) -> Result<(), Error> {
    // First, since until its answer sqlx may still count a nested transaction that was dropped.
    refuse_lost(conn, &doing).await?;
    let end = format!("{verb} {}", guard_at(depth(conn)));
    conn.run(&end).await.map_err(|source| guard_error(doing(), source))
}

/// Ends a transaction that is not to be committed, and mends what sqlx counts, so that the pool gets
/// back a connection that is good for the next.
///
/// Of a nested one only its own savepoint, by the drop: the rest is the outer one's.
async fn given_up(mut tx: Transaction<'_, Sqlite>, error: Error) -> Error {
    if depth(&tx) <= 1 {
        // Fails only where the connection is gone, and then the pool sees it.
        let _ = end_all(&mut tx).await;
    }
    error
}
