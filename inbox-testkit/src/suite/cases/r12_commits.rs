//! R12: `Ok` is a certain commit.

use inbox_core::{ErrorKind, Registration};

use super::{assert_duplicate, assert_kind, cases, deliver, handle, hold, id, message, messages};
use crate::suite::stage::{HandlerError, Script, Step};

cases! {
    /// After `Ok` of a commit another session finds the registration and the effect.
    every_level() fn r12_ok_means_committed(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-1")).await;
        assert!(inbox.find(&id("m-1")).await.expect("find").is_some(), "the commit lied");
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A transaction that saw only duplicates commits normally, with what else it wrote.
    every_level() fn r12_transaction_of_duplicates_commits(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m-1")).await;
        let mut tx = inbox.begin().await.expect("begin");
        assert_duplicate(&tx.register(&message("m-1")).await.expect("register"));
        for answer in tx.register_batch(&messages(&["m-1", "m-1"])).await.expect("register") {
            assert_duplicate(&answer);
        }
        tx.effect("other").await.expect("effect");
        tx.commit().await.expect("commit");
        assert_eq!(stage.effects("other").await, 1);
    }

    /// Several registrations of one transaction, single and batched, commit together.
    every_level() fn r12_many_registrations_commit_together(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("a")).await;
        tx.register_batch(&messages(&["b", "a", "c", "b"])).await.expect("register");
        assert_eq!(tx.register(&message("d")).await.expect("register"), Registration::New);
        tx.commit().await.expect("commit");
        for text in ["a", "b", "c", "d"] {
            assert!(inbox.find(&id(text)).await.expect("find").is_some(), "{text}");
        }
    }

    /// A swallowed SQL error is an error at commit at the latest, and nothing that came before it is
    /// committed (B11, B31).
    every_level(ProvedCommit, AbortingSql, Sql) fn r12_swallowed_error_is_not_ok(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.effect("before").await.expect("effect");
        assert!(tx.execute(stage.aborting_sql()).await.is_err(), "the probe's statement must fail");
        let _ = tx.effect("after").await;
        let error = tx.commit().await.expect_err("the transaction was aborted");
        assert_eq!(stage.effects("before").await, 0);
        match error.kind() {
            ErrorKind::Aborted => assert_eq!(stage.effects("after").await, 0),
            // Where the engine ended the transaction, what came after it was committed alone. No
            // store can prevent that, and this kind says so.
            kind => assert_eq!(kind, ErrorKind::TransactionLost, "{error}"),
        }
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }

    /// A transaction that was aborted before anything was registered is not `Ok` either.
    every_level(ProvedCommit, AbortingSql, Sql) fn r12_swallowed_error_after_duplicates_is_not_ok(stage) {
        let inbox = stage.inbox("billing");
        deliver(&*inbox, &message("m-1")).await;
        let mut tx = inbox.begin().await.expect("begin");
        assert_duplicate(&tx.register(&message("m-1")).await.expect("register"));
        assert!(tx.execute(stage.aborting_sql()).await.is_err(), "the probe's statement must fail");
        assert!(tx.commit().await.is_err(), "an aborted transaction was committed");
    }

    /// A raw COMMIT inside the transaction is noticed: the effect may be committed, so the error is
    /// `TransactionLost` and not retryable.
    every_level(ProvedCommit, Sql) fn r12_raw_commit_is_noticed(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.execute("COMMIT").await.expect("commit");
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// A raw ROLLBACK inside the transaction is noticed.
    every_level(ProvedCommit, Sql) fn r12_raw_rollback_is_noticed(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.effect("m-1").await.expect("effect");
        tx.execute("ROLLBACK").await.expect("rollback");
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
        assert_eq!(stage.effects("m-1").await, 0);
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }

    /// A transaction that raw SQL committed, with another one begun in its place, is noticed: the new
    /// one is open, but it does not hold the registration.
    every_level(NoticedRestart, Sql) fn r12_restarted_transaction_is_noticed(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.execute("COMMIT; BEGIN").await.expect("restart");
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// The same under a handler that then fails: the rollback notices it.
    once(NoticedRestart, Sql) fn r12_restarted_under_a_failing_handler_is_noticed(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::new(|_| Step::RestartAndFail);
        let lost = inbox.process_retrying(&message("m-1"), &script).await;
        assert!(
            matches!(&lost, Err(HandlerError::Inbox(error)) if error.kind() == ErrorKind::TransactionLost),
            "{lost:?}"
        );
        assert_eq!(script.calls(), 1);
    }

    /// What a savepoint undid and the guard registered again is there, and commits.
    every_level(Savepoints, Sql) fn r12_undone_and_registered_again_commits(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        tx.execute("SAVEPOINT before_it").await.expect("savepoint");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        tx.execute("ROLLBACK TO SAVEPOINT before_it").await.expect("rollback to");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        tx.effect("m-1").await.expect("effect");
        tx.commit().await.expect("commit");
        assert_eq!(stage.effects("m-1").await, 1);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// A handler that ends the transaction and then fails is `TransactionLost`, not the handler's error:
    /// run again, the message would be a duplicate of its own half effect.
    once(ProvedCommit, Sql) fn r12_lost_under_a_failing_handler_is_noticed(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::new(|_| Step::CommitAndFail);
        let lost = inbox.process(&message("m-1"), &script).await;
        assert!(
            matches!(&lost, Err(HandlerError::Inbox(error)) if error.kind() == ErrorKind::TransactionLost),
            "{lost:?}"
        );
        assert_eq!(script.calls(), 1);
    }

    /// The same in a batch, which must not fall back to handling its messages one by one.
    once(ProvedCommit, Sql) fn r12_lost_under_a_failing_batch_is_noticed(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::new(|_| Step::CommitAndFail);
        let lost = inbox.process_batch(&messages(&["m-1", "m-2"]), &script).await;
        assert!(
            matches!(&lost, Err(HandlerError::Inbox(error)) if error.kind() == ErrorKind::TransactionLost),
            "{lost:?}"
        );
        assert_eq!(script.calls(), 1);
    }

    /// A registration of the guard that a savepoint undid refuses the commit (B33): the caller was
    /// told `New` and would acknowledge a message that nobody remembers.
    every_level(NoticedSavepoint, Savepoints, Sql) fn r12_undone_registration_refuses_the_commit(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("kept")).await;
        tx.execute("SAVEPOINT before_it").await.expect("savepoint");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        tx.execute("ROLLBACK TO SAVEPOINT before_it").await.expect("rollback to");
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
        assert_eq!(deliver(&*inbox, &message("kept")).await, Registration::New);
    }

    /// Undone and replaced by another registration: the count is right, the commit is refused all the same.
    every_level(NoticedSavepoint, Savepoints, Sql) fn r12_undone_and_replaced_refuses_the_commit(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        tx.execute("SAVEPOINT before_it").await.expect("savepoint");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        tx.execute("ROLLBACK TO SAVEPOINT before_it").await.expect("rollback to");
        assert_eq!(tx.register(&message("m-2")).await.expect("register"), Registration::New);
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
    }

    /// A savepoint that is released, and one that undoes only work of the caller's, change nothing.
    every_level(Savepoints, Sql) fn r12_other_savepoints_do_not_disturb_the_commit(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        tx.execute("SAVEPOINT around").await.expect("savepoint");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        tx.execute("RELEASE SAVEPOINT around").await.expect("release");
        tx.execute("SAVEPOINT later").await.expect("savepoint");
        tx.effect("undone").await.expect("effect");
        tx.execute("ROLLBACK TO SAVEPOINT later").await.expect("rollback to");
        tx.effect("m-1").await.expect("effect");
        tx.commit().await.expect("commit");
        assert_eq!((stage.effects("m-1").await, stage.effects("undone").await), (1, 0));
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }
}
