//! How transactions end in which a message was completed (R12, D3).

use std::time::Duration;

use inbox_core::{Deferred, Error, ErrorKind, Fail, Inbox, Lease, Renew, Renewal, State};
use sqlx::MySqlConnection;

use crate::deferred::{LEASE, claim, completed, find, leased, receive, with_messages};
use crate::stand::{Stand, consumer, effect, kind, message, number, on_each_server, run, session, try_run};

on_each_server![
    d03_a_commit_completes_the_message_with_its_effect,
    r12_b11_a_deadlock_that_was_swallowed_takes_the_completion_back_and_the_commit_says_so,
    r12_b14_a_commit_proves_the_completion,
    r12_b14_a_rollback_tells_a_completion_that_was_committed_by_sql,
    r12_b33_a_completion_undone_by_a_savepoint_is_lost,
    r12_many_completions_are_proved_as_one_is,
    d03_completing_waits_no_longer_than_the_store_and_leaves_the_session_as_it_was,
];

async fn state(stand: &Stand, id: &str) -> State {
    find(&stand.inbox, id).await.state
}

async fn renewal(stand: &Stand, lease: Lease) -> Renewal {
    stand.store.renew(&Renew::new(&consumer(), &[lease], LEASE)).await.unwrap()[0]
}

async fn d03_a_commit_completes_the_message_with_its_effect(stand: Stand) {
    let stand = with_messages(stand).await;
    let lease = leased(&stand.inbox, "m").await;
    let mut tx = completed(&stand.inbox, lease).await;
    effect(&mut tx).await;
    // Nobody can take it over, or fail it, while its effect is not committed.
    assert_eq!(renewal(&stand, lease).await, Renewal::Locked);
    tx.commit().await.unwrap();
    assert_eq!((state(&stand, "m").await, stand.committed().await), (State::Done, (1, 1)));
    assert_eq!(renewal(&stand, lease).await, Renewal::Lost);

    let failed = stand.store.fail(&Fail::new(&consumer(), lease, None, "\"e\"")).await;
    assert_eq!(kind(failed), ErrorKind::LeaseLost);
    let mut late = stand.inbox.begin().await.unwrap();
    assert_eq!(late.complete(&[lease]).await.unwrap(), [false]);
    late.commit().await.unwrap();
}

/// A deadlock whose victim is this transaction: the other one has written more.
async fn deadlock(stand: &Stand, victim: &mut MySqlConnection) {
    let mut other = stand.pool.begin().await.unwrap();
    run(&mut other, "UPDATE stock SET n = n + 1 WHERE id > 2").await;
    run(&mut other, "UPDATE stock SET n = n + 1 WHERE id = 1").await;
    run(victim, "UPDATE stock SET n = n + 1 WHERE id = 2").await;
    let session = session(&mut other).await;
    let waiting = tokio::spawn(async move {
        run(&mut other, "UPDATE stock SET n = n + 1 WHERE id = 2").await;
        other.rollback().await.unwrap();
    });
    stand.until_waiting(session).await;
    let error = try_run(victim, "UPDATE stock SET n = n + 1 WHERE id = 1").await.unwrap_err();
    assert_eq!(number(&error), Some(1213));
    waiting.await.unwrap();
}

async fn r12_b11_a_deadlock_that_was_swallowed_takes_the_completion_back_and_the_commit_says_so(
    stand: Stand,
) {
    let stand = with_messages(stand).await;
    let rows = (1..=20).map(|id| format!("({id}, 0)")).collect::<Vec<_>>().join(", ");
    stand
        .sql(&format!(
            "CREATE TABLE stock (id INT PRIMARY KEY, n INT) ENGINE = InnoDB; INSERT INTO stock VALUES {rows}"
        ))
        .await;
    let lease = leased(&stand.inbox, "m").await;
    for commits in [true, false] {
        let mut tx = completed(&stand.inbox, lease).await;
        deadlock(&stand, &mut tx).await;
        match commits {
            true => assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost),
            false => tx.rollback().await.unwrap(),
        }
        assert_eq!(state(&stand, "m").await, State::Pending, "commits: {commits}");
        assert_eq!(renewal(&stand, lease).await, Renewal::Renewed);
    }
    completed(&stand.inbox, lease).await.commit().await.unwrap();
    assert_eq!(state(&stand, "m").await, State::Done);
}

/// What commits, or rolls back, behind everybody's back.
const COMMITTED: [&str; 4] = ["COMMIT", "COMMIT; BEGIN", "CREATE OR REPLACE VIEW seen AS SELECT 1", "BEGIN"];
const ROLLED_BACK: [&str; 2] = ["ROLLBACK", "ROLLBACK; BEGIN"];

async fn r12_b14_a_commit_proves_the_completion(stand: Stand) {
    let stand = with_messages(stand).await;
    for (ended, left) in COMMITTED
        .map(|sql| (sql, State::Done))
        .into_iter()
        .chain(ROLLED_BACK.map(|sql| (sql, State::Pending)))
    {
        let lease = leased(&stand.inbox, ended).await;
        let mut tx = completed(&stand.inbox, lease).await;
        run(&mut tx, ended).await;
        assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost, "{ended}");
        assert_eq!(state(&stand, ended).await, left, "{ended}");
    }
    // An error that undid its statement only is no obstacle.
    let lease = leased(&stand.inbox, "swallowed").await;
    let mut tx = completed(&stand.inbox, lease).await;
    assert!(try_run(&mut tx, "SELECT nothing FROM nobody").await.is_err());
    tx.commit().await.unwrap();
    assert_eq!(state(&stand, "swallowed").await, State::Done);
}

async fn r12_b14_a_rollback_tells_a_completion_that_was_committed_by_sql(stand: Stand) {
    let stand = with_messages(stand).await;
    let lease = leased(&stand.inbox, "m").await;
    for ended in ["DO 0", ROLLED_BACK[0], ROLLED_BACK[1]] {
        let mut tx = completed(&stand.inbox, lease).await;
        run(&mut tx, ended).await;
        tx.rollback().await.unwrap();
        assert_eq!(renewal(&stand, lease).await, Renewal::Renewed, "{ended}");
    }
    for ended in COMMITTED {
        let lease = leased(&stand.inbox, ended).await;
        let mut tx = completed(&stand.inbox, lease).await;
        run(&mut tx, ended).await;
        assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost, "{ended}");
    }
}

async fn r12_b33_a_completion_undone_by_a_savepoint_is_lost(stand: Stand) {
    let stand = with_messages(stand).await;
    let lease = leased(&stand.inbox, "m").await;
    let mut tx = stand.inbox.begin().await.unwrap();
    run(&mut tx, "SAVEPOINT s").await;
    assert_eq!(tx.complete(&[lease]).await.unwrap(), [true]);
    run(&mut tx, "ROLLBACK TO s").await;
    effect(&mut tx).await;
    let error: Error = tx.commit().await.expect_err("the completion is undone");
    assert_eq!(error.kind(), ErrorKind::TransactionLost);
    assert!(error.to_string().contains("the completion of a message"), "{error}");
    assert_eq!((state(&stand, "m").await, stand.effects().await), (State::Pending, 0));
}

/// More than one statement names.
async fn r12_many_completions_are_proved_as_one_is(stand: Stand) {
    let stand = with_messages(stand).await;
    let envelopes: Vec<_> = (0..1_100).map(|n| crate::deferred::envelope(&format!("m-{n:04}"))).collect();
    stand.inbox.receive_batch(&envelopes).await.unwrap();
    let leases: Vec<Lease> = claim(&stand.store, 1_100).await.into_iter().map(|(_, lease)| lease).collect();
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.complete(&leases).await.unwrap().iter().all(|held| *held));
    run(&mut tx, "COMMIT; BEGIN").await;
    assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost);
    // Those are done, so of all that follow none holds.
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.complete(&leases).await.unwrap().iter().all(|held| !*held));
    tx.commit().await.unwrap();

    for undone in [true, false] {
        let id = format!("last, {undone}");
        receive(&stand.inbox, &id).await;
        let mut again: Vec<Lease> = Vec::new();
        stand.inbox.replay(&inbox_core::Filter::state(State::Done).limit(600)).await.unwrap();
        again.extend(claim(&stand.store, 1_000).await.into_iter().map(|(_, lease)| lease));
        assert_eq!(again.len(), 601);
        let mut tx = stand.inbox.begin().await.unwrap();
        assert!(tx.complete(&again[..600]).await.unwrap().iter().all(|held| *held));
        run(&mut tx, "SAVEPOINT s").await;
        assert_eq!(tx.complete(&again[600..]).await.unwrap(), [true]);
        if undone {
            run(&mut tx, "ROLLBACK TO s").await;
        }
        let answer = tx.commit().await.map_err(|error| error.kind());
        assert_eq!(answer.err(), undone.then_some(ErrorKind::TransactionLost));
        let left = stand.ask("SELECT count(*) FROM inbox_messages WHERE state = 'pending'").await;
        assert_eq!(left, if undone { 601 } else { 0 });
        if undone {
            stand.sql("UPDATE inbox_messages SET state = 'done', lease_token = NULL").await;
        }
    }
}

async fn d03_completing_waits_no_longer_than_the_store_and_leaves_the_session_as_it_was(stand: Stand) {
    let stand = with_messages(stand).await;
    let lease = leased(&stand.inbox, "m").await;
    let holder = completed(&stand.inbox, lease).await;
    let hasty = Inbox::new(stand.store.clone().with_wait(Duration::from_millis(50)), consumer());
    let mut tx = hasty.begin().await.unwrap();
    assert_eq!(kind(tx.complete(&[lease]).await), ErrorKind::Busy);
    drop(tx);
    let failed = hasty.store().fail(&Fail::new(&consumer(), lease, None, "\"e\"")).await;
    assert_eq!(kind(failed), ErrorKind::Busy);
    holder.rollback().await.unwrap();

    let inbox = stand.inbox_on_one("SET innodb_lock_wait_timeout = 7").await;
    let mut tx = completed(&inbox, lease).await;
    assert_eq!(crate::stand::show(&mut tx, "@@innodb_lock_wait_timeout").await, "7");
    drop(tx);
    let held = message("held");
    inbox.receive(&inbox_core::Envelope::new(held, b"p".as_slice())).await.unwrap();
    inbox.store().fail(&Fail::new(&consumer(), lease, Some(Duration::ZERO), "\"e\"")).await.unwrap();
    let mut conn = inbox.store().pool().acquire().await.unwrap();
    assert_eq!(crate::stand::show(&mut conn, "@@innodb_lock_wait_timeout").await, "7");
    assert_eq!(crate::stand::show(&mut conn, "IFNULL(@inbox_wait, 'unset')").await, "unset");
}
