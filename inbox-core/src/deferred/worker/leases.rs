//! [`Leases`]: what a worker has in hand, and the task that renews it (D4).

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::Worker;
use crate::{Consumer, Deferred, Error, ErrorKind, Lease, Renew, Renewal, StoredMessage};

/// A message that was claimed, and the right to handle it.
#[derive(Debug, Clone)]
pub(super) struct Claimed {
    pub(super) lease: Lease,
    pub(super) message: StoredMessage,
}

/// The leases in hand. Dropping it ends the renewal.
pub(super) struct Leases {
    held: Arc<Mutex<Held>>,
    renewing: AbortHandle,
}

/// By the lease, not by the message: a worker may claim anew what it has lost and not finished.
type Held = HashMap<Lease, InHand>;

/// A message in hand, and how far it is.
#[derive(Clone)]
pub(super) struct InHand {
    pub(super) claimed: Claimed,
    /// Whether its handler was called.
    pub(super) begun: bool,
}

impl Leases {
    /// Starts the renewal, in a task of its own: a handler that blocks its thread does not stop it.
    pub(super) fn start<S: Deferred + Clone + 'static>(worker: &Worker<S>) -> Self {
        let held = Arc::default();
        let store = worker.inbox.store().clone();
        let consumer = worker.inbox.consumer().clone();
        let renewing = tokio::spawn(renew(store, consumer, worker.lease, Arc::clone(&held)));
        Self { held, renewing: renewing.abort_handle() }
    }

    pub(super) fn take(&self, claimed: &[Claimed]) {
        let mut held = lock(&self.held);
        for one in claimed {
            held.insert(one.lease, InHand { claimed: one.clone(), begun: false });
        }
    }

    pub(super) fn begin(&self, leases: &[Lease]) {
        let mut held = lock(&self.held);
        for lease in leases {
            if let Some(in_hand) = held.get_mut(lease) {
                in_hand.begun = true;
            }
        }
    }

    /// What was begun together and undone waits for its turn again.
    pub(super) fn wait(&self, claimed: &[Claimed]) {
        let mut held = lock(&self.held);
        for one in claimed {
            if let Some(in_hand) = held.get_mut(&one.lease) {
                in_hand.begun = false;
            }
        }
    }

    pub(super) fn settle(&self, lease: Lease) {
        lock(&self.held).remove(&lease);
    }

    /// Everything in hand.
    pub(super) fn all(&self) -> Vec<Lease> {
        lock(&self.held).keys().copied().collect()
    }

    /// Everything in hand, which is nobody's then.
    pub(super) fn take_all(&self) -> Vec<InHand> {
        lock(&self.held).drain().map(|(_, in_hand)| in_hand).collect()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a call's answer, but not for ever: a connection can go silent, as after a failover.
pub(super) async fn answered<T>(
    lease: Duration,
    doing: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let bound = lease.max(LONG_CALL);
    tokio::time::timeout(bound, call).await.unwrap_or_else(|_| {
        let silent = format!("there was no answer within {bound:?}");
        Err(Error::new(ErrorKind::Unavailable, doing).with_detail(silent))
    })
}

/// What a call of the store's own may take, however short the lease is.
const LONG_CALL: Duration = Duration::from_secs(15);

async fn renew<S: Deferred>(store: S, consumer: Consumer, lease: Duration, held: Arc<Mutex<Held>>) {
    loop {
        tokio::time::sleep((lease / 3).max(Duration::from_millis(1))).await;
        let leases: Vec<Lease> = lock(&held).keys().copied().collect();
        if leases.is_empty() {
            continue;
        }
        // Past a lease the answer is worth nothing, and a connection that has gone silent gives none.
        let renewed =
            answered(lease, "renew leases", store.renew(&Renew::new(&consumer, &leases, lease))).await;
        match renewed {
            // The fence tells whoever lost one; what is settled meanwhile counts as lost here too.
            Ok(renewals) => {
                let renewed = renewals.iter().filter(|renewal| **renewal == Renewal::Renewed).count();
                tracing::trace!(%consumer, leases = leases.len(), renewed, "leases renewed");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%consumer, error, "leases not renewed, trying again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeaseToken, MessageRow};

    fn claimed(sequence: i64) -> Claimed {
        let row = MessageRow {
            sequence,
            message_id: b"m-1".into(),
            event_type: b"PaymentConfirmed".into(),
            headers: b"[]".into(),
            state: b"pending".into(),
            ..MessageRow::default()
        };
        let lease = Lease { sequence, token: LeaseToken::random() };
        Claimed { lease, message: row.try_into().expect("a sound row") }
    }

    #[tokio::test]
    async fn d03_settling_a_lost_lease_leaves_a_newer_one_of_the_same_message() {
        let leases = Leases {
            held: Arc::default(),
            renewing: tokio::spawn(std::future::pending::<()>()).abort_handle(),
        };
        let (lost, newer) = (claimed(7), claimed(7));
        leases.take(&[lost.clone(), newer.clone()]);
        leases.begin(&[lost.lease]);
        leases.settle(lost.lease);
        let left = leases.take_all();
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].claimed.lease, left[0].begun), (newer.lease, false));
    }
}
