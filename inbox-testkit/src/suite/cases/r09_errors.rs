//! R8 and R9: a duplicate is proved; an error is never an answer and never committed over.

use inbox_core::{ErrorKind, Registration};
use tokio::select;

use super::{
    Answered, assert_duplicate, assert_kind, cases, deliver, handle, hold, message, messages, until_waiting,
};
use crate::suite::stage::{HandlerError, Script, Step};

cases! {
    /// Every duplicate can be proved by a row that is really there (B02).
    every_level() fn r08_duplicate_is_proved_by_a_row(stage) {
        let inbox = stage.inbox("billing");
        for text in ["m-1", "m-2", "m-1", "m-3", "m-2"] {
            let answer = deliver(&*inbox, &message(text)).await;
            let found = inbox.find(message(text).id()).await.expect("find").expect("a row is there");
            if let Registration::Duplicate(original) = answer {
                assert_eq!(original, found, "{text}");
            }
        }
    }

    /// An insert that something swallowed is `Unconfirmed`, neither new nor a duplicate (B44).
    every_level(SwallowedInserts) fn r08_swallowed_insert_is_unconfirmed(stage) {
        for sql in stage.swallow_inserts() {
            stage.execute(&sql).await;
        }
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        assert_kind(tx.register(&message("m-1")).await, ErrorKind::Unconfirmed);
    }

    /// The same in a batch, where one row may be there and another not.
    every_level(SwallowedInserts) fn r08_swallowed_insert_in_a_batch_is_unconfirmed(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m-1")).await;
        for sql in stage.swallow_inserts() {
            stage.execute(&sql).await;
        }
        let mut tx = inbox.begin().await.expect("begin");
        assert_kind(tx.register_batch(&messages(&["m-1", "m-2"])).await, ErrorKind::Unconfirmed);
    }

    /// A missing table is an error of kind `Schema`, not an answer.
    every_level(Sql) fn r09_missing_table_is_an_error(stage) {
        stage.execute(&format!("DROP TABLE {}", stage.table())).await;
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        assert_kind(tx.register(&message("m-1")).await, ErrorKind::Schema);
        drop(tx);
        let mut tx = inbox.begin().await.expect("begin");
        assert_kind(tx.register_batch(&messages(&["m-1"])).await, ErrorKind::Schema);
    }

    /// After an error of the guard's own call, nothing of the transaction can be committed (B10).
    every_level() fn r09_after_an_error_the_guard_refuses_to_commit(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-1").with_payload(b"1")).await;
        let mut tx = inbox.begin().await.expect("begin");
        tx.effect("before").await.expect("effect");
        assert_kind(tx.register(&message("m-1").with_payload(b"2")).await, ErrorKind::Mismatch);
        let _ = tx.effect("after").await;
        assert_kind(tx.commit().await, ErrorKind::Aborted);
        assert_eq!((stage.effects("before").await, stage.effects("after").await), (0, 0));
    }

    /// After an error of a call by reference the transaction is condemned: later effects fail with it.
    every_level() fn r09_after_an_error_by_reference_the_transaction_is_condemned(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-1").with_payload(b"1")).await;
        let mut tx = inbox.begin().await.expect("begin");
        tx.effect("before").await.expect("effect");
        let answer = tx.register_by_reference(&message("m-1").with_payload(b"2")).await;
        assert_kind(answer, ErrorKind::Mismatch);
        let _ = tx.effect("after").await;
        let refused = tx.commit().await.expect_err("a condemned transaction was committed");
        // Condemned by ending the session, on engines that know no other way.
        assert!(matches!(refused.kind(), ErrorKind::Aborted | ErrorKind::UnknownOutcome), "{refused}");
        assert_eq!((stage.effects("before").await, stage.effects("after").await), (0, 0));
    }

    /// A call that was cancelled while it waited leaves a transaction that cannot be committed.
    every_level(OpenTogether, WaitView) fn r09_cancelled_call_cannot_be_committed_over(stage) {
        let inbox = stage.inbox("billing");
        let holder = hold(&*inbox, &message("m-1")).await;
        let mut tx = inbox.begin().await.expect("begin");
        let session = tx.id().await;
        let (copy, call) = (message("m-1"), Answered::default());
        select! {
            answer = tx.register(&copy) => panic!("it did not wait: {answer:?}"),
            () = until_waiting(&*stage, &session, &call) => {}
        }
        holder.commit().await.expect("commit");
        let _ = tx.effect("m-1").await;
        assert_kind(tx.commit().await, ErrorKind::Aborted);
        assert_eq!(stage.effects("m-1").await, 0);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// By value the transaction comes back for a new message only, and its commit is the guarded one.
    once() fn r09_by_value_handles_once(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::effect();
        assert!(inbox.register_by_value(&message("m-1"), &script).await.expect("new").is_none());
        assert!(inbox.register_by_value(&message("m-1"), &script).await.expect("duplicate").is_some());
        assert_eq!((script.calls(), stage.effects("m-1").await), (1, 1));
        let failing = Script::new(|_| Step::Fail);
        let failed = inbox.register_by_value(&message("m-2"), &failing).await;
        assert!(matches!(failed, Err(HandlerError::Failed)), "{failed:?}");
        assert_eq!(deliver(&*inbox, &message("m-2")).await, Registration::New);
    }
}
