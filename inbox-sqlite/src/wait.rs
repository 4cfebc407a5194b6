//! The bounded wait as SQLite takes it (R6).

use std::time::Duration;

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
}
