//! Which kind an error of MySQL, MariaDB or sqlx is: decided by number, never by text (R13).

use inbox_core::{Deadline, Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// MariaDB's max_statement_time exceeded.
const STATEMENT_TIMEOUT: u16 = 1969;

/// ER_QUERY_INTERRUPTED: a KILL QUERY.
const INTERRUPTED: u16 = 1317;

/// The numbers that have a kind of their own.
///
/// From the [server error reference](https://dev.mysql.com/doc/mysql-errors/9.0/en/server-error-reference.html)
/// of MySQL and [MariaDB's](https://mariadb.com/kb/en/mariadb-error-code-reference/).
const KINDS: &[(u16, ErrorKind)] = &[
    (1213, ErrorKind::Retryable), // ER_LOCK_DEADLOCK: the whole transaction is rolled back
    (1020, ErrorKind::Retryable), // ER_CHECKREAD: MariaDB's innodb_snapshot_isolation; rolled back
    (1412, ErrorKind::Retryable), // ER_TABLE_DEF_CHANGED: the snapshot is older than an ALTER
    (3101, ErrorKind::Retryable), // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: group replication
    (1205, ErrorKind::Busy),      // ER_LOCK_WAIT_TIMEOUT: only the statement is undone
    (3572, ErrorKind::Busy),      // ER_LOCK_NOWAIT
    (1040, ErrorKind::Unavailable), // ER_CON_COUNT_ERROR
    (1203, ErrorKind::Unavailable), // ER_TOO_MANY_USER_CONNECTIONS
    (1226, ErrorKind::Unavailable), // ER_USER_LIMIT_REACHED: an account's connections, or its statements
    (1045, ErrorKind::Unavailable), // ER_ACCESS_DENIED_ERROR: the login
    (1698, ErrorKind::Unavailable), // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
    (1047, ErrorKind::Unavailable), // ER_UNKNOWN_COM_ERROR: a Galera node that is not ready
    (1053, ErrorKind::Unavailable), // ER_SERVER_SHUTDOWN
    (1290, ErrorKind::Unavailable), // ER_OPTION_PREVENTS_STATEMENT: read_only
    (1836, ErrorKind::Unavailable), // ER_READ_ONLY_MODE
    (1927, ErrorKind::Unavailable), // ER_CONNECTION_KILLED (MariaDB)
    (4031, ErrorKind::Unavailable), // ER_CLIENT_INTERACTION_TIMEOUT
    (1152, ErrorKind::Unavailable), // ER_ABORTING_CONNECTION
    (1158, ErrorKind::Unavailable), // ER_NET_READ_ERROR
    (1159, ErrorKind::Unavailable), // ER_NET_READ_INTERRUPTED
    (1160, ErrorKind::Unavailable), // ER_NET_ERROR_ON_WRITE
    (1161, ErrorKind::Unavailable), // ER_NET_WRITE_INTERRUPTED
    (1146, ErrorKind::Schema),    // ER_NO_SUCH_TABLE
    (1049, ErrorKind::Schema),    // ER_BAD_DB_ERROR
    (1054, ErrorKind::Schema),    // ER_BAD_FIELD_ERROR
    (1142, ErrorKind::Schema),    // ER_TABLEACCESS_DENIED_ERROR
    (1143, ErrorKind::Schema),    // ER_COLUMNACCESS_DENIED_ERROR
    (1176, ErrorKind::Schema),    // ER_KEY_DOES_NOT_EXITS: an index that a statement names
    (1044, ErrorKind::Schema),    // ER_DBACCESS_DENIED_ERROR
];

/// After these the session is gone.
const END_OF_SESSION: &[u16] = &[1053, 1927, 4031, 1152, 1158, 1159, 1160, 1161];

/// ER_ERROR_DURING_COMMIT.
const FAILED_COMMIT: u16 = 1180;

/// The kind of an error that sqlx reports, outside of a commit.
///
/// | number | kind |
/// |---|---|
/// | 1213, 1020, 1412, 3101 | `Retryable` |
/// | 1205, 3572 | `Busy` |
/// | 1040, 1045, 1203, 1226, 1698, 1047, 1053, 1152, 1158 to 1161, 1290, 1836, 1927, 4031 | `Unavailable` |
/// | 1146, 1049, 1054, 1142, 1143, 1044, 1176 | `Schema` |
/// | any other | `Backend` |
///
/// Without a number: I/O, TLS, options that do not fit the server, and errors of the pool are `Unavailable`, any
/// other is `Backend`.
///
/// 1969 (MariaDB's `max_statement_time`) is `Busy` where the inbox set the limit, and `Backend`
/// elsewhere; so are 1317 and 3024, which were somebody else's: a KILL QUERY, a `max_execution_time`.
///
/// At commit, losing the connection (I/O, 1053, 1152, 1158 to 1161, 1927, 4031), 1317 and 1180 are
/// `UnknownOutcome`.
///
/// # What was provoked
///
/// Most of them are provoked in this crate's tests, on MariaDB 10.11 and 11.8 and on MySQL 9:
///
/// | number | MariaDB | MySQL | by |
/// |---|---|---|---|
/// | 1213 | yes | yes | a deadlock while registering and in a handler; three copies of which the first rolls back |
/// | 1020 | 11.8 | | an id, or a row, that is newer than the snapshot |
/// | 1205 | yes | yes | an id that is held past the bound; MariaDB: without a wait; a table that is being altered |
/// | 1969 | yes | | an id that is held past the bound; a limit of the handler's own |
/// | 3572 | 1205 | yes | `NOWAIT` in a handler |
/// | 3024 | | yes | `max_execution_time` in a handler |
/// | 1040 | yes | yes | a server with all its `max_connections` |
/// | 1045 | yes | yes | an account with another password |
/// | 1412 | yes | yes | a table that was altered since the snapshot, read in a handler |
/// | 1226 | yes | yes | an account with all its `MAX_USER_CONNECTIONS` |
/// | 1290 | yes | yes | `read_only`, while registering and at commit |
/// | 1053 | closes | yes | `SHUTDOWN` while a registration waits |
/// | 1927 | itself | | `KILL` of another session closes the connection on both servers; only one that ends itself is told, on MySQL as 1317 |
/// | 1317 | yes | yes | `KILL QUERY` |
/// | 4031 | closes | yes | an idle session past its `wait_timeout` |
/// | 1146, 1054, 1142, 1143, 1044 | yes | yes | tables, columns and rights that are missing |
/// | 1176 | yes | yes | an index of the kept messages that is missing, which a claim names |
/// | 1049 | 1146 | yes | a database that is missing; where one connects to it, on both |
/// | 1305, 1690 | yes | yes | a guard, or a registration, that is gone at commit |
/// | 1792 | yes | yes | a read-only transaction: the caller's doing, and so `Backend` |
///
/// The others are only mapped, since no server of the tests raises them: 3101 (group replication),
/// 1047 (Galera), 1836 (`innodb_read_only`, for which a server needs data that another one made), 1203
/// (`max_user_connections` of the server), 1698 (an account without passwords), 1180 (a failure within the commit), and those of a broken
/// network.
pub fn kind_of(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Database(_) => number(error).map_or(ErrorKind::Backend, kind_of_number),
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

fn kind_of_number(number: u16) -> ErrorKind {
    KINDS.iter().find(|(known, _)| *known == number).map_or(ErrorKind::Backend, |&(_, kind)| kind)
}

/// An error of the inbox, met while `doing` something, with the remedy as its detail.
pub(crate) fn error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    with_detail(kind_of(&source), doing, source, None)
}

/// The same of a statement whose waits were bounded by `wait`.
pub(crate) fn error_within(wait: &Deadline, doing: impl Into<String>, source: sqlx::Error) -> Error {
    let ours = number(&source) == Some(STATEMENT_TIMEOUT);
    let kind = if ours { ErrorKind::Busy } else { kind_of(&source) };
    with_detail(kind, doing, source, Some(wait))
}

/// The same of a statement that a side connection ended at the bound.
pub(crate) fn error_past(wait: &Deadline, doing: impl Into<String>, source: sqlx::Error) -> Error {
    match number(&source) {
        Some(INTERRUPTED) => with_detail(ErrorKind::Busy, doing, source, Some(wait)),
        _ => error_within(wait, doing, source),
    }
}

/// An error met once COMMIT was on its way: a lost connection leaves its outcome unknown (R12).
pub(crate) fn commit_error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    let kind = if is_unknown_outcome(&source) { ErrorKind::UnknownOutcome } else { kind_of(&source) };
    with_detail(kind, doing, source, None)
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
        _ => matches!(number(error), Some(1045 | 1698))
            .then_some("the server refused the login; check user, password and host in the pool's URL"),
    }
}

/// What to do about an error of kind `Schema`.
fn remedy(error: &sqlx::Error) -> &'static str {
    match number(error) {
        Some(1146) => {
            "run create_schema, or the text of ddl; for kept messages create_message_schema, or the text of messages_ddl"
        }
        Some(1049) => "create the database, then run create_schema, or the text of ddl",
        Some(1142 | 1143 | 1044) => {
            "this account lacks a right; see the text of grants, for kept messages of message_grants, and for forgetting of operator_grants"
        }
        _ => "run verify, or verify_messages, which names what is wrong",
    }
}

/// Whether an error says that the connection, or the session on the server, is gone.
pub(crate) fn is_end_of_session(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => number(error).is_some_and(|number| END_OF_SESSION.contains(&number)),
    }
}

/// Whether an error at commit leaves it open what the server has done.
fn is_unknown_outcome(error: &sqlx::Error) -> bool {
    is_end_of_session(error) || matches!(number(error), Some(INTERRUPTED | FAILED_COMMIT))
}

/// The server's number of an error.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let database = error.as_database_error()?;
    database.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_kinds_are_told_by_number() {
        for (kind, numbers) in [
            (ErrorKind::Retryable, &[1213, 1020, 1412, 3101][..]),
            (ErrorKind::Busy, &[1205, 3572]),
            (
                ErrorKind::Unavailable,
                &[1040, 1045, 1698, 1203, 1226, 1047, 1053, 1290, 1836, 1927, 4031, 1152, 1158, 1161],
            ),
            (ErrorKind::Schema, &[1146, 1049, 1054, 1142, 1143, 1044, 1176]),
            (ErrorKind::Backend, &[1062, 1064, 1305, 1317, 1690, 1969, 3024, 3819, 0]),
        ] {
            for number in numbers {
                assert_eq!(kind_of_number(*number), kind, "{number}");
            }
        }
    }

    #[test]
    fn r13_errors_without_a_number_are_told_by_their_variant() {
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
