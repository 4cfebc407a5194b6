//! Ending a transaction, and telling for certain how it ended (R12).

use std::time::Duration;

use inbox_core::{BoxFuture, End, Error, ErrorKind, Guard, MessageId, Transactional};
use sqlx::{MySql, MySqlConnection, Row, Transaction};

use crate::deferred::{any_done, prove};
use crate::script::{Failed, Script};
use crate::statements::IDS;
use crate::transaction::{COMMIT, ROLLBACK};
use crate::{MySqlStore, errors, guard, transaction};

/// How often a script that ends a transaction is run: once more after a late error.
const RUNS: usize = 2;

impl<'c> Transactional<Transaction<'c, MySql>> for MySqlStore {
    /// Sets the guard's savepoint: one round trip.
    fn guard<'a>(&'a self, tx: &'a mut Transaction<'c, MySql>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let doing = || "put the guard on a transaction".to_owned();
            transaction::refuse_lost(tx, doing)?;
            let set = guard::opening(Guard::Opens, transaction::depth(tx));
            set.run(tx).await.map(drop).map_err(|failed| match failed.is(guard::OPEN_AT, guard::GONE) {
                true => transaction::over(doing(), failed.source),
                false => errors::error(doing(), failed.source),
            })
        })
    }

    /// Commits; of a nested transaction, which is a savepoint, it releases that.
    ///
    /// The driver's own commit answers `Ok` for a transaction that a deadlock rolled back, or that DDL
    /// committed, and every statement after that was committed alone. Here it is an error, in the one
    /// round trip that a commit takes anyway: releasing the guard's savepoint fails where the
    /// transaction is gone, counting the registrations fails where one was undone, and the server
    /// skips the COMMIT after either.
    fn commit<'a>(&'a self, tx: Transaction<'c, MySql>, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        Transaction<'c, MySql>: 'a,
    {
        Box::pin(async move {
            match transaction::depth(&tx) {
                0 => Err(end_lost(tx, request.doing("commit")).await),
                1 => commit_outermost(self, tx, request).await,
                depth => release_savepoint(self, tx, depth, request).await,
            }
        })
    }

    /// Rolls back; of a nested transaction, to its savepoint.
    ///
    /// A handler that ran DDL, or `COMMIT; BEGIN`, has committed half an effect with its registration,
    /// so a rollback looks for the guard as a commit does. A deadlock removes the guard as well, and
    /// there all is well: what tells the two apart is whether the registration is committed.
    fn rollback<'a>(
        &'a self,
        tx: Transaction<'c, MySql>,
        request: End<'a>,
    ) -> BoxFuture<'a, Result<(), Error>>
    where
        Transaction<'c, MySql>: 'a,
    {
        Box::pin(async move {
            let doing = request.doing("roll back");
            match transaction::depth(&tx) {
                0 => Err(end_lost(tx, doing).await),
                1 => roll_back_outermost(self, tx, request).await,
                _ => roll_back_to_savepoint(tx, doing).await,
            }
        })
    }
}

/// How long the end of a lost transaction may take: what is left running on the connection comes first.
const END_OF_LOST: Duration = Duration::from_secs(5);

/// Ends what may be open on the server of a transaction that sqlx has lost.
///
/// A second nested `begin` that was cancelled has sent a real BEGIN. The driver does not know of
/// it, so it would go back into the pool open.
async fn end_lost(mut tx: Transaction<'_, MySql>, doing: String) -> Error {
    let end = async {
        let _ = Script::new().then(ROLLBACK).run_past_late_errors(&mut tx, 3).await;
    };
    let _ = tokio::time::timeout(END_OF_LOST, end).await;
    transaction::lost(doing)
}

async fn commit_outermost(
    store: &MySqlStore,
    mut tx: Transaction<'_, MySql>,
    request: End<'_>,
) -> Result<(), Error> {
    let doing = || request.doing("commit");
    prove_all_but_the_last(store, &mut tx, &request, doing).await?;
    let script = prove_the_last(store, &request, guard::check(1)).then(COMMIT);
    script
        .run_past_late_errors(&mut tx, RUNS)
        .await
        .map_err(|failed| end_error(failed, doing(), errors::commit_error))
    // The driver's own ROLLBACK, which the drop sends with the connection's next use, finds nothing open.
}

/// Nothing is committed yet by a savepoint's release, so no outcome is unknown.
async fn release_savepoint(
    store: &MySqlStore,
    mut tx: Transaction<'_, MySql>,
    depth: usize,
    request: End<'_>,
) -> Result<(), Error> {
    let doing = || request.doing("commit");
    prove_all_but_the_last(store, &mut tx, &request, doing).await?;
    let script = prove_the_last(store, &request, guard::check(depth));
    script
        .run_past_late_errors(&mut tx, RUNS)
        .await
        .map_err(|failed| end_error(failed, doing(), errors::error))?;
    tx.commit().await.map_err(|source| errors::error(doing(), source))
}

/// Without its savepoint the outermost transaction is over, and what became of it is its own matter.
async fn roll_back_to_savepoint(tx: Transaction<'_, MySql>, doing: String) -> Result<(), Error> {
    tx.rollback().await.map_err(|source| match errors::number(&source) {
        Some(guard::GONE) => transaction::over(doing, source),
        _ => errors::error(doing, source),
    })
}

async fn roll_back_outermost(
    store: &MySqlStore,
    mut tx: Transaction<'_, MySql>,
    request: End<'_>,
) -> Result<(), Error> {
    let doing = || request.doing("roll back");
    let script = Script::new().then(guard::check(1)).then(ROLLBACK);
    match script.run_past_late_errors(&mut tx, RUNS).await {
        Ok(()) => Ok(()),
        Err(failed) if failed.is(0, guard::GONE) => {
            let committed = any_committed(store, &mut tx, &request).await;
            if committed.map_err(|source| errors::error(doing(), source))? {
                return Err(transaction::over(doing(), failed.source));
            }
            Ok(())
        }
        Err(failed) => Err(errors::error(doing(), failed.source)),
    }
}

/// Whether a registration, or a completion, of a transaction without its guard is there after a rollback, by the eyes
/// of a transaction that sees only what is committed.
///
/// A copy of the message may have been registered by another transaction in the meantime, so only rows
/// with this session's mark count.
async fn any_committed(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &End<'_>,
) -> Result<bool, sqlx::Error> {
    transaction::begin_reading().run(conn).await.map_err(Failed::into_source)?;
    let found = match find_committed(store, conn, request).await {
        // Unless somebody has taken the message over since and handled it, the completion was committed.
        Ok(false) => any_done(store, conn, request.consumer, request.completed).await,
        found => found,
    };
    Script::new().then(ROLLBACK).run(conn).await.map_err(Failed::into_source)?;
    found
}

async fn find_committed(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &End<'_>,
) -> Result<bool, sqlx::Error> {
    for ids in texts(request.registered).chunks(IDS) {
        let look = Script::new().then(store.statements().committed.of(request.consumer, ids));
        let answers = look.run(conn).await.map_err(Failed::into_source)?;
        let count: i64 = answers[0].rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        if count > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Proves so many registrations beforehand that the rest fits into the commit's own packet.
async fn prove_all_but_the_last(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &End<'_>,
    doing: impl Fn() -> String,
) -> Result<(), Error> {
    let ids = texts(request.undoable);
    let chunks = ids.chunks(IDS);
    for chunk in chunks.clone().take(chunks.len().saturating_sub(1)) {
        let script = Script::new().then(store.statements().prove(request.consumer, chunk));
        script
            .run_past_late_errors(conn, RUNS)
            .await
            .map_err(|failed| end_error(failed, doing(), errors::error))?;
    }
    Ok(())
}

/// Checks the guard, and proves what is left to be proved.
fn prove_the_last(store: &MySqlStore, request: &End<'_>, guard: String) -> Script {
    let ids = texts(request.undoable);
    let last = ids.chunks(IDS).last().map(|chunk| store.statements().prove(request.consumer, chunk));
    let script = Script::new().then(guard).then_some(last);
    prove(store, request.consumer, request.completed).into_iter().fold(script, Script::then)
}

fn texts(ids: &[MessageId]) -> Vec<&str> {
    ids.iter().map(MessageId::as_str).collect()
}

/// The error of a script that checks the guard or proves registrations.
fn end_error(failed: Failed, doing: String, otherwise: fn(String, sqlx::Error) -> Error) -> Error {
    match errors::number(&failed.source) {
        Some(guard::GONE) if failed.at == 0 => transaction::over(doing, failed.source),
        Some(guard::BROKEN) => Error::new(ErrorKind::TransactionLost, doing)
            .with_detail(
                "a registration made in it is gone, or the completion of a message: rolled back to a savepoint, or deleted",
            )
            .with_source(failed.source),
        _ => otherwise(doing, failed.source),
    }
}
