//! R5 and R6: in flight is never a duplicate; the wait is bounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use inbox_core::{BatchOutcome, DEFAULT_WAIT, Error, ErrorKind, Message, Registration, RetryPolicy, Waits};
use tokio::task::yield_now;

use super::{
    Answered, assert_duplicate, assert_kind, cases, deliver, handle, hold, id, message, original,
    until_waiting,
};
use crate::suite::Need;
use crate::suite::stage::{HandlerError, Script, Session, Stage, Step, TestInbox};

const SHORT: Duration = Duration::from_millis(200);

/// How the first transaction ends while the second one waits for it.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Commit,
    Rollback,
    Kill,
}

async fn end(stage: &dyn Stage, mut first: Box<dyn Session + '_>, how: End) {
    match how {
        End::Commit => first.commit().await.expect("the holder commits"),
        End::Rollback => first.rollback().await.expect("the holder rolls back"),
        End::Kill => {
            let session = first.id().await;
            stage.kill(&session).await;
        }
    }
}

/// Registers a second copy while a first transaction holds the id, and ends the first one once the
/// second waits. A retryable error, which only a snapshot level may give, is run again.
async fn second_copy(stage: &dyn Stage, inbox: &dyn TestInbox, copy: &Message, how: End) -> Registration {
    let mut first = hold(inbox, copy).await;
    first.effect(copy.id().as_str()).await.expect("effect");

    let second = match stage.capabilities().waits {
        Waits::WhenRegistering => {
            let mut second = inbox.begin().await.expect("begin");
            let session = if stage.offers(Need::WaitView) { Some(second.id().await) } else { None };
            let call = Answered::default();
            let ending = async {
                match &session {
                    Some(session) => until_waiting(stage, session, &call).await,
                    None => yield_now().await,
                }
                end(stage, first, how).await;
            };
            let (answer, ()) = tokio::join!(call.note(second.register(copy)), ending);
            commit_if_answered(second, answer).await
        }
        Waits::WhenBeginning => {
            let beginning = async {
                let mut second = inbox.begin().await?;
                let answer = second.register(copy).await;
                commit_if_answered(second, answer).await
            };
            let ending = async {
                yield_now().await;
                end(stage, first, how).await;
            };
            tokio::join!(beginning, ending).0
        }
        // Both believe to be new until one has committed.
        _ => {
            let mut second = inbox.begin().await.expect("begin");
            let answer = second.register(copy).await;
            end(stage, first, how).await;
            commit_if_answered(second, answer).await
        }
    };
    match second {
        Ok(answer) => answer,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Retryable, "{error}");
            let snapshot = stage.level().is_some_and(|level| level.snapshot);
            assert!(snapshot || stage.capabilities().waits == Waits::LosesAtCommit, "{error}");
            deliver(inbox, copy).await
        }
    }
}

/// Far below a store's default wait, which is what a store that ignores the bound would take, and
/// far above what a slow machine adds.
fn assert_bound_was_kept(stage: &dyn Stage, started: Instant) {
    let longest = SHORT + stage.capabilities().wait_resolution + DEFAULT_WAIT / 2;
    assert!(started.elapsed() < longest, "the bound was {SHORT:?}, the wait {:?}", started.elapsed());
}

async fn commit_if_answered(
    tx: Box<dyn Session + '_>,
    answer: Result<Registration, Error>,
) -> Result<Registration, Error> {
    let answer = answer?;
    tx.commit().await?;
    Ok(answer)
}

cases! {
    /// The second copy waits for the first transaction; once that commits it is a duplicate (B28).
    every_level() fn r05_waiter_of_a_commit_is_duplicate(stage) {
        let inbox = stage.inbox("billing");
        let answer = second_copy(&*stage, &*inbox, &message("m-1"), End::Commit).await;
        assert_duplicate(&answer);
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// Once the first transaction rolls back, the second copy is new (B28, B29): it was never a duplicate.
    every_level() fn r05_waiter_of_a_rollback_is_new(stage) {
        let inbox = stage.inbox("billing");
        let answer = second_copy(&*stage, &*inbox, &message("m-1"), End::Rollback).await;
        assert_eq!(answer, Registration::New);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// Once the first transaction's session dies, the second copy is new (B28).
    every_level(Kill, WaitView, OpenTogether) fn r05_waiter_of_a_killed_holder_is_new(stage) {
        let inbox = stage.inbox("billing");
        let answer = second_copy(&*stage, &*inbox, &message("m-1"), End::Kill).await;
        assert_eq!(answer, Registration::New);
        assert_eq!(stage.effects("m-1").await, 0);
    }

    /// Of three copies the first rolls back: one of the others is new, the last a duplicate or a
    /// retryable loser that finds a duplicate (B08).
    every_level(OpenTogether, WaitView) fn r05_three_copies_of_which_the_first_rolls_back(stage) {
        let inbox = stage.inbox("billing");
        let copy = message("m-1");
        let first = hold(&*inbox, &copy).await;
        let (mut second, mut third) =
            (inbox.begin().await.expect("begin"), inbox.begin().await.expect("begin"));
        let (second_id, third_id) = (second.id().await, third.id().await);

        let call = Answered::default();
        let answered = async |mut tx: Box<dyn Session + '_>| {
            let answer = call.note(tx.register(&copy)).await?;
            if answer.is_new() {
                tx.effect("m-1").await.expect("effect");
            }
            commit_if_answered(tx, Ok(answer)).await
        };
        let ending = async {
            until_waiting(&*stage, &second_id, &call).await;
            until_waiting(&*stage, &third_id, &call).await;
            first.rollback().await.expect("rollback");
        };
        let (second, third, ()) = tokio::join!(answered(second), answered(third), ending);

        let mut new = 0;
        for answer in [second, third] {
            match answer {
                Ok(Registration::New) => new += 1,
                Ok(answer) => assert_duplicate(&answer),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Retryable, "{error}"),
            }
        }
        assert_eq!((new, stage.effects("m-1").await), (1, 1));
        assert_duplicate(&deliver(&*inbox, &copy).await);
    }

    /// A transaction whose snapshot is older than the commit never calls the message new: it finds the
    /// original by a locking read (B26, InnoDB), or meets a retryable error, then a duplicate.
    once(SnapshotLevel, OpenTogether, Sql) fn r05_snapshot_older_than_the_commit_is_never_new(stage) {
        let inbox = stage.inbox("billing");
        let level = stage.level_where(|level| level.snapshot);
        let mut older = inbox.begin_at(&level).await.expect("begin");
        older.execute(&format!("SELECT 1 FROM {}", stage.table())).await.expect("the snapshot is taken");
        handle(&*inbox, &message("m-1")).await;
        match older.register(&message("m-1")).await {
            Ok(answer) => {
                let found = inbox.find(&id("m-1")).await.expect("find");
                assert_eq!(Some(original(answer)), found, "it is not what was committed");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Retryable, "{error}"),
        }
        drop(older);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// A duplicate in a transaction that stays open keeps nobody from registering other ids, next to it
    /// on either side (B19). A store that locks a range or the table while it looks errs here.
    every_level(OpenTogether) fn r05_open_duplicate_does_not_block_other_ids(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-2")).await;
        let mut open = inbox.begin().await.expect("begin");
        assert_duplicate(&open.register(&message("m-2")).await.expect("register"));
        // Only a store that errs waits, and no other may take so long.
        let bounded = stage.inbox_waiting("billing", 10 * SHORT);
        for text in ["m-1", "m-3"] {
            assert_eq!(deliver(&*bounded, &message(text)).await, Registration::New, "{text}");
        }
        open.commit().await.expect("commit");
    }

    /// A key committed before the snapshot is a plain duplicate at every level.
    once(SnapshotLevel, Sql) fn r05_snapshot_younger_than_the_commit_is_duplicate(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-1")).await;
        let level = stage.level_where(|level| level.snapshot);
        let mut tx = inbox.begin_at(&level).await.expect("begin");
        assert_duplicate(&tx.register(&message("m-1")).await.expect("register"));
        tx.commit().await.expect("commit");
    }

    /// A serialisable transaction that is refused at its commit is a retryable error, not `Ok` (B26).
    once(SerializableLevel, OpenTogether, Sql) fn r05_refused_at_commit_is_retryable(stage) {
        let inbox = stage.inbox("billing");
        let level = stage.level_where(|level| level.serializable);
        let mut first = inbox.begin_at(&level).await.expect("begin");
        let mut second = inbox.begin_at(&level).await.expect("begin");
        for (tx, text) in [(&mut first, "m-1"), (&mut second, "m-2")] {
            tx.execute(&format!("SELECT count(*) FROM {}", stage.table())).await.expect("each reads what the other writes");
            assert_eq!(tx.register(&message(text)).await.expect("register"), Registration::New);
        }
        first.commit().await.expect("the first to commit wins");
        assert_kind(second.commit().await, ErrorKind::Retryable);
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
        assert_eq!(deliver(&*inbox, &message("m-2")).await, Registration::New);
    }

    /// Without a wait an id in flight is `Busy`: no answer, so that nobody acknowledges it (B29).
    every_level(Waits) fn r06_in_flight_without_wait_is_busy(stage) {
        let first = stage.inbox("billing");
        let holder = hold(&*first, &message("m-1")).await;
        let started = Instant::now();
        assert_kind(within(&*stage.inbox_waiting("billing", Duration::ZERO)).await, ErrorKind::Busy);
        assert_bound_was_kept(&*stage, started);
        holder.rollback().await.expect("rollback");
        assert_eq!(deliver(&*first, &message("m-1")).await, Registration::New);
    }

    /// The wait ends at its bound with `Busy`, while the holder is still there (B28).
    every_level(Waits) fn r06_wait_is_bounded(stage) {
        let first = stage.inbox("billing");
        let holder = hold(&*first, &message("m-1")).await;
        let started = Instant::now();
        assert_kind(within(&*stage.inbox_waiting("billing", SHORT)).await, ErrorKind::Busy);
        assert!(started.elapsed() >= SHORT / 2, "it did not wait: {:?}", started.elapsed());
        assert_bound_was_kept(&*stage, started);
        holder.commit().await.expect("commit");
        assert_duplicate(&deliver(&*first, &message("m-1")).await);
    }

    /// A batch that meets an id in flight is `Busy` as well, as a whole.
    every_level(Waits) fn r06_batch_wait_is_bounded(stage) {
        let first = stage.inbox("billing");
        let holder = hold(&*first, &message("m-2")).await;
        let second = stage.inbox_waiting("billing", SHORT);
        let started = Instant::now();
        let answer = async {
            let mut tx = second.begin().await?;
            tx.register_batch(&super::messages(&["m-1", "m-2", "m-3"])).await
        };
        assert_kind(answer.await, ErrorKind::Busy);
        assert_bound_was_kept(&*stage, started);
        holder.rollback().await.expect("rollback");
        for text in ["m-1", "m-2", "m-3"] {
            assert_eq!(deliver(&*first, &message(text)).await, Registration::New);
        }
    }

    /// After `Busy` the transaction is over: what it wrote before cannot be committed (B10).
    every_level(OpenTogether) fn r06_after_busy_nothing_is_committed(stage) {
        let first = stage.inbox("billing");
        let holder = hold(&*first, &message("m-1")).await;
        let second = stage.inbox_waiting("billing", SHORT);
        let mut tx = second.begin().await.expect("begin");
        tx.effect("before").await.expect("effect");
        assert_kind(tx.register_by_reference(&message("m-1")).await, ErrorKind::Busy);
        // An error or nothing, as the engine likes; what counts is the commit.
        let _ = tx.effect("after").await;
        assert!(tx.commit().await.is_err(), "a transaction that met Busy was committed");
        holder.rollback().await.expect("rollback");
        assert_eq!((stage.effects("before").await, stage.effects("after").await), (0, 0));
    }

    /// The bound leaves no setting behind in the session, after an answer of any kind.
    every_level(Settings) fn r06_bound_leaves_no_setting_behind(stage) {
        let inbox = stage.inbox_waiting("billing", SHORT);
        let mut tx = inbox.begin().await.expect("begin");
        let before = tx.settings().await;
        for text in ["m-1", "m-1"] {
            tx.register(&message(text)).await.expect("register");
            assert_eq!(tx.settings().await, before);
        }
        tx.register_batch(&super::messages(&["m-1", "m-2"])).await.expect("register");
        assert_eq!(tx.settings().await, before);
        tx.commit().await.expect("commit");
        // The pool hands the same session out again.
        let mut next = inbox.begin().await.expect("begin");
        assert_eq!(next.settings().await, before);
    }

    /// Two transactions that hold what the other wants: the engine's loser is retryable (R13).
    every_level(OpenTogether, WaitView) fn r13_deadlock_is_retryable(stage) {
        let inbox = stage.inbox("billing");
        let mut first = hold(&*inbox, &message("a")).await;
        let mut second = hold(&*inbox, &message("b")).await;
        let session = first.id().await;
        let (a, b) = (message("a"), message("b"));
        let call = Answered::default();
        let one = async {
            let answer = call.note(first.register(&b)).await;
            commit_if_answered(first, answer).await
        };
        let other = async {
            until_waiting(&*stage, &session, &call).await;
            let answer = second.register(&a).await;
            commit_if_answered(second, answer).await
        };
        let answers: [_; 2] = tokio::join!(one, other).into();
        let lost = answers.iter().filter_map(|answer| answer.as_ref().err());
        let kinds: Vec<_> = lost.map(Error::kind).collect();
        assert_eq!(kinds, [ErrorKind::Retryable], "{answers:?}");
        for text in ["a", "b"] {
            deliver(&*inbox, &message(text)).await;
            assert!(inbox.find(&id(text)).await.expect("find").is_some(), "{text}");
        }
    }

    /// What the caller calls retryable of the handler's errors is run again from the begin, and only
    /// the run that succeeds is committed (R13).
    once() fn r13_retryable_errors_of_the_handler_are_run_again(stage) {
        let inbox = stage.inbox("billing");
        let runs = AtomicUsize::new(0);
        let script = Script::new(move |_| match runs.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Step::Fail,
            _ => Step::Effect,
        });
        let outcome = inbox.process_retrying(&message("m-1"), &script).await.expect("the third run");
        assert!(outcome.is_processed());
        assert_eq!((script.calls(), stage.effects("m-1").await), (3, 1));
    }

    /// The same for a batch, which is run again whole before its messages are handled alone (R13).
    once() fn r13_retryable_errors_of_a_batch_are_run_again(stage) {
        let inbox = stage.inbox("billing");
        let runs = AtomicUsize::new(0);
        let script = Script::new(move |_| match runs.fetch_add(1, Ordering::SeqCst) {
            0 => Step::Fail,
            _ => Step::Effect,
        });
        let batch = super::messages(&["m-1", "m-2"]);
        let outcomes = inbox.process_batch_retrying(&batch, &script).await.expect("the second run");
        assert!(matches!(outcomes[..], [BatchOutcome::Processed, BatchOutcome::Processed]), "{outcomes:?}");
        assert_eq!((script.calls(), stage.effects("m-1").await, stage.effects("m-2").await), (3, 1, 1));
    }

    /// Running again is bounded: a handler that always fails ends with its own error (R13).
    once() fn r13_running_again_is_bounded(stage) {
        let inbox = stage.inbox("billing");
        let script = Script::new(|_| Step::Fail);
        let outcome = inbox.process_retrying(&message("m-1"), &script).await;
        assert!(matches!(outcome, Err(HandlerError::Failed)), "{outcome:?}");
        let most = usize::try_from(RetryPolicy::default().max_attempts).expect("a small number");
        assert_eq!((script.calls(), stage.effects("m-1").await), (most, 0));
    }

    /// A session that was ended from outside is a retryable error: run the transaction again (R13).
    every_level(Kill) fn r13_killed_session_is_retryable(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        let session = tx.id().await;
        stage.kill(&session).await;
        let error = tx.register(&message("m-1")).await.expect_err("the session is gone");
        assert!(error.is_retryable(), "{error}");
        drop(tx);
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }
}

/// Registers `m-1` in a second transaction: the error may come at its begin or at the registration.
async fn within(inbox: &dyn TestInbox) -> Result<Registration, Error> {
    let mut tx = inbox.begin().await?;
    tx.register(&message("m-1")).await
}
