//! What is left of a wait, as MySQL and MariaDB take it (R6).

use std::time::{Duration, Instant};

use inbox_core::Deadline;

use crate::dialect::Dialect;
use crate::script::Script;

/// A limit on the whole statement must leave time to run one that waits for nobody.
const SHORTEST_STATEMENT: Duration = Duration::from_millis(50);

/// The longest lock wait that both servers take, in seconds.
const LONGEST: u64 = 100_000_000;

/// Adds a statement to a script with the bound of what is left; answers where it stands. The session's settings are as before once the script is done.
///
/// MariaDB has a form of statement for that. MySQL counts in whole seconds, from one, in a
/// setting of the session, whose value stays in a variable meanwhile: one that is found there was
/// left by a call that failed or was given up, and is the right one to restore.
///
/// `spare` is added for who ends the wait himself, and has the server's bound for the worst case.
pub(crate) fn bounded(
    wait: &Deadline,
    dialect: Dialect,
    spare: Duration,
    script: Script,
    statement: String,
) -> (Script, usize) {
    let left = wait.left().saturating_add(spare);
    let before = script.len();
    match dialect {
        Dialect::MariaDb => (script.then(format!("{}{statement}", for_statement(left))), before),
        Dialect::MySql => (script.then(set_session(left)).then(statement).then(RESTORE), before + 1),
    }
}

/// Restores the session's settings after an error, after which the script has not come to it.
pub(crate) fn restore(dialect: Dialect) -> Script {
    match dialect {
        Dialect::MariaDb => Script::new(),
        Dialect::MySql => Script::new().then(RESTORE),
    }
}

/// When a statement is ended from a side connection; None beyond what a clock counts.
pub(crate) fn end(wait: &Deadline) -> Option<Instant> {
    wait.started().checked_add(wait.bound().max(SHORTEST_STATEMENT))
}

/// What is left, for settings in whole seconds, of which MySQL's start at one.
pub(crate) fn seconds_left(wait: &Deadline) -> u64 {
    whole_seconds(wait.left()).clamp(1, 31_536_000)
}

/// Restores MySQL's setting; after an error the script has not come to it.
pub(crate) const RESTORE: &str = "SET innodb_lock_wait_timeout = CAST(IFNULL(@inbox_wait, @@innodb_lock_wait_timeout) AS UNSIGNED), @inbox_wait = NULL";

fn set_session(left: Duration) -> String {
    format!(
        "SET @inbox_wait = IFNULL(@inbox_wait, @@innodb_lock_wait_timeout), innodb_lock_wait_timeout = {}",
        whole_seconds(left).max(1)
    )
}

/// Zero is no wait to the one setting, and no limit to the other.
fn for_statement(left: Duration) -> String {
    if left.is_zero() {
        return "SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR ".to_owned();
    }
    let limit = left.clamp(SHORTEST_STATEMENT, Duration::from_secs(31_536_000));
    format!(
        "SET STATEMENT max_statement_time = {}.{:06}, innodb_lock_wait_timeout = {} FOR ",
        limit.as_secs(),
        limit.subsec_micros(),
        whole_seconds(left),
    )
}

/// Rounded up, so that the setting never ends a wait before its bound.
fn whole_seconds(left: Duration) -> u64 {
    left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_a_wait_is_rounded_up_to_what_the_server_takes() {
        assert!(set_session(Duration::ZERO).ends_with("= 1"));
        assert!(set_session(Duration::from_millis(1_001)).ends_with("= 2"));
        assert!(set_session(Duration::MAX).ends_with("= 100000000"));
    }

    #[test]
    fn r06_no_wait_is_no_unlimited_statement() {
        assert!(!for_statement(Duration::ZERO).contains("max_statement_time"));
        assert!(for_statement(Duration::from_nanos(1)).contains("max_statement_time = 0.050000"));
        assert!(for_statement(Duration::MAX).contains("max_statement_time = 31536000.000000"));
    }
}
