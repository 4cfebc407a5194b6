//! What sqlx knows of a transaction: how deep it is, and whether it is still there.

use inbox_core::{Error, ErrorKind};
use sqlx::{Database, MySql, MySqlConnection};
use sqlx_core::transaction::TransactionManager;

use crate::script::Script;

/// Without what `completion_type` would add.
pub(crate) const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
pub(crate) const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Begins a transaction that sees committed rows only, whatever the session's own level.
///
/// ROLLBACK first, since START TRANSACTION would *commit* what somebody left open on the connection.
pub(crate) fn begin_reading() -> Script {
    Script::new()
        .then(ROLLBACK)
        .then("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .then("START TRANSACTION READ ONLY")
}

type Manager = <MySql as Database>::TransactionManager;

/// How many transactions sqlx believes to be open on a connection, one inside the other: 0 is none,
/// 1 the outermost, more are savepoints.
pub(crate) fn depth(conn: &MySqlConnection) -> usize {
    Manager::get_transaction_depth(conn)
}

/// Queues the rollback of the innermost transaction, as dropping it does.
pub(crate) fn queue_rollback(conn: &mut MySqlConnection) {
    Manager::start_rollback(conn);
}

/// Refuses a connection on which sqlx has no transaction open, before any SQL.
///
/// A nested `begin` that failed or was cancelled makes sqlx roll back the outer transaction, and
/// every later statement is committed alone (R12).
pub(crate) fn refuse_lost(conn: &MySqlConnection, doing: impl FnOnce() -> String) -> Result<(), Error> {
    if depth(conn) > 0 {
        return Ok(());
    }
    Err(lost(doing()))
}

/// The error where sqlx has no transaction open any more.
pub(crate) fn lost(doing: String) -> Error {
    Error::new(ErrorKind::TransactionLost, doing)
        .with_detail("sqlx has no transaction open here, so a nested begin failed or was cancelled")
}

/// The error where the server has no such transaction open any more.
pub(crate) fn over(doing: String, source: sqlx::Error) -> Error {
    Error::new(ErrorKind::TransactionLost, doing)
        .with_detail(
            "it is over already: rolled back by a deadlock or to an earlier savepoint, or committed by DDL or by SQL; \
             what was written since may be committed",
        )
        .with_source(source)
}
