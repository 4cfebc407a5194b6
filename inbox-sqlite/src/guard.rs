//! The guard: a savepoint that tells whether the transaction is still the one that was begun (R12).
//!
//! It dies with its transaction, so a raw `COMMIT; BEGIN` in a handler, after which SQLite reports a
//! transaction just as before, shows at the end.

use inbox_core::{End, Error};

use crate::driver::Driver;
use crate::errors::{DriverError, ERROR, lost, statement_error, to_error};
use crate::statements::Statements;

/// Set right after BEGIN.
pub(crate) const SET: &str = "SAVEPOINT inbox_guard";

/// Whether the guard is gone: `SQLITE_ERROR` of its statements has one meaning, that there is no such savepoint.
pub(crate) fn is_gone(error: &impl DriverError) -> bool {
    error.primary_code() == Some(ERROR)
}

/// What a statement of the guard failed with.
pub(crate) fn guard_error(doing: String, source: impl DriverError) -> Error {
    match is_gone(&source) {
        true => lost(doing, "another transaction is open than the one that was begun").with_source(source),
        false => to_error(doing, source),
    }
}

/// Refuses a commit of a transaction that does not hold every id of `request` any more.
pub(crate) async fn prove_registered<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &End<'_>,
) -> Result<(), Error> {
    for id in request.registered {
        match conn.is_registered(sql, request.consumer, id).await {
            Ok(true) => {}
            Ok(false) => {
                return Err(lost(
                    request.doing("commit"),
                    format!(
                        "message {:?} is not registered any more: a savepoint set before was rolled back to, or the row deleted",
                        id.as_str()
                    ),
                ));
            }
            Err(source) => return Err(statement_error(conn, sql, request.doing("commit"), source).await),
        }
    }
    Ok(())
}
