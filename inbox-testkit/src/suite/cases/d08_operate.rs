//! D8 and D9: what an operator sees, counts and replays.

use std::time::Duration;

use inbox_core::{Envelope, ErrorKind, EventType, Filter, IncidentKind, Message, Received, State};

use super::deferred::{
    LEASE, PART, assert_nothing_due, claim, claim_one, complete, counts, envelope, ids, kept, receive, take,
};
use super::{assert_kind, cases, id};
use crate::suite::deferred::keeper::{Doing, Handling, Setup, Take, TestKeeper};

/// Receives a message and lets it die of one failure.
async fn bury(keeper: &dyn TestKeeper, envelope: Envelope) {
    receive(keeper, [envelope]).await;
    keeper.fail(claim_one(keeper).await.lease, None, "\"broken\"").await.expect("fail");
}

fn of_type(text: &str, event_type: &str) -> Envelope {
    Envelope::new(Message::new(id(text), event_type).expect("the event type is valid"), "")
}

fn event_type(text: &str) -> EventType {
    EventType::new(text).expect("the event type is valid")
}

async fn listed(keeper: &dyn TestKeeper, filter: Filter) -> Vec<String> {
    let listing = keeper.messages(&filter).await.expect("messages");
    listing.messages.iter().map(|message| message.id().to_string()).collect()
}

cases! {
    /// A dead message that is replayed gets one attempt more than it had and keeps its history (B91); when
    /// that attempt is spent it is dead again, whatever a worker allows.
    once(Deferred, Clock) fn d08_b91_replayed_dead_letter_has_one_attempt(stage) {
        let keeper = stage.keeper("billing");
        bury(&*keeper, envelope("m-1")).await;
        assert_eq!(keeper.replay(&Filter::id(id("m-1"))).await.expect("replay"), 1);
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.state, message.attempts, message.allowed), (State::Pending, 1, Some(2)));
        let history: Vec<_> = message.history.iter().map(|one| one.kind).collect();
        assert_eq!(history, [IncidentKind::Failed, IncidentKind::Replayed]);

        let generous = Take { max_attempts: 100, ..take(10) };
        let claimed = claim(&*keeper, generous).await;
        assert_eq!((claimed[0].state().as_str(), claimed[0].row.attempts), ("pending", 2));
        stage.advance_clock(LEASE).await;
        let dead = claim(&*keeper, generous).await;
        assert_eq!((dead[0].state().as_str(), dead[0].row.attempts), ("dead", 2));
        let history: Vec<_> = kept(&*keeper, "m-1").await.history.iter().map(|one| one.kind).collect();
        assert_eq!(history, [IncidentKind::Failed, IncidentKind::Replayed, IncidentKind::Abandoned]);
    }

    /// A message that had spent all its attempts is claimed after a replay, though it has more than a
    /// worker allows.
    once(Deferred) fn d08_replayed_message_is_claimed_beyond_the_workers_limit(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        for retry_after in [Some(Duration::ZERO), Some(Duration::ZERO), None] {
            keeper.fail(claim_one(&*keeper).await.lease, retry_after, "\"broken\"").await.expect("fail");
        }
        keeper.replay(&Filter::id(id("m-1"))).await.expect("replay");
        let claimed = claim_one(&*keeper).await;
        assert_eq!((claimed.state().as_str(), claimed.row.attempts), ("pending", 4));
        complete(&*keeper, &claimed).await;
        assert_eq!((counts(&*keeper).await, stage.effects("m-1").await), ([0, 1, 0], 1));
    }

    /// A done message that is replayed is handled again, on purpose, and its effect happens again.
    once(Deferred) fn d08_replayed_done_message_is_handled_again(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        for effects in 1..=3 {
            complete(&*keeper, &claim_one(&*keeper).await).await;
            assert_eq!((counts(&*keeper).await, stage.effects("m-1").await), ([0, 1, 0], effects));
            assert_eq!(keeper.replay(&Filter::id(id("m-1"))).await.expect("replay"), 1);
        }
        assert_eq!(kept(&*keeper, "m-1").await.payload, b"payload of m-1");
    }

    /// Of two replays at once each message is one's, so that it is handled once more and not twice.
    once(Deferred) fn d08_replays_at_once_give_one_attempt(stage) {
        let keeper = stage.keeper("billing");
        let texts = ["a", "b", "c", "d", "e", "f"];
        for text in texts {
            bury(&*keeper, envelope(text)).await;
        }
        let (by_id, by_state) = (Filter::ids(texts.map(id)), Filter::state(State::Dead));
        let (one, two) = tokio::join!(keeper.replay(&by_id), keeper.replay(&by_state));
        assert_eq!(one.expect("replay") + two.expect("replay"), 6);
        for text in texts {
            let message = kept(&*keeper, text).await;
            let replays = message.history.iter().filter(|one| one.kind == IncidentKind::Replayed).count();
            assert_eq!((message.allowed, replays), (Some(2), 1), "{text}");
        }
    }

    /// A replay is no redelivery: the id stays registered, and receiving it is a duplicate all the while.
    once(Deferred) fn d08_replayed_message_stays_registered(stage) {
        let keeper = stage.keeper("billing");
        bury(&*keeper, envelope("m-1")).await;
        keeper.replay(&Filter::id(id("m-1"))).await.expect("replay");
        for state in ["pending", "done"] {
            let answer = keeper.receive(&envelope("m-1")).await.expect("receive");
            assert!(matches!(answer, Received::Duplicate(_)), "{state}: {answer:?}");
            if state == "pending" {
                complete(&*keeper, &claim_one(&*keeper).await).await;
            }
        }
        assert_eq!(counts(&*keeper).await, [0, 1, 0]);
    }

    /// What is pending is not replayed: it has its attempt still before it. Nor is a message of another
    /// consumer, or one that is not there.
    once(Deferred) fn d08_pending_is_not_replayed(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["m-1", "m-2"].map(envelope)).await;
        bury(&*stage.keeper("audit"), envelope("m-3")).await;
        let leased = claim(&*keeper, take(1)).await;
        let all = Filter::ids(["m-1", "m-2", "m-3", "m-4"].map(id));
        assert_eq!(keeper.replay(&all).await.expect("replay"), 0);
        assert_kind(keeper.replay(&Filter::state(State::Pending)).await, ErrorKind::InvalidMessage);
        assert_eq!(keeper.replay(&Filter::ids([])).await.expect("replay nothing"), 0);
        complete(&*keeper, &leased[0]).await;
        assert_eq!(counts(&*stage.keeper("audit")).await, [0, 0, 1]);
    }

    /// A replay by state takes the oldest first, up to its limit, of its event type and age.
    once(Deferred, Clock) fn d08_replay_goes_by_its_filter(stage) {
        let keeper = stage.keeper("billing");
        for (text, event) in [("a", "Paid"), ("b", "Refunded"), ("c", "Paid"), ("d", "Paid")] {
            bury(&*keeper, of_type(text, event)).await;
            stage.advance_clock(LEASE).await;
        }
        receive(&*keeper, [of_type("e", "Paid")]).await;
        complete(&*keeper, &claim_one(&*keeper).await).await;
        let dead = || Filter::state(State::Dead);
        let old = dead().event_type(event_type("Paid")).older_than(LEASE + PART);
        assert_eq!(keeper.replay(&old.clone().limit(1)).await.expect("replay"), 1);
        assert_eq!(ids(&claim(&*keeper, take(10)).await), ["a"]);
        assert_eq!(keeper.replay(&old).await.expect("replay"), 1);
        assert_eq!(ids(&claim(&*keeper, take(10)).await), ["c"]);
        assert_eq!(keeper.replay(&dead()).await.expect("replay"), 2);
        assert_eq!(ids(&claim(&*keeper, take(10)).await), ["b", "d"]);
        assert_eq!(keeper.replay(&Filter::state(State::Done).limit(5)).await.expect("replay"), 1);
        assert_eq!(ids(&claim(&*keeper, take(10)).await), ["e"]);
    }

    /// A worker gives a replayed message its one attempt, and buries it again if that fails.
    once(Deferred) fn d08_worker_gives_a_replayed_message_one_attempt(stage) {
        let keeper = stage.keeper("billing");
        bury(&*keeper, envelope("m-1")).await;
        keeper.replay(&Filter::id(id("m-1"))).await.expect("replay");
        let script = Handling::new(|_| Doing::Fail);
        let setup = Setup { max_attempts: 100, ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!((report.dead, report.retried, script.calls()), (1, 0, 1), "{report:?}");
        let history: Vec<_> = kept(&*keeper, "m-1").await.history.iter().map(|one| one.kind).collect();
        assert_eq!(history, [IncidentKind::Failed, IncidentKind::Replayed, IncidentKind::Failed]);
    }

    /// A listing by state has those of its state, consumer, event type and age; payloads where they are
    /// asked for.
    once(Deferred, Clock) fn d08_messages_are_listed_by_filter(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [of_type("a", "Paid"), of_type("b", "Refunded")]).await;
        receive(&*stage.keeper("audit"), [of_type("z", "Paid")]).await;
        stage.advance_clock(LEASE).await;
        receive(&*keeper, [of_type("c", "Paid"), envelope("d")]).await;
        let pending = || Filter::state(State::Pending);
        assert_eq!(listed(&*keeper, pending()).await, ["a", "b", "c", "d"]);
        assert_eq!(listed(&*keeper, pending().event_type(event_type("Paid"))).await, ["a", "c"]);
        assert_eq!(listed(&*keeper, pending().older_than(PART)).await, ["a", "b"]);
        assert_eq!(listed(&*keeper, pending().event_type(event_type("paid"))).await, [""; 0]);
        assert_eq!(listed(&*keeper, Filter::state(State::Dead)).await, [""; 0]);
        let mut by_id = listed(&*keeper, Filter::ids(["c", "a", "unknown", "z"].map(id))).await;
        by_id.sort();
        assert_eq!(by_id, ["a", "c"]);
        let payload = async |filter| {
            let listing = keeper.messages(&filter).await.expect("messages");
            listing.messages.last().expect("d is there").payload.clone()
        };
        assert_eq!(payload(pending()).await, b"");
        assert_eq!(payload(pending().with_payloads()).await, b"payload of d");
        assert_eq!(payload(Filter::id(id("d"))).await, b"payload of d");
    }

    /// Page after page a listing shows every message once, the oldest first, also where many came into the
    /// state at the same time: look for a page that begins after a time alone.
    once(Deferred) fn d08_pages_show_each_message_once(stage) {
        let keeper = stage.keeper("billing");
        let texts: Vec<String> = (0..25).map(|n| format!("m-{n:02}")).collect();
        keeper.receive_batch(&texts.iter().map(|text| envelope(text)).collect::<Vec<_>>()).await.expect("receive");
        let mut filter = Filter::state(State::Pending).limit(4);
        let mut seen = Vec::new();
        loop {
            let listing = keeper.messages(&filter).await.expect("messages");
            assert!(listing.messages.len() <= 4);
            if listing.messages.is_empty() {
                break;
            }
            seen.extend(listing.messages.iter().map(|message| message.id().to_string()));
            filter = filter.after(&listing);
        }
        assert_eq!(seen, texts);
    }

    /// Counting goes no further than it is told to, in each state, and says how long the oldest has been
    /// in it.
    once(Deferred, Clock) fn d09_counts_go_no_further_than_told(stage) {
        let keeper = stage.keeper("billing");
        let empty = keeper.counts(10).await.expect("counts");
        assert!(empty.iter().all(|one| one.count == 0 && one.oldest.is_none()), "{empty:?}");
        receive(&*keeper, ["a", "b", "c", "d"].map(envelope)).await;
        receive(&*stage.keeper("audit"), [envelope("z")]).await;
        stage.advance_clock(LEASE).await;
        complete(&*keeper, &claim(&*keeper, take(1)).await[0]).await;
        stage.advance_clock(LEASE).await;
        assert_eq!(counts(&*keeper).await, [3, 1, 0]);
        let capped = keeper.counts(2).await.expect("counts");
        assert_eq!(capped.iter().map(|one| one.count).collect::<Vec<_>>(), [2, 1, 0]);
        let oldest: Vec<_> = capped.iter().map(|one| one.oldest.map(|age| age.as_secs() / 600)).collect();
        assert_eq!(oldest, [Some(12), Some(6), None], "in sixths of an hour");
    }

    /// A message that is replayed is as old as its replay: it is not counted as waiting since it was first
    /// received.
    once(Deferred, Clock) fn d09_age_counts_from_coming_into_the_state(stage) {
        let keeper = stage.keeper("billing");
        bury(&*keeper, envelope("m-1")).await;
        stage.advance_clock(2 * LEASE).await;
        keeper.replay(&Filter::id(id("m-1"))).await.expect("replay");
        let oldest = keeper.counts(10).await.expect("counts")[0].oldest.expect("it is pending");
        assert!(oldest < LEASE, "{oldest:?}");
        let message = kept(&*keeper, "m-1").await;
        assert!(message.state_since >= message.received_at + 2 * LEASE);
        claim_one(&*keeper).await;
        assert_nothing_due(&*keeper, "it is leased").await;
    }
}
