//! The guard: a setting of the transaction that counts what was registered in it (R12).
//!
//! `set_config(…, true)` is local to the transaction: rolling back to a savepoint restores the value
//! of that time, and the end of the transaction removes it. So at commit the count tells, without
//! reading a row, whether every registration is still there.

/// The setting for a transaction that is this deep in others; 1 is the outermost.
///
/// Each depth counts its own, since each guard knows only what was registered through itself.
pub(crate) fn setting(depth: usize) -> String {
    match depth {
        1 => "inbox.registered".to_owned(),
        _ => format!("inbox.registered_{depth}"),
    }
}

/// The SQLSTATE of a guard that does not hold: invalid_text_representation.
pub(crate) const BROKEN: &str = "22P02";

/// A statement that fails with [`BROKEN`] unless the transaction holds `expected` registrations.
pub(crate) fn statement(depth: usize, expected: usize) -> String {
    crate::statements::without_comments(include_str!("sql/guard.sql"))
        .replace("{setting}", &setting(depth))
        .replace("{expected}", &expected.to_string())
}

/// A statement that counts from nothing again, for the next transaction of this depth.
pub(crate) fn reset(depth: usize) -> String {
    format!("SELECT set_config('{}', '', true)", setting(depth))
}
