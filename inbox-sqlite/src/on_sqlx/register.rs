//! Registering in the transaction that is open on a connection: proves that it is, sets the guard, inserts.

use inbox_core::{Error, Guard, Register, RegisterBatch, Registration};
use sqlx::sqlite::SqliteConnection;

use super::commit::set_guard;
use super::store::SqlxSqliteStore;
use super::transaction::refuse_lost;

/// Registers a message.
pub(crate) async fn register_if_new(
    store: &SqlxSqliteStore,
    conn: &mut SqliteConnection,
    request: &Register<'_>,
) -> Result<Registration, Error> {
    prepare(conn, request.guard, || request.doing()).await?;
    crate::register::register(conn, store.sql(), request).await
}

/// Registers many messages.
pub(crate) async fn register_batch(
    store: &SqlxSqliteStore,
    conn: &mut SqliteConnection,
    request: &RegisterBatch<'_>,
) -> Result<Vec<Registration>, Error> {
    prepare(conn, request.guard, || request.doing()).await?;
    crate::batch::register_batch(conn, store.sql(), request).await
}

/// Proves that a transaction is open, and marks it where the store has not begun it.
async fn prepare(conn: &mut SqliteConnection, guard: Guard, doing: impl Fn() -> String) -> Result<(), Error> {
    match guard {
        Guard::Opens => set_guard(conn, doing).await,
        _ => refuse_lost(conn, doing).await,
    }
}
