//! [`RetryPolicy`]: how often and how long a transaction is run again.

use std::time::{Duration, Instant};

/// How often, for how long and with which pauses a transaction is run again.
///
/// The pause before try *n* is a random time between zero and `base · 2^(n-1)`, at most `cap`
/// ("full jitter"), so that losers of one conflict do not meet again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The most runs of one transaction, the first included. 8 by default; 1 is no retry.
    pub max_attempts: u32,
    /// No new run starts later than this after the first. 60 s by default.
    pub max_elapsed: Duration,
    /// The upper bound of the first pause. 10 ms by default.
    pub base: Duration,
    /// The upper bound of any pause. 1 s by default.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            max_elapsed: Duration::from_secs(60),
            base: Duration::from_millis(10),
            cap: Duration::from_secs(1),
        }
    }
}

impl RetryPolicy {
    /// A policy that never runs a transaction again.
    pub fn none() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets [`max_elapsed`](Self::max_elapsed).
    #[must_use]
    pub fn with_max_elapsed(mut self, elapsed: Duration) -> Self {
        self.max_elapsed = elapsed;
        self
    }

    /// Sets [`base`](Self::base).
    #[must_use]
    pub fn with_base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets [`cap`](Self::cap).
    #[must_use]
    pub fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Starts counting, at the first run.
    pub fn start(&self) -> RetryState<'_> {
        RetryState { policy: self, attempts: 1, started: Instant::now() }
    }

    fn longest_pause(&self, failed_attempts: u32) -> Duration {
        let doubled = 2u32.saturating_pow(failed_attempts.saturating_sub(1));
        self.base.saturating_mul(doubled).min(self.cap)
    }
}

/// The runs of one transaction so far.
#[derive(Debug)]
pub struct RetryState<'p> {
    policy: &'p RetryPolicy,
    attempts: u32,
    started: Instant,
}

impl RetryState<'_> {
    /// Counts a failed run; answers how long to pause before the next, or `None` if there is none.
    pub fn next_pause(&mut self) -> Option<Duration> {
        if self.attempts >= self.policy.max_attempts {
            return None;
        }
        let longest = self.policy.longest_pause(self.attempts);
        let pause =
            Duration::from_nanos(fastrand::u64(0..=u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX)));
        if self.started.elapsed().saturating_add(pause) > self.policy.max_elapsed {
            return None;
        }
        self.attempts += 1;
        Some(pause)
    }

    /// The number of the run that is under way, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_bounded_in_number() {
        let policy = RetryPolicy::default().with_max_attempts(3);
        let mut state = policy.start();
        assert!(state.next_pause().is_some());
        assert!(state.next_pause().is_some());
        assert!(state.next_pause().is_none());
        assert_eq!(state.attempt(), 3);
    }

    #[test]
    fn runs_are_bounded_in_time() {
        let policy = RetryPolicy::default().with_max_elapsed(Duration::ZERO);
        assert!(policy.start().next_pause().is_none());
    }

    #[test]
    fn extreme_policies_do_not_panic() {
        let endless = RetryPolicy::default()
            .with_max_attempts(u32::MAX)
            .with_max_elapsed(Duration::MAX)
            .with_base(Duration::MAX)
            .with_cap(Duration::MAX);
        assert!(endless.start().next_pause().is_some());
        assert!(RetryPolicy::default().with_max_attempts(0).start().next_pause().is_none());
        assert_eq!(
            RetryPolicy::default().with_base(Duration::ZERO).start().next_pause(),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let policy = RetryPolicy::default();
        let bounds: Vec<_> = [1, 2, 3, 7, 8, 99].map(|n| policy.longest_pause(n).as_millis()).into();
        assert_eq!(bounds, [10, 20, 40, 640, 1000, 1000]);
    }
}
