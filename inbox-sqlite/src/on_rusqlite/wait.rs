//! SQLite's share of the bounded wait, on rusqlite's connection (R6).

use std::time::Duration;

use rusqlite::Connection;

use crate::wait::busy_timeout_ms;

/// Tells SQLite how long a statement waits for other connections' locks.
pub(crate) fn set_busy_timeout(conn: &Connection, wait: Duration) -> rusqlite::Result<()> {
    // rusqlite panics above what SQLite takes.
    conn.busy_timeout(Duration::from_millis(busy_timeout_ms(wait).into()))
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
}
