//! Ends a transaction and tells for certain how it ended (R12).

use inbox_core::{BoxFuture, Consumer, End, Error, Lease, MessageId, Transactional};
use rusqlite::Connection;

use super::driver::{at_once, is_registered};
use super::errors::to_error;
use super::guard;
use super::offload::offload;
use super::store::SqliteStore;
use super::tx::SqliteTx;
use crate::deferred::complete::{prove_completed, still_leased};
use crate::errors::{commit_error, lost};
use crate::guard::{guard_error, prove_registered};
use crate::statements::Statements;

impl Transactional<SqliteTx> for SqliteStore {
    /// Nothing to do: a `SqliteTx` is always begun by a store, and marked then.
    fn guard<'a>(&'a self, _tx: &'a mut SqliteTx) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn commit<'a>(&'a self, mut tx: SqliteTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        SqliteTx: 'a,
    {
        Box::pin(async move {
            let (sql, owned) = (self.sql.clone(), OwnedEnd::from(&request));
            tx.run(|| request.doing("commit"), move |conn| commit_on(conn, &sql, &owned.borrow())).await?;
            if tx.has_news() {
                self.connections.news().tell();
            }
            Ok(())
        })
    }

    fn rollback<'a>(&'a self, mut tx: SqliteTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        SqliteTx: 'a,
    {
        Box::pin(async move {
            if tx.is_rolled_back() {
                return Ok(());
            }
            let doing = || request.doing("roll back");
            let (sql, owned) = (self.sql.clone(), OwnedEnd::from(&request));
            let Some(ended) = tx.take_ended() else {
                return tx.run(doing, move |conn| roll_back_open(conn, &owned.borrow())).await;
            };
            let proof =
                offload(move || prove_rolled_back(ended.conn(), &sql, &owned.borrow(), ended.changed));
            proof.await.map_err(|source| lost(doing(), NO_PROOF).with_source(source))?
        })
    }
}

/// An [`End`] that can go to another thread.
struct OwnedEnd {
    consumer: Consumer,
    registered: Vec<MessageId>,
    completed: Vec<Lease>,
}

impl From<&End<'_>> for OwnedEnd {
    fn from(end: &End<'_>) -> Self {
        Self {
            consumer: end.consumer.clone(),
            registered: end.registered.to_vec(),
            completed: end.completed.to_vec(),
        }
    }
}

impl OwnedEnd {
    fn borrow(&self) -> End<'_> {
        End::new(&self.consumer, &self.registered).completed(&self.completed)
    }
}

/// Commits if the transaction is still the one that was begun and holds every id of `request`.
///
/// After an error the caller rolls back whatever is still open.
pub(crate) fn commit_on(conn: &Connection, sql: &Statements, request: &End<'_>) -> Result<(), Error> {
    if conn.is_autocommit() {
        return Err(lost(request.doing("commit"), "no transaction is open any more"));
    }
    at_once(prove_registered(&mut &*conn, sql, request))?;
    at_once(prove_completed(&mut &*conn, sql, request))?;
    guard::release(conn).map_err(|source| guard_error(request.doing("commit"), source))?;
    conn.execute_batch("COMMIT").map_err(|source| commit_error(request.doing("commit"), source))
}

/// Rolls back, or if the transaction is over already, proves that it was rolled back.
///
/// `changes` is what `total_changes` said after the last call of the inbox.
pub(crate) fn rollback_on(
    conn: &Connection,
    sql: &Statements,
    request: &End<'_>,
    changes: u64,
) -> Result<(), Error> {
    if conn.is_autocommit() {
        return prove_rolled_back(conn, sql, request, conn.total_changes() != changes);
    }
    roll_back_open(conn, request)
}

/// Rolls back, and reports if the open transaction is not the one that was begun.
fn roll_back_open(conn: &Connection, request: &End<'_>) -> Result<(), Error> {
    let doing = || request.doing("roll back");
    let guard = guard::roll_back_to(conn);
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK").map_err(|source| to_error(doing(), source))?;
    }
    guard.map_err(|source| guard_error(doing(), source))
}

const NO_PROOF: &str = "it was over already, and nothing proves that it was rolled back";

/// `Ok` if a transaction that is over already was rolled back, and nothing was committed after it.
///
/// Not every end is a raw COMMIT: SQLite itself rolls back after a full disk, an I/O error, or a
/// conflict under `OR ROLLBACK` (<https://sqlite.org/lang_transaction.html>). A handler that met
/// one and failed with it should hear of that, not of a lost transaction, and its message is new
/// when it comes again. The registrations tell: they are committed if the transaction is; and so do the
/// kept messages that were completed: while they bear their tokens the completion is not committed.
///
/// They do not tell of what ran in autocommit after the end, until the call returned. SQLite does
/// not say when in the call a row was `changed`, before the end or after it, so any change in that
/// call leaves it open whether an effect is committed.
fn prove_rolled_back(
    conn: &Connection,
    sql: &Statements,
    request: &End<'_>,
    changed: bool,
) -> Result<(), Error> {
    let doing = || request.doing("roll back");
    if request.registered.is_empty() && request.completed.is_empty() {
        return Err(lost(doing(), NO_PROOF));
    }
    let registered = request.registered.iter().map(|id| is_registered(conn, sql, request.consumer, id));
    let completed = request
        .completed
        .iter()
        .map(|lease| at_once(still_leased(&mut &*conn, sql, request.consumer, lease)).map(|leased| !leased));
    for is_committed in registered.chain(completed) {
        match is_committed {
            Ok(false) => {}
            Ok(true) => return Err(lost(doing(), "it was over already, and committed")),
            Err(source) => return Err(lost(doing(), NO_PROOF).with_source(source)),
        }
    }
    if changed {
        return Err(lost(
            doing(),
            "it was rolled back in a call that changed rows, some perhaps after the rollback: let a call return after such an error",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use inbox_core::ErrorKind;
    use rusqlite::ffi;

    use super::super::errors::raise;
    use super::*;

    #[test]
    fn r12_a_failed_commit_is_unknown_only_where_the_record_may_be_written() {
        for (code, kind) in [
            (ffi::SQLITE_BUSY, ErrorKind::Busy),
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, ErrorKind::Backend),
            (ffi::SQLITE_FULL, ErrorKind::Backend),
            (ffi::SQLITE_IOERR_FSYNC, ErrorKind::UnknownOutcome),
            (ffi::SQLITE_IOERR_WRITE, ErrorKind::UnknownOutcome),
            (ffi::SQLITE_IOERR_DELETE, ErrorKind::UnknownOutcome),
            (ffi::SQLITE_NOMEM, ErrorKind::UnknownOutcome),
        ] {
            assert_eq!(commit_error("commit", raise(code, "")).kind(), kind, "{code}");
        }
    }
}
