//! [`Wake`]: when a worker that found nothing looks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Worker;
use crate::{Backoff, Consumer, Deferred};

/// Wakes the worker when somebody tells of messages, and at intervals that grow while there are none.
pub(super) struct Wake {
    at: Instant,
    interval: Duration,
    longest: Duration,
    failures: u32,
    /// Whether an empty claim means that nothing is due: one that keeps an order locks more than it
    /// takes, and another one beside it finds nothing meanwhile.
    trusts_empty: bool,
    told: Arc<Told>,
    watching: AbortHandle,
}

#[derive(Default)]
struct Told {
    news: Notify,
    /// Whether the engine tells of messages at the moment, so that there is no need to ask often.
    works: AtomicBool,
}

/// While the database cannot be reached.
const OUTAGE: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(10) };

/// After a race that was lost: soon, but not all losers at once.
const RACE: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(20) };

impl Wake {
    /// Starts to watch, and is due at once.
    pub(super) fn start<S: Deferred + Clone + 'static>(worker: &Worker<S>) -> Self {
        let longest = worker.poll.max(Duration::from_millis(1));
        let told = Arc::<Told>::default();
        let (store, consumer) = (worker.inbox.store().clone(), worker.inbox.consumer().clone());
        let watching = tokio::spawn(watch(store, consumer, longest, Arc::clone(&told)));
        let interval = shortest(longest);
        Self {
            at: Instant::now(),
            interval,
            longest,
            failures: 0,
            trusts_empty: worker.order.is_none(),
            told,
            watching: watching.abort_handle(),
        }
    }

    /// Until it is time to claim. Dropping the future loses no news.
    pub(super) async fn due(&self) {
        tokio::select! {
            () = tokio::time::sleep_until(self.at) => {}
            () = self.told.news.notified() => {}
        }
    }

    /// A claim found something, and perhaps there is `more`.
    pub(super) fn found(&mut self, more: bool) {
        self.interval = shortest(self.longest);
        self.found_nothing();
        if more {
            self.at = Instant::now();
        }
    }

    /// A claim found nothing.
    pub(super) fn found_nothing(&mut self) {
        self.failures = 0;
        let told = self.trusts_empty && self.told.works.load(Ordering::Relaxed);
        let interval = if told { self.longest } else { self.interval };
        self.interval = self.interval.saturating_mul(2).min(self.longest);
        self.at = after(interval);
    }

    /// A claim lost against another transaction, and the next one need not.
    pub(super) fn lost_a_race(&mut self) {
        self.failures = 0;
        self.at = after(RACE.pause(1));
    }

    /// A claim failed, and another one may not.
    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.at = after(OUTAGE.pause(self.failures));
    }

    /// There is reason to look within so long.
    pub(super) fn within(&mut self, pause: Duration) {
        // Not before an outage is waited out.
        if self.failures == 0 {
            self.at = self.at.min(after(pause));
        }
    }

    /// There is reason to look shortly, but several reasons may come together.
    pub(super) fn shortly(&mut self) {
        self.within(shortest(self.longest));
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// So long from now; longer than any clock is for ever.
pub(super) fn after(pause: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
    let now = Instant::now();
    now.checked_add(pause).unwrap_or_else(|| now + FOR_EVER)
}

fn shortest(longest: Duration) -> Duration {
    longest / 20
}

/// Keeps a watch, and takes the news as they come, however long the worker is busy.
async fn watch<S: Deferred>(store: S, consumer: Consumer, pause: Duration, told: Arc<Told>) {
    loop {
        match store.watch(&consumer).await {
            Ok(None) => return,
            Ok(Some(mut watch)) => {
                told.works.store(true, Ordering::Relaxed);
                loop {
                    // At first as well: what came before the watch stood was not told.
                    told.news.notify_one();
                    if let Err(error) = watch.changed().await {
                        let error = &error as &dyn std::error::Error;
                        tracing::info!(%consumer, error, "watching for messages anew");
                        break;
                    }
                }
                told.works.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%consumer, error, "cannot watch for messages, looking at intervals");
            }
        }
        tokio::time::sleep(pause).await;
    }
}
