//! D3: effect and completion are one transaction, behind the lease's token.

use inbox_core::{ErrorKind, Filter, Lease, LeaseToken, Renewal, State};

use super::deferred::{
    LEASE, PART, assert_leased, assert_nothing_due, claim, claim_one, complete, counts, envelope, ids, kept,
    keyed, leases, ordering_key, receive, take,
};
use super::{assert_kind, cases, drop_after, until};
use crate::suite::deferred::keeper::{Claimed, Doing, Handling, KeeperSession, Setup, TestKeeper};
use crate::suite::stage::Stage;

/// A message that was claimed, and claimed again after its lease had run out: the old lease and the new.
async fn taken_over(stage: &dyn Stage, keeper: &dyn TestKeeper) -> (Claimed, Claimed) {
    receive(keeper, [envelope("m-1")]).await;
    let old = claim_one(keeper).await;
    stage.advance_clock(LEASE).await;
    (old, claim_one(keeper).await)
}

/// Nothing that the old lease's holder tried has changed the row: the new holder completes it.
async fn assert_untouched(stage: &dyn Stage, keeper: &dyn TestKeeper, new: &Claimed) {
    let message = kept(keeper, "m-1").await;
    assert_eq!((message.state, message.leased, message.attempts), (State::Pending, true, 2));
    assert_eq!(message.history.len(), 1, "only the abandoned attempt: {:?}", message.history);
    assert_nothing_due(keeper, "the new lease holds").await;
    complete(keeper, new).await;
    assert_eq!(stage.effects("m-1").await, 1);
}

/// A transaction that has completed the message and written its effect, and is still open.
async fn completing<'a>(keeper: &'a dyn TestKeeper, claimed: &Claimed) -> Box<dyn KeeperSession + 'a> {
    let mut tx = keeper.begin().await.expect("begin");
    assert_eq!(tx.complete(&[claimed.lease]).await.expect("complete"), [true]);
    tx.effect(&claimed.id()).await.expect("the effect is written");
    tx
}

cases! {
    /// Effect and completion are committed together; the message is done, bears no lease, and is never
    /// claimed again.
    every_level(Deferred) fn d03_completed_with_its_effect_is_done(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        complete(&*keeper, &claim_one(&*keeper).await).await;
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.state, message.leased, message.attempts), (State::Done, false, 1));
        assert_eq!(stage.effects("m-1").await, 1);
        assert_nothing_due(&*keeper, "it is done").await;
    }

    /// A completion that is rolled back leaves the message pending under its lease, and the effect nowhere;
    /// the same lease completes it later: look for a completion on another connection.
    every_level(Deferred) fn d03_rolled_back_completion_leaves_it_leased(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        completing(&*keeper, &claimed).await.rollback().await.expect("roll back");
        assert_leased(&*keeper, "m-1", 1).await;
        assert_eq!(stage.effects("m-1").await, 0);
        drop(completing(&*keeper, &claimed).await);
        assert_eq!(stage.effects("m-1").await, 0);
        complete(&*keeper, &claimed).await;
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A session that is killed after the completion leaves the message leased; it is handled once, later.
    once(Deferred, Kill) fn d03_killed_completion_leaves_it_leased(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        let mut tx = completing(&*keeper, &claimed).await;
        let session = tx.id().await;
        stage.kill(&session).await;
        let error = tx.commit().await.expect_err("the session was killed");
        assert!(error.is_retryable(), "{error}");
        assert_leased(&*keeper, "m-1", 1).await;
        assert_eq!(stage.effects("m-1").await, 0);
        complete(&*keeper, &claimed).await;
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// Whose lease was taken over is told when completing, before the effect (B83); the new holder's
    /// attempt stands.
    every_level(Deferred, Clock) fn d03_b83_taken_over_cannot_complete(stage) {
        let keeper = stage.keeper("billing");
        let (old, new) = taken_over(&*stage, &*keeper).await;
        let mut tx = keeper.begin().await.expect("begin");
        assert_eq!(tx.complete(&[old.lease]).await.expect("complete"), [false]);
        tx.commit().await.expect("nothing was completed, and that commits");
        assert_untouched(&*stage, &*keeper, &new).await;
    }

    /// Whose lease was taken over cannot write its failure into the new holder's attempt (B83).
    once(Deferred, Clock) fn d03_b83_taken_over_cannot_fail(stage) {
        let keeper = stage.keeper("billing");
        let (old, new) = taken_over(&*stage, &*keeper).await;
        for retry_after in [Some(std::time::Duration::ZERO), None] {
            assert_kind(keeper.fail(old.lease, retry_after, "\"late\"").await, ErrorKind::LeaseLost);
        }
        assert_untouched(&*stage, &*keeper, &new).await;
    }

    /// Whose lease was taken over cannot renew it: the new holder's would run longer or shorter.
    once(Deferred, Clock) fn d03_b83_taken_over_cannot_renew(stage) {
        let keeper = stage.keeper("billing");
        let (old, new) = taken_over(&*stage, &*keeper).await;
        let due = kept(&*keeper, "m-1").await.due_at;
        let answer = keeper.renew(&[old.lease, new.lease], 2 * LEASE).await.expect("renew");
        assert_eq!(answer, [Renewal::Lost, Renewal::Renewed], "by position");
        assert!(kept(&*keeper, "m-1").await.due_at > due + PART);
        let answer = keeper.renew(&[old.lease], std::time::Duration::ZERO).await.expect("renew");
        assert_eq!(answer, [Renewal::Lost]);
        assert_untouched(&*stage, &*keeper, &new).await;
    }

    /// Whose lease was taken over cannot give the message back under the new holder.
    once(Deferred, Clock) fn d03_b83_taken_over_cannot_release(stage) {
        let keeper = stage.keeper("billing");
        let (old, new) = taken_over(&*stage, &*keeper).await;
        assert_eq!(keeper.release(&[old.lease]).await.expect("release"), 0);
        assert_untouched(&*stage, &*keeper, &new).await;
    }

    /// A lease ends with its message: of one that is done, dead or given back, it changes nothing more.
    once(Deferred) fn d03_settled_lease_changes_nothing(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["done", "dead", "free"].map(envelope)).await;
        let claimed = claim(&*keeper, take(10)).await;
        for one in &claimed {
            match one.id().as_str() {
                "done" => complete(&*keeper, one).await,
                "dead" => keeper.fail(one.lease, None, "\"broken\"").await.expect("fail"),
                _ => assert_eq!(keeper.release(&[one.lease]).await.expect("release"), 1),
            }
        }
        for one in &claimed {
            let before = kept(&*keeper, &one.id()).await;
            let mut tx = keeper.begin().await.expect("begin");
            assert_eq!(tx.complete(&[one.lease]).await.expect("complete"), [false], "{}", one.id());
            tx.rollback().await.expect("roll back");
            assert_kind(keeper.fail(one.lease, None, "\"again\"").await, ErrorKind::LeaseLost);
            assert_eq!(keeper.renew(&[one.lease], LEASE).await.expect("renew"), [Renewal::Lost]);
            assert_eq!(keeper.release(&[one.lease]).await.expect("release"), 0);
            assert_eq!(kept(&*keeper, &one.id()).await, before);
        }
    }

    /// While a lease holds nobody else gets the message (B81), however often they look.
    once(Deferred, Clock) fn d03_b81_leased_is_nobody_elses(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        for _ in 0..3 {
            assert_nothing_due(&*keeper, "its lease holds").await;
            stage.advance_clock(LEASE / 4).await;
        }
        assert_nothing_due(&*keeper, "its lease holds").await;
        complete(&*keeper, &claimed).await;
    }

    /// A lease that ran out and that nobody took over still completes: the token is the fence, not the time.
    once(Deferred, Clock) fn d03_lease_that_nobody_took_over_completes(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        stage.advance_clock(10 * LEASE).await;
        complete(&*keeper, &claimed).await;
        assert_nothing_due(&*keeper, "it is done").await;
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// Completing several answers by position, and completes those whose lease holds.
    every_level(Deferred) fn d03_completions_answer_by_position(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "b", "c"].map(envelope)).await;
        let claimed = claim(&*keeper, take(10)).await;
        let given = [
            Lease { sequence: claimed[1].lease.sequence, token: LeaseToken::random() },
            claimed[2].lease,
            Lease { sequence: i64::MAX, token: claimed[0].lease.token },
            claimed[0].lease,
        ];
        let mut tx = keeper.begin().await.expect("begin");
        assert_eq!(tx.complete(&given).await.expect("complete"), [false, true, false, true]);
        assert!(tx.complete(&[]).await.expect("complete nothing").is_empty());
        tx.commit().await.expect("commit");
        assert_eq!(counts(&*keeper).await, [1, 2, 0]);
        assert_leased(&*keeper, &claimed[1].id(), 1).await;
    }

    /// Renewing and releasing several answer for each.
    once(Deferred) fn d03_renewals_and_releases_count_each(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "b", "c"].map(envelope)).await;
        let claimed = claim(&*keeper, take(10)).await;
        let lost = Lease { sequence: claimed[1].lease.sequence, token: LeaseToken::random() };
        let given = [lost, claimed[2].lease, claimed[0].lease];
        let renewed = keeper.renew(&given, LEASE).await.expect("renew");
        assert_eq!(renewed, [Renewal::Lost, Renewal::Renewed, Renewal::Renewed]);
        assert_eq!(keeper.release(&given).await.expect("release"), 2);
        assert_eq!(ids(&claim(&*keeper, take(10)).await), ids(&[claimed[0].clone(), claimed[2].clone()]));
        assert!(keeper.renew(&[], LEASE).await.expect("renew nothing").is_empty());
        assert_eq!(keeper.release(&[]).await.expect("release nothing"), 0);
    }

    /// A swallowed SQL error after the completion is an error at commit, and the message is still leased
    /// (R12).
    every_level(Deferred, ProvedCommit, AbortingSql, Sql) fn d03_swallowed_error_is_no_completion(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        let mut tx = completing(&*keeper, &claimed).await;
        assert!(tx.execute(stage.aborting_sql()).await.is_err(), "the probe's statement must fail");
        let error = tx.commit().await.expect_err("the transaction was aborted");
        assert!(matches!(error.kind(), ErrorKind::Aborted | ErrorKind::TransactionLost), "{error}");
        assert_leased(&*keeper, "m-1", 1).await;
        assert_eq!(stage.effects("m-1").await, 0);
    }

    /// A raw ROLLBACK after the completion is noticed at commit, also when nothing was registered (R12).
    every_level(Deferred, ProvedCommit, Sql) fn d03_raw_rollback_is_no_completion(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        let mut tx = completing(&*keeper, &claimed).await;
        tx.execute("ROLLBACK").await.expect("rollback");
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
        assert_leased(&*keeper, "m-1", 1).await;
        assert_eq!(stage.effects("m-1").await, 0);
    }

    /// A transaction that was committed after the completion and begun anew is noticed, at its commit and
    /// at its rollback: the message is done, and what came after might be half an effect (R12).
    every_level(Deferred, NoticedRestart, Sql) fn d03_restarted_transaction_is_noticed(stage) {
        let keeper = stage.keeper("billing");
        for commits in [true, false] {
            let text = if commits { "m-1" } else { "m-2" };
            receive(&*keeper, [envelope(text)]).await;
            let claimed = claim_one(&*keeper).await;
            let mut tx = completing(&*keeper, &claimed).await;
            tx.execute("COMMIT; BEGIN").await.expect("restart");
            let ended = if commits { tx.commit().await } else { tx.rollback().await };
            assert_kind(ended, ErrorKind::TransactionLost);
            assert_eq!(kept(&*keeper, text).await.state, State::Done);
        }
    }

    /// A completion that a savepoint undid refuses the commit (R12): the effect may be outside of it.
    every_level(Deferred, NoticedSavepoint, Savepoints, Sql) fn d03_undone_completion_refuses_the_commit(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        let mut tx = keeper.begin().await.expect("begin");
        tx.effect("m-1").await.expect("effect");
        tx.execute("SAVEPOINT before_it").await.expect("savepoint");
        assert_eq!(tx.complete(&[claimed.lease]).await.expect("complete"), [true]);
        tx.execute("ROLLBACK TO SAVEPOINT before_it").await.expect("rollback to");
        assert_kind(tx.commit().await, ErrorKind::TransactionLost);
        assert_eq!(stage.effects("m-1").await, 0);
        assert_leased(&*keeper, "m-1", 1).await;
    }

    /// Completing, receiving and registering in one transaction commit together: the proof counts them all.
    every_level(Deferred) fn d03_completing_and_receiving_commit_together(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let mut tx = completing(&*keeper, &claim_one(&*keeper).await).await;
        tx.receive(&envelope("m-2")).await.expect("receive");
        tx.receive(&envelope("m-3")).await.expect("receive");
        tx.commit().await.expect("commit");
        assert_eq!(counts(&*keeper).await, [2, 1, 0]);
    }

    /// A claim passes over a row whose completion is under way, without waiting, also after its lease ran
    /// out (B82): the slow handler commits, once.
    once(Deferred, Clock, OpenTogether) fn d03_b82_claim_passes_over_a_row_being_completed(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        receive(&*keeper, [envelope("m-2")]).await;
        let tx = completing(&*keeper, &claimed).await;
        stage.advance_clock(2 * LEASE).await;
        assert_eq!(claim_one(&*keeper).await.id(), "m-2");
        assert_nothing_due(&*keeper, "its handler has it locked").await;
        tx.commit().await.expect("commit");
        assert_nothing_due(&*keeper, "it is done").await;
        assert_eq!((kept(&*keeper, "m-1").await.attempts, stage.effects("m-1").await), (1, 1));
    }

    /// Renewing waits for no row: one that its handler has locked is `Locked`, the others are renewed.
    once(Deferred, OpenTogether) fn d03_renewal_does_not_wait_for_a_locked_row(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["m-1", "m-2"].map(envelope)).await;
        let claimed = claim(&*keeper, take(10)).await;
        let tx = completing(&*keeper, &claimed[0]).await;
        let answer = keeper.renew(&leases(&claimed), LEASE).await.expect("renew");
        assert_eq!(answer, [Renewal::Locked, Renewal::Renewed]);
        tx.commit().await.expect("commit");
    }

    /// Renewing, failing, releasing, unblocking, replaying, listing and counting leave no transaction open
    /// when they are dropped at any of their awaits (R17).
    once(Deferred, OpenTransactions) fn d03_dropped_calls_leave_nothing_open(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [keyed("k1:1")]).await;
        let claimed = claim_one(&*keeper).await;
        let lost = [Lease { sequence: claimed.lease.sequence, token: LeaseToken::random() }];
        let (keys, filter) = ([ordering_key("k1")], Filter::state(State::Dead));
        for place in 0..12 {
            drop(drop_after(place, keeper.renew(&[claimed.lease], LEASE)).await);
            drop(drop_after(place, keeper.fail(lost[0], None, "\"late\"")).await);
            drop(drop_after(place, keeper.release(&lost)).await);
            drop(drop_after(place, keeper.unblock(&keys)).await);
            drop(drop_after(place, keeper.replay(&filter)).await);
            drop(drop_after(place, keeper.messages(&filter)).await);
            drop(drop_after(place, keeper.counts(10)).await);
            until("no transaction is open", async || stage.open_transactions().await == 0).await;
        }
        complete(&*keeper, &claimed).await;
    }

    /// A completion that is dropped at any of its awaits condemns its transaction or is whole; the message
    /// is completed once, with its effect (R17).
    once(Deferred) fn d03_dropped_completion_is_whole_or_nothing(stage) {
        let keeper = stage.keeper("billing");
        for place in 0..12 {
            let text = format!("m-{place}");
            receive(&*keeper, [envelope(&text)]).await;
            let claimed = claim_one(&*keeper).await;
            let mut tx = keeper.begin().await.expect("begin");
            let answered = drop_after(place, tx.complete(&[claimed.lease])).await.is_some();
            if answered {
                tx.effect(&text).await.expect("the effect is written");
            }
            assert_eq!(tx.commit().await.is_ok(), answered, "dropped after {place} polls");
            if !answered {
                complete(&*keeper, &claimed).await;
            }
            assert_eq!((kept(&*keeper, &text).await.state, stage.effects(&text).await), (State::Done, 1));
        }
    }

    /// A handler that ends its transaction and begins another is not called again: what it wrote before
    /// is committed, with the completion.
    once(Deferred, NoticedRestart, Sql) fn d03_restarting_handler_is_not_called_again(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let script = Handling::new(|_| Doing::Restart);
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((script.calls(), report.done, report.retried), (1, 0, 0), "{report:?}");
        assert_eq!(stage.effects("m-1").await, 1);
    }
}
