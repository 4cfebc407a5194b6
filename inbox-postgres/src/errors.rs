//! Which kind an error of PostgreSQL or sqlx is: decided by code, never by text (R13).

use inbox_core::{Deadline, Error, ErrorKind};
use sqlx::error::DatabaseError;

/// in_failed_sql_transaction: an earlier error aborted the transaction.
pub(crate) const ABORTED: &str = "25P02";

/// unique_violation.
const NOT_UNIQUE: &str = "23505";

/// object_not_in_prerequisite_state.
const NOT_READY: &str = "55000";

/// insufficient_privilege.
pub(crate) const NO_RIGHT: &str = "42501";

/// The codes that have a kind of their own; a code of two characters is a whole class.
///
/// From the manual's [appendix A](https://www.postgresql.org/docs/current/errcodes-appendix.html).
const KINDS: &[(&str, ErrorKind)] = &[
    ("40001", ErrorKind::Retryable),       // serialization_failure
    ("40P01", ErrorKind::Retryable),       // deadlock_detected
    ("55P03", ErrorKind::Busy),            // lock_not_available: lock_timeout
    ("25006", ErrorKind::Unavailable),     // read_only_sql_transaction: a standby, or a failover under way
    ("25P03", ErrorKind::Unavailable),     // idle_in_transaction_session_timeout
    ("25P04", ErrorKind::Unavailable),     // transaction_timeout
    ("57P01", ErrorKind::Unavailable),     // admin_shutdown
    ("57P02", ErrorKind::Unavailable),     // crash_shutdown
    ("57P03", ErrorKind::Unavailable),     // cannot_connect_now
    ("57P05", ErrorKind::Unavailable),     // idle_session_timeout
    ("53300", ErrorKind::Unavailable),     // too_many_connections
    ("08", ErrorKind::Unavailable),        // connection exceptions
    ("28", ErrorKind::Unavailable),        // invalid_authorization_specification: the login
    (ABORTED, ErrorKind::Aborted),         // in_failed_sql_transaction
    ("25P01", ErrorKind::TransactionLost), // no_active_sql_transaction
    ("3B001", ErrorKind::TransactionLost), // invalid_savepoint_specification: ended with its transaction
    ("42P01", ErrorKind::Schema),          // undefined_table
    ("42703", ErrorKind::Schema),          // undefined_column
    ("42P10", ErrorKind::Schema),          // no unique index for ON CONFLICT
    (NOT_READY, ErrorKind::Schema),        // a deferrable one
    (NO_RIGHT, ErrorKind::Schema),         // insufficient_privilege
    ("3F000", ErrorKind::Schema),          // invalid_schema_name
];

/// The kind of an error that sqlx reports, outside of a commit.
///
/// | SQLSTATE | kind |
/// |---|---|
/// | 40001, 40P01 | `Retryable` |
/// | 55P03 | `Busy` |
/// | 25006, 25P03, 25P04, 57P01, 57P02, 57P03, 57P05, 53300, classes 08 and 28 | `Unavailable` |
/// | 25P02 | `Aborted` |
/// | 25P01, 3B001 | `TransactionLost` |
/// | 42P01, 42703, 42P10, 42501, 3F000, 55000 | `Schema` |
/// | any other | `Backend` |
///
/// Without a code: I/O, TLS, options that do not fit the server, and errors of the pool are `Unavailable`, any
/// other is `Backend`.
///
/// A pool of sqlx tries a refused connection again by itself until its `acquire_timeout` is over,
/// 30 s by default. Without a server `Unavailable` comes that late, and
/// [`process`](inbox_core::Inbox::process) makes about two attempts in the 60 s of its policy. Set
/// a lower `acquire_timeout` to hear of it sooner.
///
/// 57014 (a cancelled statement) is `Backend`: the inbox bounds its waits by `lock_timeout` alone,
/// so a `statement_timeout` or a cancel was somebody else's.
///
/// Two codes depend on the statement: 23505 is `Retryable` where a message is registered (a REINDEX
/// CONCURRENTLY is under way), and 55000 is `Unavailable` where a transaction begins (the database
/// takes no connections).
///
/// At commit, losing the connection (I/O, 40003, 57P01 to 57P03, class 08) is `UnknownOutcome`.
pub fn kind_of(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Database(error) => error.code().map_or(ErrorKind::Backend, |code| kind_of_code(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Configuration(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => ErrorKind::Unavailable,
        _ => ErrorKind::Backend,
    }
}

/// Whether running the whole transaction again may succeed.
///
/// For handlers' own errors, in [`Inbox::process_retrying`](inbox_core::Inbox::process_retrying).
pub fn is_retryable(error: &sqlx::Error) -> bool {
    kind_of(error).is_retryable()
}

fn kind_of_code(code: &str) -> ErrorKind {
    KINDS
        .iter()
        .find(|(known, _)| code == *known || known.len() == 2 && code.starts_with(known))
        .map_or(ErrorKind::Backend, |&(_, kind)| kind)
}

/// An error of the inbox, met while `doing` something, with the remedy as its detail.
pub(crate) fn error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    with_detail(kind_of(&source), doing, source, None)
}

/// The same of a call that waits for other transactions no longer than `wait`.
pub(crate) fn error_within(wait: &Deadline, doing: impl Into<String>, source: sqlx::Error) -> Error {
    with_detail(kind_of(&source), doing, source, Some(wait))
}

/// An error of a statement on the table of kept messages.
pub(crate) fn message_error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    of_messages(source, |source| error(doing, source))
}

/// The same of a call that waits for other transactions no longer than `wait`.
pub(crate) fn message_error_within(wait: &Deadline, doing: impl Into<String>, source: sqlx::Error) -> Error {
    of_messages(source, |source| error_within(wait, doing, source))
}

fn of_messages(source: sqlx::Error, error: impl FnOnce(sqlx::Error) -> Error) -> Error {
    let remedy = match source.as_database_error().and_then(DatabaseError::code).as_deref() {
        Some("42P01" | "3F000") => Some("run create_message_schema, or the text of messages_ddl"),
        Some(NO_RIGHT) => {
            Some("this role lacks a right on the kept messages; see the text of message_grants")
        }
        Some("42703") => Some("run verify_messages, which names what is wrong"),
        _ => None,
    };
    let error = error(source);
    match remedy {
        Some(remedy) => error.with_detail(remedy),
        None => error,
    }
}

/// An error of a statement that registers.
///
/// While REINDEX CONCURRENTLY swaps the key's index, ON CONFLICT may meet a row in one that it does
/// not arbitrate on and fails with 23505. No other unique index passes `verify`, so the next run
/// will find the row: a unique violation is a passing one here, and nowhere else.
pub(crate) fn register_error(wait: &Deadline, doing: impl Into<String>, source: sqlx::Error) -> Error {
    let kind = if has_code(&source, NOT_UNIQUE) { ErrorKind::Retryable } else { kind_of(&source) };
    with_detail(kind, doing, source, Some(wait))
}

/// An error met before any statement on the table was sent.
///
/// A database that is being closed or dropped refuses connections with 55000, which is no word on
/// the table.
pub(crate) fn begin_error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    let kind = if has_code(&source, NOT_READY) { ErrorKind::Unavailable } else { kind_of(&source) };
    with_detail(kind, doing, source, None)
}

/// An error met once COMMIT was on its way: a lost connection leaves its outcome unknown (R12).
pub(crate) fn commit_error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    with_detail(kind_at_commit(&source), doing, source, None)
}

fn with_detail(
    kind: ErrorKind,
    doing: impl Into<String>,
    source: sqlx::Error,
    wait: Option<&Deadline>,
) -> Error {
    let detail = match kind {
        ErrorKind::Busy => wait.map(Deadline::describe),
        ErrorKind::Schema => Some(remedy(&source).to_owned()),
        ErrorKind::Unavailable => refused_login(&source).map(str::to_owned),
        _ => None,
    };
    let error = Error::new(kind, doing).with_source(source);
    match detail {
        Some(detail) => error.with_detail(detail),
        None => error,
    }
}

/// What to do about a connection that is not had however often it is tried.
fn refused_login(error: &sqlx::Error) -> Option<&'static str> {
    match error {
        sqlx::Error::Configuration(_) => Some("the pool's options do not fit the server; see the source"),
        _ => error
            .as_database_error()
            .and_then(DatabaseError::code)
            .is_some_and(|code| code.starts_with("28"))
            .then_some("the server refused the login; check user, password and host in the pool's URL"),
    }
}

/// What to do about an error of kind `Schema`.
fn remedy(error: &sqlx::Error) -> &'static str {
    match error.as_database_error().and_then(DatabaseError::code).as_deref() {
        Some("42P01" | "3F000") => "run create_schema, or the text of ddl",
        Some(NO_RIGHT) => {
            "this role lacks a right; see the text of grants, and for forgetting of operator_grants"
        }
        _ => "run verify, which names what is wrong",
    }
}

fn kind_at_commit(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => ErrorKind::UnknownOutcome,
        sqlx::Error::Database(database) => match database.code().as_deref() {
            Some("40003" | "57P01" | "57P02" | "57P03") => ErrorKind::UnknownOutcome,
            Some(code) if code.starts_with("08") => ErrorKind::UnknownOutcome,
            _ => kind_of(error),
        },
        _ => kind_of(error),
    }
}

/// Whether an error says that the connection, or the session on the server, is gone.
pub(crate) fn is_lost_connection(error: &sqlx::Error) -> bool {
    kind_at_commit(error) == ErrorKind::UnknownOutcome
}

/// Whether an error carries this SQLSTATE.
pub(crate) fn has_code(error: &sqlx::Error, code: &str) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|found| found == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_kinds_are_told_by_code() {
        for (kind, codes) in [
            (ErrorKind::Retryable, &["40001", "40P01"][..]),
            (ErrorKind::Busy, &["55P03"]),
            (
                ErrorKind::Unavailable,
                &[
                    "25006", "25P03", "25P04", "57P01", "57P02", "57P03", "57P05", "53300", "08000", "08006",
                    "08P01", "28P01",
                ],
            ),
            (ErrorKind::Aborted, &["25P02"]),
            (ErrorKind::TransactionLost, &["25P01", "3B001"]),
            (ErrorKind::Schema, &["42P01", "42703", "42P10", "42501", "3F000", "55000"]),
            (ErrorKind::Backend, &["57014", "23505", "23514", "22012", "XX000", "0", "0A000", ""]),
        ] {
            for code in codes {
                assert_eq!(kind_of_code(code), kind, "{code:?}");
            }
        }
    }

    #[test]
    fn r13_errors_without_a_code_are_told_by_their_variant() {
        assert_eq!(kind_of(&sqlx::Error::PoolTimedOut), ErrorKind::Unavailable);
        assert_eq!(kind_of(&sqlx::Error::PoolClosed), ErrorKind::Unavailable);
        assert_eq!(
            kind_of(&sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into())),
            ErrorKind::Unavailable
        );
        assert_eq!(kind_of(&sqlx::Error::RowNotFound), ErrorKind::Backend);
    }

    #[test]
    fn r12_a_connection_lost_at_commit_is_an_unknown_outcome() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(commit_error("commit", lost()).kind(), ErrorKind::UnknownOutcome);
        assert_eq!(error("register", lost()).kind(), ErrorKind::Unavailable);
    }
}
