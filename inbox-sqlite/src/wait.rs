//! The bounded wait (R6): how much of it is left, and SQLite's share of it.

use std::time::{Duration, Instant};

use rusqlite::Connection;

/// One wait, shared by all that a call waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    started: Instant,
    wait: Duration,
}

impl Deadline {
    pub(crate) fn after(wait: Duration) -> Self {
        Self { started: Instant::now(), wait }
    }

    /// What is left of the wait; zero is "do not wait".
    pub(crate) fn left(&self) -> Duration {
        self.wait.saturating_sub(self.started.elapsed())
    }

    /// The whole wait.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }
}

/// Tells SQLite how long a statement waits for other connections' locks, in whole milliseconds.
///
/// A part of a millisecond counts as one, since zero would be no wait. SQLite takes a C `int`,
/// about 24 days; rusqlite panics above it.
pub(crate) fn set_busy_timeout(conn: &Connection, wait: Duration) -> rusqlite::Result<()> {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    let millis = u64::try_from(millis).unwrap_or(u64::MAX).min(i32::MAX as u64);
    conn.busy_timeout(Duration::from_millis(millis))
}

/// Bounds the waits on a connection that is not ours, and puts its own timeout back when dropped (R15).
///
/// A connection whose timeout reads 0 either does not wait or has a busy handler of its own; SQLite
/// does not tell which, and a handler that we replaced could not be put back. It is left alone.
pub(crate) struct BoundedWait<'c> {
    conn: &'c Connection,
    before: Duration,
}

impl<'c> BoundedWait<'c> {
    pub(crate) fn new(conn: &'c Connection, wait: Duration) -> rusqlite::Result<Self> {
        let millis: u32 = conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        let bounded = Self { conn, before: Duration::from_millis(millis.into()) };
        if !bounded.is_left_alone() {
            set_busy_timeout(conn, wait)?;
        }
        Ok(bounded)
    }

    /// Whether SQLite does not wait for us, so that the caller has to.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.before.is_zero()
    }
}

impl Drop for BoundedWait<'_> {
    fn drop(&mut self) {
        if !self.is_left_alone() {
            // Cannot fail on an open connection: it stores a number.
            let _ = set_busy_timeout(self.conn, self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy_timeout(conn: &Connection) -> i64 {
        conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn r15_the_callers_timeout_is_put_back() {
        let conn = Connection::open_in_memory().unwrap();
        conn.busy_timeout(Duration::from_millis(1234)).unwrap();

        let bounded = BoundedWait::new(&conn, Duration::from_secs(2)).unwrap();
        assert_eq!(busy_timeout(&conn), 2000);
        drop(bounded);

        assert_eq!(busy_timeout(&conn), 1234);
    }

    #[test]
    fn r15_a_connection_that_may_have_a_handler_is_left_alone() {
        let conn = Connection::open_in_memory().unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        let bounded = BoundedWait::new(&conn, Duration::from_secs(2)).unwrap();
        assert!(bounded.is_left_alone());
        assert_eq!(busy_timeout(&conn), 0);
    }

    #[test]
    fn no_wait_is_too_long_or_too_short_for_sqlite() {
        let conn = Connection::open_in_memory().unwrap();
        for (wait, millis) in [
            (Duration::MAX, i64::from(i32::MAX)),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(1001), 2),
            (Duration::ZERO, 0),
        ] {
            set_busy_timeout(&conn, wait).unwrap();
            assert_eq!(busy_timeout(&conn), millis);
        }
    }

    #[test]
    fn a_deadline_never_overflows() {
        assert!(Deadline::after(Duration::MAX).left() > Duration::from_secs(1));
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
