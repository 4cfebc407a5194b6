//! Condemning a transaction that we do not own (R9).

use sqlx::MySqlConnection;

/// Ends the session, and with it the transaction; needs no privilege.
///
/// MySQL has no state in which a transaction can only be rolled back. A ROLLBACK would leave a session
/// in which every later statement is committed alone; the caller, who may have swallowed the error,
/// would go on writing.
const CONDEMN: &str = "KILL CONNECTION_ID()";

/// Sees to it that nothing more can be written through the transaction.
pub(crate) async fn condemn(conn: &mut MySqlConnection) {
    // Answered with an error by design; and where it fails otherwise, the connection is gone.
    let _ = sqlx::raw_sql(CONDEMN).execute(conn).await;
}
