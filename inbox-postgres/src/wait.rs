//! What is left of a wait, as PostgreSQL takes it (R6).

use inbox_core::Deadline;

/// What is left: whole milliseconds in 31 bits, and never 0, which would be no limit.
pub(crate) fn left_ms(wait: &Deadline) -> i32 {
    i32::try_from(wait.left().as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX).max(1)
}

/// What is left, as a value of `lock_timeout`.
pub(crate) fn lock_timeout(wait: &Deadline) -> String {
    left_ms(wait).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn r06_no_wait_is_a_millisecond_because_zero_would_be_no_limit() {
        assert_eq!(left_ms(&Deadline::after(Duration::ZERO)), 1);
        assert_eq!(left_ms(&Deadline::after(Duration::from_nanos(1))), 1);
    }

    #[test]
    fn a_wait_beyond_what_the_server_takes_is_the_longest_it_takes() {
        assert_eq!(left_ms(&Deadline::after(Duration::MAX)), i32::MAX);
    }
}
