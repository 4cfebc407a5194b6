//! What sqlx knows of a transaction, and what SQLite knows.

use inbox_core::Error;
use sqlx::sqlite::{Sqlite, SqliteConnection};
use sqlx::{AssertSqlSafe, Database};
use sqlx_core::transaction::TransactionManager;

use crate::driver::Driver as _;
use crate::errors::{self, DriverError as _, lost, to_error};

/// Commits and rolls back on a connection, without taking the transaction.
pub(crate) type Manager = <Sqlite as Database>::TransactionManager;

/// How many transactions sqlx believes to be open on a connection, one inside the other: 0 is none,
/// 1 the outermost, more are savepoints. Exact once an answer has come, since a worker thread counts.
pub(crate) fn depth(conn: &SqliteConnection) -> usize {
    Manager::get_transaction_depth(conn)
}

/// Refuses a connection on which no transaction is open, before any SQL that would be committed alone.
///
/// sqlx does not see where SQLite rolled back by itself or a handler sent COMMIT, and a nested
/// `begin` that failed or was cancelled has queued the outer ROLLBACK, which the worker thread comes
/// to only now. So SQLite is asked, by a BEGIN: inside a transaction it fails and changes nothing.
pub(crate) async fn refuse_lost(
    conn: &mut SqliteConnection,
    doing: impl FnOnce() -> String,
) -> Result<(), Error> {
    let begun = conn.run("BEGIN").await;
    let in_sqlx = depth(conn) > 0;
    match begun {
        Err(error) if error.primary_code() != Some(errors::ERROR) => Err(to_error(doing(), error)),
        Err(_) if in_sqlx => Ok(()),
        // sqlx has none, so nobody would end it.
        Ok(()) | Err(_) if !in_sqlx => {
            let _ = conn.run("ROLLBACK").await;
            Err(lost(doing(), NONE_IN_SQLX))
        }
        // Left open, so that what runs after this is rolled back with sqlx's transaction.
        _ => Err(lost(doing(), NONE_IN_SQLITE)),
    }
}

const NONE_IN_SQLX: &str = "sqlx has no transaction open here, so a nested begin failed or was cancelled";
const NONE_IN_SQLITE: &str = "SQLite has no transaction open any more: a raw COMMIT or ROLLBACK, a full disk, an I/O \
                              error, a conflict under OR ROLLBACK; what ran after that is committed";

/// Ends whatever is open on a connection, in SQLite and in sqlx's count, so that the next may begin on it.
pub(crate) async fn end_all(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    loop {
        match depth(conn) {
            0 => break,
            // What sqlx is going to end must be there, or it fails and goes on counting it. Where it
            // is there already, the statement fails or is one savepoint more inside what is ended.
            1 => drop(conn.run("BEGIN").await),
            depth => {
                let savepoint = format!("SAVEPOINT _sqlx_savepoint_{}", depth - 1);
                drop(sqlx::raw_sql(AssertSqlSafe(savepoint)).execute(&mut *conn).await);
            }
        }
        Manager::rollback(conn).await?;
    }
    match conn.run("ROLLBACK").await {
        // None was open.
        Err(error) if error.primary_code() == Some(errors::ERROR) => Ok(()),
        ended => ended,
    }
}
