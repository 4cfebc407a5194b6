//! R1 to R3: one registration is new; a duplicate carries its original.

use inbox_core::{Message, Registration};
use tokio::task::yield_now;

use super::{assert_duplicate, cases, deliver, handle, id, message, original, process};
use crate::suite::stage::Script;

cases! {
    /// An id that was never seen is new, and its effect is committed with it.
    every_level() fn r01_first_registration_is_new(stage) {
        handle(&*stage.inbox("billing"), &message("m-1")).await;
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// An id that is committed is a duplicate ever after (B25). A store that decides from a returned
    /// row which is absent on a conflict errs here.
    every_level() fn r01_redelivery_is_duplicate(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-1")).await;
        for _ in 0..3 {
            assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
        }
    }

    /// Eight copies at once run the effect once (B70). A check before the insert lets several through.
    once() fn r01_copies_at_once_have_one_effect(stage) {
        let inbox = stage.inbox("billing");
        let (copy, script) = (message("m-1"), Script::effect());
        let one = async || {
            yield_now().await;
            inbox.process(&copy, &script).await.expect("process").is_processed()
        };
        let outcomes: [bool; 8] = {
            let (a, b, c, d, e, f, g, h) =
                tokio::join!(one(), one(), one(), one(), one(), one(), one(), one());
            [a, b, c, d, e, f, g, h]
        };
        assert_eq!(outcomes.iter().filter(|processed| **processed).count(), 1);
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// Ten ids, each delivered four times at once and once more later, have ten effects (B70).
    once() fn r01_redeliveries_have_one_effect_each(stage) {
        let inbox = stage.inbox("billing");
        for n in 0..10 {
            let copy = message(&format!("m-{n}"));
            let one = || process(&*inbox, &copy);
            let processed: [bool; 4] = tokio::join!(one(), one(), one(), one()).into();
            assert_eq!(processed.iter().filter(|processed| **processed).count(), 1, "m-{n}");
        }
        for n in 0..10 {
            assert!(!process(&*inbox, &message(&format!("m-{n}"))).await, "m-{n}");
            assert_eq!(stage.effects(&format!("m-{n}")).await, 1, "m-{n}");
        }
    }

    /// Two consumers of one message are independent (B71).
    every_level() fn r01_consumers_are_independent(stage) {
        handle(&*stage.inbox("billing"), &message("m-1")).await;
        assert_eq!(deliver(&*stage.inbox("mailing"), &message("m-1")).await, Registration::New);
        assert_duplicate(&deliver(&*stage.inbox("billing"), &message("m-1")).await);
    }

    /// Consumer and id are two parts of a key, not one text (B71).
    every_level() fn r01_consumer_and_id_are_not_joined(stage) {
        for (consumer, text) in [("ab", "c"), ("a", "bc"), ("a:b", "c"), ("a", "b:c"), ("a-", "b"), ("a", "-b")] {
            let answer = deliver(&*stage.inbox(consumer), &message(text)).await;
            assert_eq!(answer, Registration::New, "({consumer:?}, {text:?})");
        }
    }

    /// A duplicate carries the event type of the first registration, not its own.
    every_level() fn r02_duplicate_carries_the_originals_event_type(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &Message::new(id("m-1"), "Original").expect("valid")).await;
        let answer = deliver(&*inbox, &Message::new(id("m-1"), "Redelivered").expect("valid")).await;
        assert_eq!(original(answer).event_type, "Original");
    }

    /// Every duplicate carries the same time of registering, in microseconds of the database's clock.
    every_level() fn r02_duplicate_carries_the_originals_time(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m-1")).await;
        let first = original(deliver(&*inbox, &message("m-1")).await);
        // Another registration in between, so that a clock that is read again shows.
        deliver(&*inbox, &message("m-2")).await;
        let second = original(deliver(&*inbox, &message("m-1")).await);
        assert_eq!(first.registered_at, second.registered_at);
        let year_2020 = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_577_836_800);
        assert!(first.registered_at > year_2020, "{:?}", first.registered_at);
    }

    /// What an operator finds is what a duplicate carries; an id that is not there is not found.
    every_level() fn r02_find_shows_the_committed_original(stage) {
        let inbox = stage.inbox("billing");
        assert_eq!(inbox.find(&id("m-1")).await.expect("find"), None);
        deliver(&*inbox, &message("m-1")).await;
        let found = inbox.find(&id("m-1")).await.expect("find").expect("it is registered");
        assert_eq!(found, original(deliver(&*inbox, &message("m-1")).await));
        assert_eq!(stage.inbox("mailing").find(&id("m-1")).await.expect("find"), None);
    }

    /// A registration that an operator forgets is new again; others stay.
    every_level() fn r02_forgotten_on_purpose_is_new_again(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m-1")).await;
        deliver(&*inbox, &message("m-2")).await;
        assert!(inbox.forget(&id("m-1")).await.expect("forget"));
        assert!(!inbox.forget(&id("m-1")).await.expect("forget"));
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
        assert_duplicate(&deliver(&*inbox, &message("m-2")).await);
    }

    /// A duplicate raises no error in the engine, so the caller's transaction stays usable (B30).
    every_level() fn r02_duplicate_leaves_the_transaction_usable(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m-1")).await;
        let mut tx = inbox.begin().await.expect("begin");
        tx.effect("before").await.expect("effect");
        assert_duplicate(&tx.register(&message("m-1")).await.expect("register"));
        tx.effect("after").await.expect("effect");
        tx.commit().await.expect("commit");
        assert_eq!((stage.effects("before").await, stage.effects("after").await), (1, 1));
    }

    /// A second registration in the same transaction is a duplicate of the first.
    every_level() fn r03_second_in_the_same_transaction_is_duplicate(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        let again = tx.register(&message("m-1")).await.expect("register");
        assert_eq!(original(again).event_type, "PaymentConfirmed");
        tx.commit().await.expect("commit");
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// Nested code that registers by reference in the same transaction sees what the guard registered.
    every_level() fn r03_by_reference_in_the_same_transaction_is_duplicate(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        assert_duplicate(&tx.register_by_reference(&message("m-1")).await.expect("register"));
        assert_eq!(tx.register_by_reference(&message("m-2")).await.expect("register"), Registration::New);
        tx.commit().await.expect("commit");
        assert_duplicate(&deliver(&*inbox, &message("m-2")).await);
    }
}
