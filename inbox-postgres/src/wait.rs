//! [`Wait`]: one bound for all the waits of a call (R6).

use std::time::{Duration, Instant};

/// How long a call may still wait for other transactions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    bound: Duration,
    started: Instant,
}

impl Wait {
    /// Starts counting.
    pub(crate) fn start(bound: Duration) -> Self {
        Self { bound, started: Instant::now() }
    }

    /// What is left, as PostgreSQL takes it: whole milliseconds in 31 bits, and never 0, which would be no limit.
    pub(crate) fn left_ms(&self) -> i32 {
        let left = self.bound.saturating_sub(self.started.elapsed());
        i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX).max(1)
    }

    /// What is left, as a value of `lock_timeout`.
    pub(crate) fn lock_timeout(&self) -> String {
        self.left_ms().to_string()
    }

    /// For the text of an error.
    pub(crate) fn describe(&self) -> String {
        format!("the bound of the wait is {:?}", self.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_no_wait_is_a_millisecond_because_zero_would_be_no_limit() {
        assert_eq!(Wait::start(Duration::ZERO).left_ms(), 1);
        assert_eq!(Wait::start(Duration::from_nanos(1)).left_ms(), 1);
    }

    #[test]
    fn a_wait_beyond_what_the_server_takes_is_the_longest_it_takes() {
        assert_eq!(Wait::start(Duration::MAX).left_ms(), i32::MAX);
    }
}
