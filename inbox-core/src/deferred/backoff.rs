//! [`Backoff`]: how long a failed message waits for its next attempt (D5).

use std::time::Duration;

/// A random time between zero and `base · 2^(n-1)` after the n-th attempt, at most `cap` ("full
/// jitter"), so that messages that failed together do not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backoff {
    /// The upper bound of the first wait. 1 s by default.
    pub base: Duration,
    /// The upper bound of any wait. 10 min by default.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_secs(1), cap: Duration::from_secs(600) }
    }
}

impl Backoff {
    /// A backoff that starts at `base` and ends at `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest wait after so many attempts.
    pub fn longest(&self, attempts: u32) -> Duration {
        let doubled = 2u32.saturating_pow(attempts.saturating_sub(1));
        self.base.saturating_mul(doubled).min(self.cap)
    }

    /// A random wait after so many attempts.
    pub fn pause(&self, attempts: u32) -> Duration {
        let longest = u64::try_from(self.longest(attempts).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(fastrand::u64(0..=longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d05_waits_double_up_to_the_cap_and_are_spread_over_all_of_it() {
        let backoff = Backoff::default();
        let longest: Vec<_> = [0, 1, 2, 3, 10, 11, u32::MAX].map(|n| backoff.longest(n).as_secs()).into();
        assert_eq!(longest, [1, 1, 2, 4, 512, 600, 600]);

        let pauses: Vec<_> = (0..200).map(|_| backoff.pause(4)).collect();
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(8)));
        assert!(pauses.iter().any(|pause| *pause < Duration::from_secs(2)), "full jitter starts at zero");
        assert!(pauses.iter().any(|pause| *pause > Duration::from_secs(6)));
    }

    #[test]
    fn extreme_backoffs_do_not_panic() {
        let endless = Backoff::new(Duration::MAX, Duration::MAX);
        let _ = endless.pause(u32::MAX);
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO).pause(3), Duration::ZERO);
    }
}
