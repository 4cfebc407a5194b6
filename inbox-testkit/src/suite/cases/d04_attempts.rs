//! D4: leases are renewed or run out, and a crash spends the attempt.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inbox_core::{IncidentKind, Renewal, State};
use tokio::sync::{Semaphore, oneshot};

use super::deferred::{
    ATTEMPTS, LEASE, PART, assert_leased, assert_nothing_due, claim, claim_one, counts, envelope, kept,
    receive, take,
};
use super::{cases, until};
use crate::suite::deferred::keeper::{Handling, Setup, Take, TestKeeper};

/// What the store takes for now: when a message of this id was received.
async fn now(clock: &dyn TestKeeper, text: &str) -> SystemTime {
    receive(clock, [envelope(text)]).await;
    kept(clock, text).await.received_at
}

cases! {
    /// A worker that dies again and again spends an attempt each time (B84); the claim after the last one
    /// makes the message dead, says so once, and keeps when each attempt was abandoned.
    once(Deferred, Clock) fn d04_b84_crashes_spend_attempts_until_it_is_dead(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        for attempt in 1..=ATTEMPTS {
            assert_eq!(claim_one(&*keeper).await.row.attempts, i64::from(attempt));
            stage.advance_clock(LEASE).await;
        }
        let dead = claim_one(&*keeper).await;
        assert_eq!((dead.state().as_str(), dead.row.leased, dead.row.attempts), ("dead", false, 3));
        assert_nothing_due(&*keeper, "it is dead").await;
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.state, message.leased, message.attempts), (State::Dead, false, ATTEMPTS));
        let attempts: Vec<_> = message.history.iter().map(|one| (one.kind, one.attempt)).collect();
        assert_eq!(attempts, [1, 2, 3].map(|attempt| (IncidentKind::Abandoned, attempt)));
        for pair in message.history.windows(2) {
            assert!(pair[1].at >= pair[0].at + PART, "each at its own time: {:?}", message.history);
        }
        assert_eq!(counts(&*keeper).await, [0, 0, 1]);
    }

    /// A dead message in a claim's way does not take another's place.
    once(Deferred, Clock) fn d04_exhausted_messages_do_not_hide_others(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["m-1", "m-2"].map(envelope)).await;
        let once = Take { max_attempts: 1, ..take(10) };
        assert_eq!(claim(&*keeper, once).await.len(), 2);
        receive(&*keeper, [envelope("m-3")]).await;
        stage.advance_clock(LEASE).await;
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.extend(claim(&*keeper, Take { limit: 1, ..once }).await);
        }
        let mut states: Vec<_> = seen.iter().map(|one| (one.id(), one.state())).collect();
        states.sort();
        let expected = [("m-1", "dead"), ("m-2", "dead"), ("m-3", "pending")];
        assert_eq!(states, expected.map(|(id, state)| (id.to_owned(), state.to_owned())));
    }

    /// A renewed lease holds from the renewal on, and the message is claimed when it runs out.
    once(Deferred, Clock) fn d04_renewal_keeps_the_message(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        for _ in 0..3 {
            stage.advance_clock(PART).await;
            assert_eq!(keeper.renew(&[claimed.lease], LEASE).await.expect("renew"), [Renewal::Renewed]);
            assert_nothing_due(&*keeper, "its lease was renewed").await;
        }
        stage.advance_clock(LEASE).await;
        assert_eq!(claim_one(&*keeper).await.row.attempts, 2);
    }

    /// The lease stands in the row (B87): a claimer that is set to shorter leases does not take what
    /// another one claimed for longer.
    once(Deferred, Clock) fn d04_b87_lease_is_the_rows_not_the_claimers(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        claim_one(&*keeper).await;
        let hasty = Take { lease: Duration::from_secs(1), ..take(10) };
        assert!(claim(&*keeper, hasty).await.is_empty());
        stage.advance_clock(PART).await;
        assert!(claim(&*keeper, hasty).await.is_empty(), "its lease is the longer one");
        stage.advance_clock(LEASE - PART).await;
        assert_eq!(claim(&*keeper, hasty).await.len(), 1);
    }

    /// What is given back is due at once, and its attempt does not count.
    once(Deferred) fn d04_released_has_spent_nothing(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        for _ in 0..2 * ATTEMPTS {
            let claimed = claim_one(&*keeper).await;
            assert_eq!(claimed.row.attempts, 1);
            assert_eq!(keeper.release(&[claimed.lease]).await.expect("release"), 1);
        }
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.state, message.leased, message.attempts), (State::Pending, false, 0));
        assert!(message.history.is_empty(), "{:?}", message.history);
        claim_one(&*keeper).await;
        assert_leased(&*keeper, "m-1", 1).await;
    }

    /// A worker renews what it has in hand by itself. Of a batch that failed the messages are handled one
    /// by one, and the one that waits for its turn is locked by no transaction: however long it waits,
    /// nobody else gets it.
    once(Deferred, Clock, OpenTogether) fn d04_worker_renews_what_waits_in_its_hand(stage) {
        // Renewed at a third of it, which is real time.
        let lease = Duration::from_secs(3);
        let (keeper, clock) = (stage.keeper("billing"), stage.keeper("clock"));
        receive(&*keeper, ["a", "b"].map(envelope)).await;
        let gate = Arc::new(Semaphore::new(0));
        let script = Handling::first_fails_then_waits_at(&gate);
        let setup = Setup { concurrency: 1, batch: Some(2), lease, ..Setup::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let told = Box::pin(async { stopped.await.expect("the case tells it") });
        let meanwhile = async {
            until("a message is handled alone", async || script.calls() == 2).await;
            let waiting = if script.seen()[1] == "a" { "b" } else { "a" };
            for step in 0..3 {
                stage.advance_clock(lease * 2 / 3).await;
                let now = now(&*clock, &format!("step-{step}")).await;
                let renewed = async || kept(&*keeper, waiting).await.due_at >= now + lease;
                until("the worker renews what waits", renewed).await;
                assert_nothing_due(&*keeper, "one is locked and one is renewed").await;
            }
            gate.add_permits(1);
            until("both are done", async || counts(&*keeper).await == [0, 2, 0]).await;
            stop.send(()).expect("the worker runs");
        };
        let (report, ()) = tokio::join!(keeper.work(&setup, Some(told), &script), meanwhile);
        let report = report.expect("work");
        assert_eq!((report.done, report.taken_over, script.calls()), (2, 0, 3), "{report:?}");
        for text in ["a", "b"] {
            assert_eq!((stage.effects(text).await, kept(&*keeper, text).await.attempts), (1, 1), "{text}");
        }
    }
}
