//! R17 and R18: a future dropped anywhere leaves nothing open; a panic rolls back and unwinds.

use inbox_core::{BatchOutcome, ErrorKind, Registration};
use tokio::select;
use tokio::task::yield_now;

use super::{cases, deliver, drop_after, handle, hold, message, messages, panics, process, until};
use crate::suite::Need;
use crate::suite::stage::{HandlerError, Script, Stage, Step};

/// At how many places a future is dropped: more than any call of a store has awaits.
const PLACES: usize = 24;

async fn until_none_is_open(stage: &dyn Stage) {
    until("no transaction is open", async || stage.open_transactions().await == 0).await;
}

/// Lets the server finish what a dropped future had sent, where that can be seen, so that what it
/// leaves is there before the next delivery.
async fn until_settled(stage: &dyn Stage) {
    if stage.offers(Need::OpenTransactions) {
        until_none_is_open(stage).await;
    }
}

cases! {
    /// A `begin` that is dropped at any of its awaits leaves no transaction open.
    once(OpenTransactions) fn r17_dropped_begin_leaves_nothing_open(stage) {
        let inbox = stage.inbox("billing");
        for place in 0..PLACES {
            drop(drop_after(place, inbox.begin()).await);
            // After each: the next begin may take the same session and mend what was left.
            until_none_is_open(&*stage).await;
        }
        handle(&*inbox, &message("m-1")).await;
    }

    /// A `process` that is dropped at any of its awaits has either committed or left nothing.
    once() fn r17_dropped_process_is_whole_or_nothing(stage) {
        let inbox = stage.inbox("billing");
        for place in 0..PLACES {
            let copy = message(&format!("m-{place}"));
            drop(drop_after(place, inbox.process(&copy, &Script::effect())).await);
            until_settled(&*stage).await;
        }
        for place in 0..PLACES {
            let text = format!("m-{place}");
            process(&*inbox, &message(&text)).await;
            assert_eq!(stage.effects(&text).await, 1, "dropped after {place} polls");
        }
    }

    /// A `process` that is dropped inside its handler rolls back.
    once() fn r17_dropped_handler_rolls_back(stage) {
        let inbox = stage.inbox("billing");
        let (copy, hanging) = (message("m-1"), Script::new(|_| Step::Hang));
        select! {
            outcome = inbox.process(&copy, &hanging) => panic!("it hangs: {outcome:?}"),
            () = async { while hanging.calls() == 0 { yield_now().await } } => {}
        }
        assert!(process(&*inbox, &message("m-1")).await, "the registration was left behind");
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A `commit` that is dropped at any of its awaits has either committed or left nothing.
    once() fn r17_dropped_commit_is_whole_or_nothing(stage) {
        let inbox = stage.inbox("billing");
        for place in 0..PLACES {
            let text = format!("m-{place}");
            let mut tx = hold(&*inbox, &message(&text)).await;
            tx.effect(&text).await.expect("effect");
            drop(drop_after(place, tx.commit()).await);
            until_settled(&*stage).await;
            process(&*inbox, &message(&text)).await;
            assert_eq!(stage.effects(&text).await, 1, "dropped after {place} polls");
        }
    }

    /// A `register` that is dropped at any of its awaits leaves no half-made registration.
    once() fn r17_dropped_register_leaves_nothing(stage) {
        let inbox = stage.inbox("billing");
        for place in 0..PLACES {
            let copy = message(&format!("m-{place}"));
            let mut tx = inbox.begin().await.expect("begin");
            let answered = drop_after(place, tx.register(&copy)).await.is_some();
            let committed = tx.commit().await.is_ok();
            assert_eq!(committed, answered, "dropped after {place} polls");
            until_settled(&*stage).await;
            let expected = if committed { "duplicate" } else { "new" };
            let found = if deliver(&*inbox, &copy).await.is_new() { "new" } else { "duplicate" };
            assert_eq!(found, expected, "dropped after {place} polls");
        }
    }

    /// A handler's panic rolls back and goes on unwinding; the redelivery is new.
    once() fn r18_panic_rolls_back_and_unwinds(stage) {
        let inbox = stage.inbox("billing");
        let panicking = Script::new(|_| Step::Panic);
        assert!(panics(inbox.process(&message("m-1"), &panicking)).await, "the panic was swallowed");
        assert_eq!((panicking.calls(), stage.effects("m-1").await), (1, 0));
        assert!(process(&*inbox, &message("m-1")).await);
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A panic in a batch rolls the whole batch back and unwinds.
    once() fn r18_panic_in_a_batch_rolls_back_and_unwinds(stage) {
        let inbox = stage.inbox("billing");
        let panicking = Script::new(|text| if text == "b" { Step::Panic } else { Step::Effect });
        let batch = messages(&["a", "b"]);
        assert!(panics(inbox.process_batch(&batch, &panicking)).await, "the panic was swallowed");
        assert_eq!(stage.effects("a").await, 0);
        assert_eq!(deliver(&*inbox, &message("a")).await, Registration::New);
    }

    /// A batch is one transaction; the handler sees the new messages only, answers are by position.
    once() fn r18_batch_handles_the_new_messages_once(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("b")).await;
        let script = Script::effect();
        let outcomes = inbox.process_batch(&messages(&["a", "b", "c", "a"]), &script).await.expect("batch");
        let processed: Vec<bool> = outcomes.iter().map(|o| matches!(o, BatchOutcome::Processed)).collect();
        assert_eq!(processed, [true, false, true, false], "{outcomes:?}");
        assert_eq!(script.calls(), 2);
        for text in ["a", "b", "c"] {
            assert_eq!(stage.effects(text).await, 1, "{text}");
        }
    }

    /// A message whose handler swallows an error fails alone in the same way as among others: what a
    /// poll of the broker happened to return must not decide.
    once(ProvedCommit, AbortingSql, Sql) fn r18_batch_of_one_answers_as_a_larger_one(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::new(|text| if text == "b" { Step::SwallowError } else { Step::Effect });
        let alone = inbox.process_batch(&messages(&["b"]), &script).await;
        let among = inbox.process_batch(&messages(&["b", "c"]), &script).await;
        match (&alone, &among) {
            (Ok(alone), Ok(among)) => {
                assert!(matches!(alone[..], [BatchOutcome::Failed(_)]), "{alone:?}");
                assert!(matches!(among[..], [BatchOutcome::Failed(_), BatchOutcome::Processed]), "{among:?}");
            }
            (Err(_), Err(_)) => {}
            // The engine ended the transaction: among others nobody knows whose handler it was.
            (Ok(alone), Err(HandlerError::Inbox(among))) if among.kind() == ErrorKind::TransactionLost => {
                assert!(
                    matches!(&alone[..], [BatchOutcome::Failed(HandlerError::Inbox(lost))]
                        if lost.kind() == ErrorKind::TransactionLost),
                    "{alone:?}"
                );
            }
            _ => panic!("alone {alone:?}, among others {among:?}"),
        }
        assert_eq!(stage.effects("b").await, 0);
    }

    /// One failing message does not condemn its batch: the others are handled one by one, each once.
    once() fn r18_failing_message_does_not_condemn_its_batch(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::new(|text| if text == "b" { Step::Fail } else { Step::Effect });
        let outcomes = inbox.process_batch(&messages(&["a", "b", "c"]), &script).await.expect("batch");
        assert!(
            matches!(
                outcomes[..],
                [BatchOutcome::Processed, BatchOutcome::Failed(HandlerError::Failed), BatchOutcome::Processed]
            ),
            "{outcomes:?}"
        );
        let mut effects = Vec::new();
        for text in ["a", "b", "c"] {
            effects.push(stage.effects(text).await);
        }
        assert_eq!(effects, [1, 0, 1]);
        assert!(process(&*inbox, &message("b")).await, "the failing message must be new on redelivery");
    }
}
