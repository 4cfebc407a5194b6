//! The words in which the cases of the deferred inbox are written.

use std::time::Duration;

use inbox_core::{AfterDead, Envelope, Filter, Lease, OrderingKey, Received, State, StoredMessage};

use super::{id, message};
use crate::suite::deferred::keeper::{Claimed, Take, TestKeeper};

/// The lease of a claim, unless a case says otherwise. Far longer than a case may take, so that only the
/// injected clock lets it run out.
pub(super) const LEASE: Duration = Duration::from_secs(3600);

/// Well within a lease, and far longer than a case may take.
pub(super) const PART: Duration = Duration::from_secs(3000);

/// The attempts that a claim allows, unless a case says otherwise.
pub(super) const ATTEMPTS: u32 = 3;

/// A message with its text as the payload's.
pub(super) fn envelope(text: &str) -> Envelope {
    Envelope::new(message(text), format!("payload of {text}"))
}

/// The same with an ordering key: `k1:2` is of key `k1`.
pub(super) fn keyed(text: &str) -> Envelope {
    let (key, _) = text.split_once(':').expect("the case's id names its key");
    envelope(text).with_ordering_key(ordering_key(key))
}

pub(super) fn ordering_key(text: &str) -> OrderingKey {
    OrderingKey::new(text).expect("the case's key is valid")
}

/// Receives messages one after the other; all of them are new.
pub(super) async fn receive(keeper: &dyn TestKeeper, envelopes: impl IntoIterator<Item = Envelope>) {
    for envelope in envelopes {
        assert_eq!(keeper.receive(&envelope).await.expect("receive"), Received::Kept, "{envelope:?}");
    }
}

/// A claim of up to so many, without an order.
pub(super) fn take(limit: u32) -> Take {
    Take { limit, lease: LEASE, max_attempts: ATTEMPTS, order: None }
}

/// The same in the order of the keys.
pub(super) fn ordered(limit: u32, after_dead: AfterDead) -> Take {
    Take { order: Some(after_dead), ..take(limit) }
}

pub(super) async fn claim(keeper: &dyn TestKeeper, take: Take) -> Vec<Claimed> {
    keeper.claim(&take).await.expect("claim")
}

/// Claims the one message that there is to claim.
pub(super) async fn claim_one(keeper: &dyn TestKeeper) -> Claimed {
    let mut claimed = claim(keeper, take(10)).await;
    assert_eq!(claimed.len(), 1, "one message is there to be claimed: {:?}", ids(&claimed));
    claimed.remove(0)
}

/// Asserts that there is nothing to claim.
pub(super) async fn assert_nothing_due(keeper: &dyn TestKeeper, why: &str) {
    let claimed = claim(keeper, take(10)).await;
    assert!(claimed.is_empty(), "{why}, but it was claimed: {:?}", ids(&claimed));
}

/// The ids of what was claimed, sorted: a claim promises no order of its answer.
pub(super) fn ids(claimed: &[Claimed]) -> Vec<String> {
    let mut ids: Vec<String> = claimed.iter().map(Claimed::id).collect();
    ids.sort();
    ids
}

pub(super) fn leases(claimed: &[Claimed]) -> Vec<Lease> {
    claimed.iter().map(|one| one.lease).collect()
}

/// Completes a message with its effect, and commits.
pub(super) async fn complete(keeper: &dyn TestKeeper, claimed: &Claimed) {
    let mut tx = keeper.begin().await.expect("begin");
    assert_eq!(tx.complete(&[claimed.lease]).await.expect("complete"), [true], "the lease was not lost");
    tx.effect(&claimed.id()).await.expect("the effect is written");
    tx.commit().await.expect("commit");
}

/// The one kept message of an id.
pub(super) async fn kept(keeper: &dyn TestKeeper, text: &str) -> StoredMessage {
    let mut listing = keeper.messages(&Filter::id(id(text))).await.expect("messages");
    assert_eq!((listing.messages.len(), listing.damaged.len()), (1, 0), "{text}: {listing:?}");
    listing.messages.remove(0)
}

/// How many messages are pending, done and dead.
pub(super) async fn counts(keeper: &dyn TestKeeper) -> [u32; 3] {
    let counts = keeper.counts(1000).await.expect("counts");
    let states: Vec<State> = counts.iter().map(|count| count.state).collect();
    assert_eq!(states, State::ALL, "counted by state");
    [counts[0].count, counts[1].count, counts[2].count]
}

/// The message as a lease that ran out or a rollback leaves it: pending, leased, its effect nowhere.
pub(super) async fn assert_leased(keeper: &dyn TestKeeper, text: &str, attempts: u32) {
    let message = kept(keeper, text).await;
    assert_eq!((message.state, message.leased, message.attempts), (State::Pending, true, attempts), "{text}");
}
