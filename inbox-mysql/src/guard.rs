//! The guard: a savepoint that lives and dies with the transaction (R12).
//!
//! A COMMIT, also the one that DDL brings along, and a rollback of the whole transaction, also the one
//! of a deadlock, remove every savepoint; releasing one that is gone fails with 1305. A savepoint of
//! the caller's that is *released* takes the younger ones along, so the guard is set before the caller
//! has the transaction in hand. A savepoint of the caller's that is *rolled back to* leaves the older
//! guard, and may undo a registration: those are counted at commit.

use crate::script::Script;

/// ER_SP_DOES_NOT_EXIST: the savepoint is gone.
pub(crate) const GONE: u16 = 1305;

/// ER_DATA_OUT_OF_RANGE: the count of `sql/prove.sql` is not the expected one.
pub(crate) const BROKEN: u16 = 1690;

/// The savepoint of a transaction that is this deep in others; 1 is the outermost.
fn name(depth: usize) -> String {
    match depth {
        1 => "inbox_guard".to_owned(),
        _ => format!("inbox_guard_{depth}"),
    }
}

/// Sets the guard.
pub(crate) fn set(depth: usize) -> String {
    format!("SAVEPOINT {}", name(depth))
}

/// Fails with [`GONE`] unless the guard is there.
pub(crate) fn check(depth: usize) -> String {
    format!("RELEASE SAVEPOINT {}", name(depth))
}

/// A script that starts with setting the guard, if wanted.
pub(crate) fn opening(guard: inbox_core::Guard, depth: usize) -> Script {
    Script::new().then_some((guard == inbox_core::Guard::Opens).then(|| set(depth)))
}
