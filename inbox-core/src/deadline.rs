//! [`Deadline`]: one bound for all the waits of a call (R6).

use std::time::{Duration, Instant};

/// How long a call may still wait for other transactions. For stores: each says what is left as its
/// engine takes it.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    bound: Duration,
    started: Instant,
}

impl Deadline {
    /// Starts counting; zero is no wait.
    pub fn after(bound: Duration) -> Self {
        Self { bound, started: Instant::now() }
    }

    /// The whole wait.
    pub fn bound(&self) -> Duration {
        self.bound
    }

    /// When the counting began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// What is left of the wait.
    pub fn left(&self) -> Duration {
        self.bound.saturating_sub(self.started.elapsed())
    }

    /// For the text of an error.
    pub fn describe(&self) -> String {
        format!("the bound of the wait is {:?}", self.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_never_overflows() {
        assert!(Deadline::after(Duration::MAX).left() > Duration::from_secs(1));
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
