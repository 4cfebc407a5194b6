//! The bounded wait (R6): how much of it is left, and what SQLite takes as one.

use std::time::{Duration, Instant};

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

/// A busy timeout as SQLite takes it: whole milliseconds in a C `int`, about 24 days.
///
/// A part of a millisecond counts as one, since zero would be no wait.
pub(crate) fn busy_timeout_ms(wait: Duration) -> u32 {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    u32::try_from(millis).unwrap_or(u32::MAX).min(i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_too_long_or_too_short_for_sqlite() {
        for (wait, millis) in [
            (Duration::MAX, i32::MAX as u32),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(1001), 2),
            (Duration::ZERO, 0),
        ] {
            assert_eq!(busy_timeout_ms(wait), millis);
        }
    }

    #[test]
    fn a_deadline_never_overflows() {
        assert!(Deadline::after(Duration::MAX).left() > Duration::from_secs(1));
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
