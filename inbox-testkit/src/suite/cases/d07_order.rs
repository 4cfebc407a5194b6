//! D7: the messages of one ordering key one after the other, where a worker asks for it.

use inbox_core::{AfterDead, Envelope, Filter, State};

use super::deferred::{
    LEASE, PART, claim, complete, counts, envelope, ids, kept, keyed, ordered, ordering_key, receive,
};
use super::{cases, id};
use crate::suite::deferred::keeper::{Claimed, Doing, Handling, Setup, TestKeeper};

/// Claims in order, and gives what was claimed.
async fn next(keeper: &dyn TestKeeper, after_dead: AfterDead) -> Vec<Claimed> {
    claim(keeper, ordered(10, after_dead)).await
}

/// Completes a message and lets the next one of its key go on, as a worker does.
async fn finish(keeper: &dyn TestKeeper, claimed: &Claimed) {
    complete(keeper, claimed).await;
    unblock(keeper, &claimed.id()).await;
}

async fn unblock(keeper: &dyn TestKeeper, text: &str) {
    let (key, _) = text.split_once(':').expect("the case's id names its key");
    keeper.unblock(&[ordering_key(key)]).await.expect("unblock");
}

/// Asserts that the handlers' notes show the messages of each key one after the other, each ended before
/// the next began.
fn assert_in_order(seen: &[String], key: &str, expected: &[&str]) {
    let of_key: Vec<&str> =
        seen.iter().map(String::as_str).filter(|note| note.starts_with(&format!("{key}:"))).collect();
    assert_eq!(of_key, expected);
}

cases! {
    /// While a message of a key is leased only messages of other keys, and those without one, get out; when
    /// it is done, the next one of its key does.
    once(Deferred) fn d07_leased_message_holds_its_key_back(stage) {
        for after_dead in [AfterDead::Block, AfterDead::Pass] {
            let keeper = stage.keeper(&format!("billing {after_dead:?}"));
            receive(&*keeper, ["k1:1", "k1:2", "k2:1", "k1:3"].map(keyed)).await;
            receive(&*keeper, ["free-1", "free-2"].map(envelope)).await;
            let first = next(&*keeper, after_dead).await;
            assert_eq!(ids(&first), ["free-1", "free-2", "k1:1", "k2:1"]);
            assert_eq!(ids(&next(&*keeper, after_dead).await), [""; 0]);
            for one in first.iter().filter(|one| one.id().starts_with('k')) {
                finish(&*keeper, one).await;
            }
            let second = next(&*keeper, after_dead).await;
            assert_eq!(ids(&second), ["k1:2"]);
            finish(&*keeper, &second[0]).await;
            assert_eq!(ids(&next(&*keeper, after_dead).await), ["k1:3"]);
        }
    }

    /// A message that waits for its next attempt holds its key back all the while (B88).
    once(Deferred, Clock) fn d07_b88_retried_message_holds_its_key_back(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2", "k2:1"].map(keyed)).await;
        let claimed = claim(&*keeper, ordered(1, AfterDead::Pass)).await;
        assert_eq!(ids(&claimed), ["k1:1"]);
        keeper.fail(claimed[0].lease, Some(3 * LEASE), "\"busy\"").await.expect("fail");
        assert_eq!(ids(&next(&*keeper, AfterDead::Pass).await), ["k2:1"]);
        stage.advance_clock(LEASE + PART).await;
        let looked_again = next(&*keeper, AfterDead::Pass).await;
        assert!(looked_again.iter().all(|one| one.id() == "k2:1"), "{:?}", ids(&looked_again));
        stage.advance_clock(2 * LEASE).await;
        let due = next(&*keeper, AfterDead::Pass).await;
        let of_key: Vec<String> = ids(&due).into_iter().filter(|id| id.starts_with("k1")).collect();
        assert_eq!(of_key, ["k1:1"]);
    }

    /// A message that is not due yet holds the later ones of its key back.
    once(Deferred, Clock) fn d07_delayed_message_holds_its_key_back(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [keyed("k1:1").delayed(LEASE), keyed("k1:2"), keyed("k2:1")]).await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), ["k2:1"]);
        stage.advance_clock(LEASE).await;
        let due = next(&*keeper, AfterDead::Block).await;
        assert!(ids(&due).contains(&"k1:1".to_owned()), "{:?}", ids(&due));
        assert!(!ids(&due).contains(&"k1:2".to_owned()), "{:?}", ids(&due));
    }

    /// A message whose lease ran out is taken over before the later ones of its key.
    once(Deferred, Clock) fn d07_abandoned_message_is_taken_over_first(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        for attempt in 1..=2 {
            let claimed = next(&*keeper, AfterDead::Pass).await;
            assert_eq!((ids(&claimed), claimed[0].row.attempts), (vec!["k1:1".to_owned()], attempt));
            stage.advance_clock(LEASE).await;
        }
    }

    /// A message that is given back stays first of its key.
    once(Deferred) fn d07_released_message_stays_first(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        for _ in 0..2 {
            let claimed = next(&*keeper, AfterDead::Block).await;
            assert_eq!(ids(&claimed), ["k1:1"]);
            assert_eq!(keeper.release(&[claimed[0].lease]).await.expect("release"), 1);
        }
    }

    /// A dead message blocks its key until it was replayed and is done, where the worker says so.
    once(Deferred) fn d07_dead_message_blocks_its_key(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        let first = next(&*keeper, AfterDead::Block).await;
        keeper.fail(first[0].lease, None, "\"broken\"").await.expect("fail");
        unblock(&*keeper, "k1:1").await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), [""; 0]);
        assert_eq!(keeper.replay(&Filter::id(id("k1:1"))).await.expect("replay"), 1);
        let again = next(&*keeper, AfterDead::Block).await;
        assert_eq!(ids(&again), ["k1:1"]);
        finish(&*keeper, &again[0]).await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), ["k1:2"]);
    }

    /// A dead message lets the later ones of its key pass, where the worker says so.
    once(Deferred) fn d07_dead_message_lets_its_key_pass(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        let first = next(&*keeper, AfterDead::Pass).await;
        keeper.fail(first[0].lease, None, "\"broken\"").await.expect("fail");
        unblock(&*keeper, "k1:1").await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Pass).await), ["k1:2"]);
    }

    /// A message that dies of its spent attempts is looked at as a dead one from then on.
    once(Deferred, Clock) fn d07_exhausted_message_lets_its_key_pass(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        for _ in 1..=3 {
            assert_eq!(ids(&next(&*keeper, AfterDead::Pass).await), ["k1:1"]);
            stage.advance_clock(LEASE).await;
        }
        let dead = next(&*keeper, AfterDead::Pass).await;
        assert_eq!((dead[0].id().as_str(), dead[0].state().as_str()), ("k1:1", "dead"));
        unblock(&*keeper, "k1:1").await;
        let passed: Vec<String> = match dead.len() {
            1 => ids(&next(&*keeper, AfterDead::Pass).await),
            _ => vec![dead[1].id()],
        };
        assert_eq!(passed, ["k1:2"]);
    }

    /// Where nobody unblocks, as when a worker dies between its commit and that, the next message of the
    /// key is looked at again after a lease.
    once(Deferred, Clock) fn d07_missed_unblocking_costs_a_lease(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        let first = next(&*keeper, AfterDead::Block).await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), [""; 0]);
        complete(&*keeper, &first[0]).await;
        stage.advance_clock(LEASE).await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), ["k1:2"]);
    }

    /// Unblocking makes nothing due before its own time, and leaves other keys, consumers and leases alone.
    once(Deferred, Clock) fn d07_unblocking_makes_nothing_due_too_early(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [keyed("k1:1").delayed(2 * LEASE), keyed("k2:1"), keyed("k2:2")]).await;
        receive(&*stage.keeper("audit"), [keyed("k1:1").delayed(2 * LEASE)]).await;
        let leased = next(&*keeper, AfterDead::Block).await;
        assert_eq!(ids(&leased), ["k2:1"]);
        let before = kept(&*keeper, "k2:1").await;
        keeper.unblock(&["k1", "k2", "unknown"].map(ordering_key)).await.expect("unblock");
        keeper.unblock(&[]).await.expect("unblock nothing");
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), [""; 0]);
        assert_eq!(kept(&*keeper, "k2:1").await, before, "its lease is untouched");
        stage.advance_clock(PART).await;
        assert_eq!(ids(&next(&*keeper, AfterDead::Block).await), [""; 0]);
    }

    /// Many waiting messages of one key hide no message of another (B88), however few a claim asks for: look
    /// for a claim that only ever reads the first rows that are due.
    once(Deferred) fn d07_b88_many_waiting_messages_hide_no_other_key(stage) {
        let keeper = stage.keeper("billing");
        let many: Vec<Envelope> = (0..450).map(|n| keyed(&format!("k1:{n:03}"))).collect();
        keeper.receive_batch(&many).await.expect("receive");
        receive(&*keeper, [keyed("k2:1")]).await;
        assert_eq!(ids(&claim(&*keeper, ordered(1, AfterDead::Block)).await), ["k1:000"]);
        assert_eq!(ids(&claim(&*keeper, ordered(1, AfterDead::Block)).await), ["k2:1"]);
        assert_eq!(ids(&claim(&*keeper, ordered(1, AfterDead::Block)).await), [""; 0]);
    }

    /// The order is that of receiving, in a batch as well, and not that of the ids.
    once(Deferred) fn d07_order_is_that_of_receiving(stage) {
        let keeper = stage.keeper("billing");
        let texts = ["k1:c", "k1:a", "k1:d", "k1:b"];
        keeper.receive_batch(&texts.map(keyed)).await.expect("receive");
        for text in texts {
            let claimed = next(&*keeper, AfterDead::Block).await;
            assert_eq!(ids(&claimed), [text]);
            finish(&*keeper, &claimed[0]).await;
        }
    }

    /// Claimers at the same time get no two messages of one key.
    once(Deferred) fn d07_claimers_at_once_get_one_of_each_key(stage) {
        let keeper = stage.keeper("billing");
        let texts = (0..3).flat_map(|n| ["k1", "k2", "k3", "k4"].map(|key| keyed(&format!("{key}:{n}"))));
        keeper.receive_batch(&texts.collect::<Vec<_>>()).await.expect("receive");
        for round in 0..3 {
            let again = || claim(&*keeper, ordered(2, AfterDead::Block));
            let (a, b, c, d) = tokio::join!(again(), again(), again(), again());
            let claimed = [a, b, c, d].concat();
            // A claimer that finds a row locked passes over it: what all left is there now.
            let claimed = [claimed, next(&*keeper, AfterDead::Block).await].concat();
            let expected = ["k1", "k2", "k3", "k4"].map(|key| format!("{key}:{round}"));
            assert_eq!(ids(&claimed), expected);
            for one in &claimed {
                finish(&*keeper, one).await;
            }
        }
    }

    /// Two workers at once handle each key's messages one after the other, also where some fail at first
    /// (B88); all effects are there, once.
    once(Deferred) fn d07_b88_workers_keep_the_order_of_each_key(stage) {
        let keeper = stage.keeper("billing");
        let texts: Vec<String> =
            (1..=4).flat_map(|n| ["k1", "k2", "k3"].map(|key| format!("{key}:{n}"))).collect();
        receive(&*keeper, texts.iter().map(|text| keyed(text))).await;
        let script = Handling::new(|message| match message.id().as_str() {
            "k1:2" | "k2:1" if message.attempts == 1 => Doing::Fail,
            _ => Doing::Effect,
        });
        let setup = Setup { order: Some(AfterDead::Block), ..Setup::default() };
        let (one, two) =
            tokio::join!(keeper.work(&setup, None, &script), keeper.work(&setup, None, &script));
        let (one, two) = (one.expect("work"), two.expect("work"));
        assert_eq!((one.done + two.done, one.retried + two.retried), (12, 2), "{one:?} {two:?}");
        let seen = script.seen();
        let [a, b, c, d] = [1, 2, 3, 4].map(|n| format!("k1:{n}"));
        let ended = |text: &str| format!("{text} ended");
        assert_in_order(
            &seen,
            "k1",
            &[&a, &ended(&a), &b, &b, &ended(&b), &c, &ended(&c), &d, &ended(&d)],
        );
        assert_in_order(
            &seen,
            "k2",
            &[
                "k2:1", "k2:1", "k2:1 ended", "k2:2", "k2:2 ended", "k2:3", "k2:3 ended", "k2:4", "k2:4 ended",
            ],
        );
        for text in &texts {
            assert_eq!(stage.effects(text).await, 1, "{text}");
        }
        assert_eq!(counts(&*keeper).await, [0, 12, 0]);
    }

    /// With the order kept a dead message stops its own key only, and what waits behind it stays pending.
    once(Deferred) fn d07_worker_goes_past_a_dead_message_where_it_may(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2", "k2:1"].map(keyed)).await;
        let script = Handling::new(|m| if m.id().as_str() == "k1:1" { Doing::NeverRetry } else { Doing::Effect });
        let setup = Setup { order: Some(AfterDead::Pass), ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!((report.done, report.dead), (2, 1), "{report:?}");
        assert_eq!(kept(&*keeper, "k1:1").await.state, State::Dead);
        assert_eq!((stage.effects("k1:2").await, stage.effects("k2:1").await), (1, 1));
    }

    /// Batches keep the order too: a batch has one message of a key.
    once(Deferred) fn d07_batches_keep_the_order_of_each_key(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2", "k2:1", "k1:3", "k2:2"].map(keyed)).await;
        let script = Handling::effect();
        let setup = Setup { order: Some(AfterDead::Block), batch: Some(10), ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!(report.done, 5, "{report:?}");
        assert_in_order(
            &script.seen(),
            "k1",
            &["k1:1", "k1:1 ended", "k1:2", "k1:2 ended", "k1:3", "k1:3 ended"],
        );
    }

    /// Without an order a key holds nothing back.
    once(Deferred) fn d07_without_an_order_a_key_holds_nothing_back(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["k1:1", "k1:2"].map(keyed)).await;
        assert_eq!(ids(&claim(&*keeper, super::deferred::take(10)).await), ["k1:1", "k1:2"]);
    }
}
