//! [`Turns`]: how many handlers may run at a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Where the engine has one writer, handlers take turns here: waiting for it at begin is bounded.
pub(super) struct Turns {
    free: Semaphore,
    /// When what waits for its turn was leased last; only where there is one turn.
    leased: Option<Mutex<Instant>>,
}

impl Turns {
    pub(super) fn new(one_writer: bool, handlers: usize) -> Self {
        let free = if one_writer { 1 } else { handlers.min(Semaphore::MAX_PERMITS) };
        Self { free: Semaphore::new(free), leased: one_writer.then(|| Mutex::new(Instant::now())) }
    }

    /// Waits for a turn, which is over when the answer is dropped.
    pub(super) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.free.acquire().await.ok()
    }

    pub(super) fn is_one(&self) -> bool {
        self.leased.is_some()
    }

    /// Notes that everything in hand is leased from now on.
    pub(super) fn leased_now(&self) {
        if let Some(leased) = &self.leased {
            *leased.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }

    pub(super) fn leased_since(&self) -> Option<Duration> {
        self.leased.as_ref().map(|leased| leased.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }
}
