//! Condemning a transaction that we do not own (R9).

use sqlx::MySqlConnection;

use crate::errors;

/// Ends the session, and with it the transaction; needs no privilege.
///
/// MySQL has no state in which a transaction can only be rolled back. A ROLLBACK would leave a session
/// in which every later statement is committed alone; the caller, who may have swallowed the error,
/// would go on writing.
const CONDEMN: &str = "KILL CONNECTION_ID()";

/// Sees to it that nothing more can be written through the transaction.
pub(crate) async fn condemn(conn: &mut MySqlConnection) {
    // Errors of statements that were given up come first, one at a time, and with each nothing was sent.
    // MySQL's own answer, 1317, may be such an error too, so only the end of the session counts.
    for _ in 0..LATE_ERRORS {
        let killed = sqlx::raw_sql(CONDEMN).execute(&mut *conn).await;
        if killed.as_ref().is_err_and(errors::is_end_of_session) {
            break;
        }
    }
}

/// A given-up statement, and the rollback of each nested transaction that was dropped after it.
const LATE_ERRORS: usize = 10;
