//! R10: a batch answers by position as single calls would.

use inbox_core::{Message, Registration};

use super::{Answered, assert_duplicate, cases, deliver, handle, hold, message, messages, until_waiting};
use crate::suite::stage::{Session, TestInbox};

async fn register_committed(inbox: &dyn TestInbox, batch: &[Message]) -> Vec<Registration> {
    let mut tx = inbox.begin().await.expect("begin");
    let answers = tx.register_batch(batch).await.expect("register");
    tx.commit().await.expect("commit");
    answers
}

/// `N`, `D` or `M` per position.
fn letters(answers: &[Registration]) -> String {
    let letter = |answer: &Registration| match answer {
        Registration::New => 'N',
        Registration::Duplicate(_) => 'D',
        Registration::Mismatch(_) => 'M',
        other => panic!("unknown answer {other:?}"),
    };
    answers.iter().map(letter).collect()
}

cases! {
    /// Known ids and repeats are told by position, and nothing else is stored (B74).
    every_level() fn r10_answers_by_position(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("b")).await;
        let answers = register_committed(&*inbox, &messages(&["a", "b", "b", "d"])).await;
        assert_eq!(letters(&answers), "NDDN");
        for text in ["a", "b", "d"] {
            assert_duplicate(&deliver(&*inbox, &message(text)).await);
        }
        assert_eq!(deliver(&*inbox, &message("c")).await, Registration::New);
    }

    /// The answers follow the positions even where the batch is not in the order of the ids.
    every_level() fn r10_positions_are_the_callers(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m")).await;
        let answers = register_committed(&*inbox, &messages(&["z", "m", "a", "y", "m"])).await;
        assert_eq!(letters(&answers), "NDNND");
    }

    /// Of an id repeated in the batch the first is new, the others are its duplicates.
    every_level() fn r10_repeats_in_a_batch_are_duplicates(stage) {
        let inbox = stage.inbox("billing");
        let batch: Vec<Message> = ["First", "Second", "Third"]
            .map(|event_type| Message::new(super::id("m-1"), event_type).expect("valid"))
            .into();
        let answers = register_committed(&*inbox, &batch).await;
        assert_eq!(letters(&answers), "NDD");
        assert_eq!(super::original(answers[2].clone()).event_type, "First");
    }

    /// Each duplicate in a batch carries its own original.
    every_level() fn r10_duplicates_carry_their_own_originals(stage) {
        let inbox = stage.inbox("billing");
        let typed = |text: &str, event_type: &str| Message::new(super::id(text), event_type).expect("valid");
        deliver(&*inbox, &typed("b", "OfB")).await;
        deliver(&*inbox, &typed("a", "OfA")).await;
        let answers = register_committed(&*inbox, &messages(&["b", "c", "a"])).await;
        let of = |n: usize| super::original(answers[n].clone());
        assert_eq!((of(0).event_type, of(2).event_type), ("OfB".to_owned(), "OfA".to_owned()));
        let found = inbox.find(&super::id("a")).await.expect("find").expect("registered");
        assert_eq!(of(2).registered_at, found.registered_at);
    }

    /// A mismatch is an answer at its position and spares the others (B101), also among repeats.
    every_level() fn r10_mismatch_is_an_answer_at_its_position(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("b").with_payload(b"1")).await;
        let batch = [
            message("a").with_payload(b"1"),
            message("b").with_payload(b"2"),
            message("a").with_payload(b"2"),
            message("c"),
        ];
        let answers = register_committed(&*inbox, &batch).await;
        assert_eq!(letters(&answers), "NMMN");
    }

    /// An empty batch is an empty answer, and its transaction commits.
    every_level() fn r10_empty_batch(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        assert_eq!(tx.register_batch(&[]).await.expect("register"), []);
        tx.effect("other").await.expect("effect");
        tx.commit().await.expect("commit");
        assert_eq!(stage.effects("other").await, 1);
    }

    /// Twenty thousand ids pass, beyond what engines bind in one statement.
    once() fn r10_beyond_the_bind_limit(stage) {
        let inbox = stage.inbox("billing");
        let batch: Vec<Message> = (0..20_000).map(|n| message(&format!("m-{}", n * 7 % 20_000))).collect();
        let answers = register_committed(&*inbox, &batch).await;
        assert!(answers.iter().all(Registration::is_new));
        let answers = register_committed(&*inbox, &batch[..200]).await;
        assert_eq!(letters(&answers), "D".repeat(200));
    }

    /// A batch answers what single calls in a twin consumer answer, over pseudo-random batches.
    every_level() fn r10_batch_equals_single_calls(stage) {
        let (batched, single) = (stage.inbox("batched"), stage.inbox("single"));
        let mut state = 42_u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..6 {
            let batch: Vec<Message> = (0..next(9)).map(|_| message(&format!("m-{}", next(12)))).collect();
            let mut tx = single.begin().await.expect("begin");
            let mut expected = Vec::new();
            for message in &batch {
                expected.push(tx.register(message).await.expect("register"));
            }
            tx.commit().await.expect("commit");
            let answers = register_committed(&*batched, &batch).await;
            assert_eq!(letters(&answers), letters(&expected), "{batch:?}");
        }
    }

    /// A batch that was rolled back is forgotten whole.
    every_level() fn r10_rolled_back_batch_is_forgotten(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        assert_eq!(letters(&tx.register_batch(&messages(&["a", "b"])).await.expect("register")), "NN");
        tx.rollback().await.expect("rollback");
        let answers = register_committed(&*inbox, &messages(&["b", "a"])).await;
        assert_eq!(letters(&answers), "NN");
    }

    /// Batches that overlap in opposite order lock their keys in one order and do not deadlock (B40).
    /// A holder of the middle key lets both get as far as they can before it lets go.
    once(OpenTogether, WaitView) fn r10_overlapping_batches_do_not_deadlock(stage) {
        let inbox = stage.inbox("billing");
        let holder = hold(&*inbox, &message("m")).await;
        let mut first = inbox.begin().await.expect("begin");
        let mut second = inbox.begin().await.expect("begin");
        let (first_id, second_id) = (first.id().await, second.id().await);
        let (down, up) = (messages(&["z", "m", "a"]), messages(&["a", "m", "z"]));
        let call = Answered::default();
        let ending = async {
            until_waiting(&*stage, &first_id, &call).await;
            until_waiting(&*stage, &second_id, &call).await;
            holder.rollback().await.expect("rollback");
        };
        let answered = async |mut tx: Box<dyn Session + '_>, batch: &[Message]| {
            let answers = call.note(tx.register_batch(batch)).await.expect("no deadlock");
            tx.commit().await.expect("commit");
            letters(&answers)
        };
        let (down, up, ()) = tokio::join!(answered(first, &down), answered(second, &up), ending);
        let mut both = [down, up];
        both.sort();
        assert_eq!(both, ["DDD", "NNN"]);
    }
}
