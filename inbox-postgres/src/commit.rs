//! Ending a transaction, and telling for certain how it ended (R12).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use inbox_core::{BoxFuture, End, Error, ErrorKind, Transactional};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Transaction};

use crate::{PostgresStore, deferred, errors, guard, transaction};

impl<'c> Transactional<Transaction<'c, Postgres>> for PostgresStore {
    /// Nothing to do: the insert counts in a setting of the transaction.
    fn guard<'a>(&'a self, _tx: &'a mut Transaction<'c, Postgres>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Commits; of a nested transaction, which is a savepoint, it releases that.
    ///
    /// The driver's own commit answers `Ok` for a transaction that an error aborted (the server
    /// turns its COMMIT into a ROLLBACK) and for one that is not there (a warning). Here both are
    /// errors, in the one round trip that a commit takes anyway: a statement that proves the
    /// registrations and fails in an aborted transaction, and COMMIT AND CHAIN, which fails where
    /// no transaction is open. The chained transaction is empty, and its rollback is sent at once
    /// and not waited for.
    fn commit<'a>(
        &'a self,
        tx: Transaction<'c, Postgres>,
        request: End<'a>,
    ) -> BoxFuture<'a, Result<(), Error>>
    where
        Transaction<'c, Postgres>: 'a,
    {
        Box::pin(async move {
            match transaction::depth(&tx) {
                0 => Err(end_lost(tx, request.doing("commit")).await),
                1 => commit_outermost(tx, request).await,
                depth => release_savepoint(tx, depth, request).await,
            }
        })
    }

    /// Rolls back; of a nested transaction, to its savepoint.
    ///
    /// A handler that ran `COMMIT; BEGIN` has left another transaction here, and half an effect is
    /// committed with its registration. So a rollback proves the registrations as a commit does, in
    /// its one round trip; a nested one needs no proof, since its savepoint went with its
    /// transaction. ROLLBACK AND CHAIN fails where no transaction is open; a plain ROLLBACK only
    /// warns, and the driver does not see the warning.
    ///
    /// A registration that a savepoint undid is `TransactionLost` here too. That is a false alarm,
    /// and it is left: who rolls back by hand can ignore it, and in `process` it does not happen,
    /// since the registration is older than any savepoint of the handler's.
    fn rollback<'a>(
        &'a self,
        tx: Transaction<'c, Postgres>,
        request: End<'a>,
    ) -> BoxFuture<'a, Result<(), Error>>
    where
        Transaction<'c, Postgres>: 'a,
    {
        Box::pin(async move {
            let doing = request.doing("roll back");
            match transaction::depth(&tx) {
                0 => Err(end_lost(tx, doing).await),
                1 => roll_back_outermost(self, tx, request).await,
                _ => tx.rollback().await.map_err(|source| errors::error(doing, source)),
            }
        })
    }
}

/// How long the end of a lost transaction may take: what is left running on the connection comes first.
const END_OF_LOST: Duration = Duration::from_secs(5);

/// Ends what may be open on the server of a transaction that sqlx has lost.
///
/// A second nested `begin` that was cancelled has sent a real BEGIN. The driver does not know of
/// it, so it would go back into the pool open, and the next message would commit what is in it.
async fn end_lost(mut tx: Transaction<'_, Postgres>, doing: String) -> Error {
    let end = async {
        // Where an error of an earlier statement is still to be read, nothing was sent.
        for _ in 0..3 {
            // A mere warning if nothing is open. Other errors are the connection's, and the pool sees them.
            if sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.is_ok() {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(END_OF_LOST, end).await;
    transaction::lost(doing)
}

/// How many rows the setting counts: what was registered, and what was completed.
fn proved(request: &End<'_>) -> usize {
    request.registered.len() + request.completed.len()
}

async fn commit_outermost(mut tx: Transaction<'_, Postgres>, request: End<'_>) -> Result<(), Error> {
    let guard = guard::statement(1, proved(&request));
    match run_past_a_late_error(&mut tx, format!("{guard};\nCOMMIT AND CHAIN")).await {
        Ok(()) => {
            end_chained(&mut tx).await;
            Ok(())
        }
        Err(failed) => Err(failed.into_error(request.doing("commit"), errors::commit_error)),
    }
}

async fn roll_back_outermost(
    store: &PostgresStore,
    mut tx: Transaction<'_, Postgres>,
    request: End<'_>,
) -> Result<(), Error> {
    let guard = guard::statement(1, proved(&request));
    let mut ended = run(&mut tx, format!("{guard};\nROLLBACK AND CHAIN")).await;
    if ended.as_ref().is_err_and(Failed::may_be_late) {
        ended = run(&mut tx, format!("{guard};\nROLLBACK AND CHAIN")).await;
    }
    // What a failing handler leaves, as a rule: an aborted transaction answers no guard.
    let aborted = ended.as_ref().is_err_and(|failed| errors::has_code(&failed.source, errors::ABORTED));
    if aborted {
        ended = run(&mut tx, "ROLLBACK AND CHAIN".to_owned()).await;
    }
    ended.map_err(|failed| failed.into_error(request.doing("roll back"), errors::error))?;
    let proved = match aborted && !request.completed.is_empty() {
        true => deferred::refuse_completed(store, &mut tx, &request).await,
        false => Ok(()),
    };
    end_chained(&mut tx).await;
    proved
}

/// Nothing is committed yet by a savepoint's release, so no outcome is unknown.
async fn release_savepoint(
    mut tx: Transaction<'_, Postgres>,
    depth: usize,
    request: End<'_>,
) -> Result<(), Error> {
    let guard = guard::statement(depth, proved(&request));
    let reset = guard::reset(depth);
    run_past_a_late_error(&mut tx, format!("{guard};\n{reset}"))
        .await
        .map_err(|failed| failed.into_error(request.doing("commit"), errors::error))?;
    tx.commit().await.map_err(|source| errors::error(request.doing("commit"), source))
}

/// How a guard and what follows it failed.
struct Failed {
    /// The guard itself had been passed.
    after_guard: bool,
    source: sqlx::Error,
}

impl Failed {
    /// Whether the error may be an earlier statement's: sqlx reports the error of a statement that
    /// was given up (a timeout around it) as the next one's, and then the next one was not sent.
    ///
    /// Not where the guard itself can have raised it, nor where the connection is gone.
    fn may_be_late(&self) -> bool {
        !self.after_guard
            && self.source.as_database_error().is_some()
            && !errors::has_code(&self.source, guard::BROKEN)
            && !errors::has_code(&self.source, errors::ABORTED)
            && !errors::is_lost_connection(&self.source)
    }

    /// A deferred constraint can fail at COMMIT with any code, so the guard's own code means a lost
    /// registration only where the guard was not passed.
    fn into_error(self, doing: String, otherwise: fn(String, sqlx::Error) -> Error) -> Error {
        if !self.after_guard && errors::has_code(&self.source, guard::BROKEN) {
            return Error::new(ErrorKind::TransactionLost, doing)
                .with_detail("a registration made in it is gone: rolled back to a savepoint, or ended with an earlier transaction")
                .with_source(self.source);
        }
        otherwise(doing, self.source)
    }
}

/// Runs a guard and what follows it; once more where it was not sent because of a late error.
///
/// The second answer counts, unless it only says that the late error aborted the transaction.
async fn run_past_a_late_error(conn: &mut PgConnection, sql: String) -> Result<(), Failed> {
    match run(conn, sql.clone()).await {
        Err(late) if late.may_be_late() => match run(conn, sql).await {
            Err(again) if !again.after_guard && errors::has_code(&again.source, errors::ABORTED) => Err(late),
            answer => answer,
        },
        answer => answer,
    }
}

/// Runs a guard and what follows it as one simple query: after an error the server skips the rest.
async fn run(conn: &mut PgConnection, sql: String) -> Result<(), Failed> {
    // Safe to send: the text holds a count and a depth of ours.
    let mut answers = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(conn);
    let mut after_guard = false;
    while let Some(answer) = poll_fn(|cx| Pin::new(&mut answers).poll_next(cx)).await {
        answer.map_err(|source| Failed { after_guard, source })?;
        after_guard = true;
    }
    Ok(())
}

/// Ends the empty transaction that … AND CHAIN began, without waiting for the answer.
///
/// A pool does that when it takes the connection back; a connection of the caller's would stay
/// "idle in transaction" until its next use. The answer is read with the next use.
async fn end_chained(conn: &mut PgConnection) {
    transaction::queue_rollback(conn);
    let mut ping = pin!(conn.ping());
    poll_fn(|cx| {
        // An error here is the connection's, and its next use reports it: what was sent before is certain.
        let _ = ping.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}
