//! Condemning a transaction that we do not own (R9).

use sqlx::PgConnection;

/// A statement that fails, so that every later one fails with 25P02 and COMMIT rolls back.
///
/// Its text is for the server's log. What is left to the caller is a savepoint set before the call:
/// rolling back to it lifts the condemnation, and the registration is undone with it.
const CONDEMN: &str = "SELECT 'inbox: condemned after an error, so that it can only be rolled back'::int";

/// Sees to it that the transaction can only be rolled back.
pub(crate) async fn condemn(conn: &mut PgConnection) {
    // Fails by design; and where it fails otherwise, the connection or the transaction is gone.
    let _ = sqlx::raw_sql(CONDEMN).execute(conn).await;
}
