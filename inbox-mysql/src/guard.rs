//! The guard: a savepoint that lives and dies with the transaction (R12).
//!
//! A COMMIT, also the one that DDL brings along, and a rollback of the whole transaction, also the one
//! of a deadlock, remove every savepoint; releasing one that is gone fails with 1305. A savepoint of
//! the caller's that is *released* takes the younger ones along, so the guard is set before the caller
//! has the transaction in hand. A savepoint of the caller's that is *rolled back to* leaves the older
//! guard, and may undo a registration: those are counted at commit.

use inbox_core::Guard;

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

/// The statements before a registration.
pub(crate) fn opening(guard: Guard, depth: usize) -> Script {
    match guard {
        // Nobody can have ended the transaction.
        Guard::Fresh => Script::new(),
        Guard::Opens => prove_open().then(set(depth)),
        _ => prove_open(),
    }
}

/// Fails with [`GONE`], at [`OPEN_AT`], unless a transaction is open on the server.
///
/// After a deadlock, DDL or a raw COMMIT sqlx goes on counting one, and the registration would be
/// committed alone, without an effect. Outside of a transaction a savepoint is silently none.
pub(crate) fn prove_open() -> Script {
    Script::new().then("SAVEPOINT inbox_open").then("RELEASE SAVEPOINT inbox_open")
}

/// Where the proof of an open transaction fails.
pub(crate) const OPEN_AT: usize = 1;
