//! Ends a transaction and tells for certain how it ended (R12).

use inbox_core::{BoxFuture, End, Error, ErrorKind, MessageId, Transactional};
use rusqlite::{Connection, OptionalExtension, ffi, params};

use crate::errors::{primary_code, statement_error, to_error};
use crate::guard;
use crate::offload::offload;
use crate::statements::Statements;
use crate::store::SqliteStore;
use crate::tx::SqliteTx;

impl Transactional<SqliteTx> for SqliteStore {
    fn commit<'a>(&'a self, mut tx: SqliteTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        SqliteTx: 'a,
    {
        Box::pin(async move {
            let sql = self.sql.clone();
            let (consumer, registered) = (request.consumer.clone(), request.registered.to_vec());
            tx.run(
                || request.doing("commit"),
                move |conn| commit_on(conn, &sql, &End::new(&consumer, &registered)),
            )
            .await
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
            let sql = self.sql.clone();
            let (consumer, registered) = (request.consumer.clone(), request.registered.to_vec());
            let Some(ended) = tx.take_ended() else {
                return tx
                    .run(doing, move |conn| roll_back_open(conn, &End::new(&consumer, &registered)))
                    .await;
            };
            let proof = offload(move || {
                let request = End::new(&consumer, &registered);
                prove_rolled_back(ended.conn(), &sql, &request, ended.changed)
            });
            proof.await.map_err(|source| lost(doing(), NO_PROOF).with_source(source))?
        })
    }
}

/// Commits if the transaction is still the one that was begun and holds every id of `request`.
///
/// After an error the caller rolls back whatever is still open.
pub(crate) fn commit_on(conn: &Connection, sql: &Statements, request: &End<'_>) -> Result<(), Error> {
    if conn.is_autocommit() {
        return Err(lost(request.doing("commit"), "no transaction is open any more"));
    }
    for id in request.registered {
        let there = is_registered(conn, sql, request, id)
            .map_err(|source| statement_error(conn, sql, request.doing("commit"), source))?;
        if !there {
            return Err(lost(
                request.doing("commit"),
                format!(
                    "message {:?} is not registered any more: a savepoint set before was rolled back to, or the row deleted",
                    id.as_str()
                ),
            ));
        }
    }
    guard::release(conn).map_err(|source| guard_error(request.doing("commit"), source))?;
    conn.execute_batch("COMMIT").map_err(|source| commit_error(request.doing("commit"), source))
}

fn is_registered(
    conn: &Connection,
    sql: &Statements,
    request: &End<'_>,
    id: &MessageId,
) -> rusqlite::Result<bool> {
    let found: Option<i64> = conn
        .prepare_cached(&sql.still_registered)?
        .query_row(params![request.consumer.as_str(), id.as_str()], |row| row.get(0))
        .optional()?;
    Ok(found.is_some())
}

const ANOTHER_TRANSACTION: &str = "another transaction is open than the one that was begun";

fn guard_error(doing: String, source: rusqlite::Error) -> Error {
    match guard::is_gone(&source) {
        true => lost(doing, ANOTHER_TRANSACTION).with_source(source),
        false => to_error(doing, source),
    }
}

fn lost(doing: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::TransactionLost, doing).with_detail(detail)
}

/// The error of a failed COMMIT.
///
/// After most errors SQLite has not committed, and a rollback follows (<https://sqlite.org/lang_transaction.html>):
/// `BUSY` and `CONSTRAINT_FOREIGNKEY` leave the transaction open, `FULL` means that the commit record
/// was not written. `IOERR` and `NOMEM` are another matter. SQLite rolls back in memory, but the
/// commit record may already stand in the log (the sync after it failed), or the rollback journal
/// may already be gone, and recovery after a crash would then find a committed transaction.
fn commit_error(doing: String, source: rusqlite::Error) -> Error {
    match primary_code(&source) {
        Some(ffi::SQLITE_IOERR | ffi::SQLITE_NOMEM) => Error::new(ErrorKind::UnknownOutcome, doing)
            .with_detail("SQLite failed while it wrote the commit")
            .with_source(source),
        _ => to_error(doing, source),
    }
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
/// when it comes again. The registrations tell: they are committed if the transaction is.
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
    if request.registered.is_empty() {
        return Err(lost(doing(), NO_PROOF));
    }
    for id in request.registered {
        match is_registered(conn, sql, request, id) {
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
    use crate::errors::raise;

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
            assert_eq!(commit_error("commit".into(), raise(code, "")).kind(), kind, "{code}");
        }
    }
}
