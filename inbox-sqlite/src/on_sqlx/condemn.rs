//! Condemning a transaction that we do not own (R9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::sqlite::SqliteConnection;

use super::transaction::{depth, refuse_lost};

/// Sees to it that the transaction can only be rolled back.
///
/// SQLite asks the commit hook before each COMMIT, and rolls back if it refuses. No savepoint lifts
/// that. The rollback hook does, so the connection's next transaction commits as ever; both hooks
/// stay on it, without effect.
pub(crate) async fn condemn(conn: &mut SqliteConnection) {
    // Where sqlx has none, no rollback would lift it from the connection's next transaction.
    if refuse_lost(conn, String::new).await.is_err() && depth(conn) == 0 {
        return;
    }
    let condemned = Arc::new(AtomicBool::new(true));
    let lifted = Arc::clone(&condemned);
    // Without a handle the worker thread is gone, and the transaction with it.
    if let Ok(mut handle) = conn.lock_handle().await {
        handle.set_commit_hook(move || !condemned.load(Ordering::Relaxed));
        handle.set_rollback_hook(move || lifted.store(false, Ordering::Relaxed));
    }
}
