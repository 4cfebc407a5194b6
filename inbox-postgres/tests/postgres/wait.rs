//! Two transactions and one id: who waits, for how long, and what comes of it.

use std::time::{Duration, Instant};

use inbox_core::{DEFAULT_WAIT, ErrorKind, GuardedTx, Inbox, Registration};
use inbox_postgres::PostgresStore;
use sqlx::{Postgres, Transaction};

use crate::stand::{Stand, kind, message, pid, run};

/// Registers in a task of its own, and returns once that waits for a lock.
async fn waiter(
    stand: &Stand,
    ids: &'static [&'static str],
) -> (i32, tokio::task::JoinHandle<Vec<Registration>>) {
    let inbox = stand.inbox.clone();
    let mut tx = stand.pool.begin().await.unwrap();
    let pid = pid(&mut tx).await;
    let task = tokio::spawn(async move {
        let answers = match ids {
            [id] => vec![inbox.register_if_new(&mut tx, &message(id)).await.unwrap()],
            _ => inbox
                .register_batch(&mut tx, &ids.iter().copied().map(message).collect::<Vec<_>>())
                .await
                .unwrap(),
        };
        tx.commit().await.unwrap();
        answers
    });
    stand.until_waiting(pid).await;
    (pid, task)
}

async fn holder<'i>(
    stand: &'i Stand,
    id: &str,
) -> GuardedTx<'i, PostgresStore, Transaction<'static, Postgres>> {
    let mut holder = stand.inbox.begin().await.unwrap();
    assert!(holder.register_if_new(&message(id)).await.unwrap().is_new());
    holder
}

#[tokio::test]
async fn r05_who_waited_for_a_commit_gets_a_duplicate_proved_by_a_younger_snapshot() {
    let Some(stand) = Stand::new().await else { return };
    let holder = holder(&stand, "m").await;
    let (_, single) = waiter(&stand, &["m"]).await;
    let (_, batch) = waiter(&stand, &["a", "m"]).await;
    holder.commit().await.unwrap();
    assert!(matches!(single.await.unwrap()[..], [Registration::Duplicate(_)]));
    assert!(matches!(batch.await.unwrap()[..], [Registration::New, Registration::Duplicate(_)]));
}

#[tokio::test]
async fn r05_who_waited_for_a_rollback_or_a_dead_session_is_new() {
    let Some(stand) = Stand::new().await else { return };
    let first = holder(&stand, "m").await;
    let (_, waiting) = waiter(&stand, &["m"]).await;
    first.rollback().await.unwrap();
    assert!(waiting.await.unwrap()[0].is_new());

    let mut second = holder(&stand, "n").await;
    let (_, waiting) = waiter(&stand, &["n"]).await;
    let pid = pid(&mut second).await;
    stand.kill(pid).await;
    assert!(waiting.await.unwrap()[0].is_new());
}

#[tokio::test]
async fn r06_b28_a_wait_is_bounded_and_past_it_the_call_is_busy() {
    let Some(stand) = Stand::new().await else { return };
    let _holder = holder(&stand, "m").await;
    let inbox = stand.inbox.clone().with_wait(Duration::from_millis(300));
    for batch in [false, true] {
        let mut tx = inbox.begin().await.unwrap();
        let pid = pid(&mut tx).await;
        let answer = match batch {
            false => tx.register_if_new(&message("m")).await.map(drop),
            true => tx.register_batch(&[message("m")]).await.map(drop),
        };
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("300ms"), "{error}");
        let waited = stand.last_statement_took(pid).await;
        assert!((Duration::from_millis(300)..DEFAULT_WAIT).contains(&waited), "{waited:?}");
    }
}

#[tokio::test]
async fn r06_b29_without_a_wait_an_id_in_flight_is_busy_and_new_once_its_holder_rolls_back() {
    let Some(stand) = Stand::new().await else { return };
    let holder = holder(&stand, "m").await;
    let inbox: Inbox<_> = stand.inbox.clone().with_wait(Duration::ZERO);
    let mut tx = stand.pool.begin().await.unwrap();
    assert_eq!(kind(inbox.register_if_new(&mut tx, &message("m")).await), ErrorKind::Busy);
    drop(tx);
    holder.rollback().await.unwrap();
    let mut tx = stand.pool.begin().await.unwrap();
    assert!(inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
}

#[tokio::test]
async fn r06_the_session_with_its_own_lock_timeout_waits_as_long_as_the_call_says() {
    let Some(stand) = Stand::new().await else { return };
    let first = holder(&stand, "m").await;
    let inbox = stand.inbox.clone();
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SET LOCAL lock_timeout = '1ms'").await;
    let pid = pid(&mut tx).await;
    let waiting = tokio::spawn(async move { inbox.register_if_new(&mut tx, &message("m")).await });
    stand.until_waiting(pid).await;
    tokio::time::sleep(Duration::from_millis(50)).await; // longer than the session's own limit
    first.rollback().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_new());
}

/// The first wait takes 0.6 of the bound. A second one of a whole bound would end at 1.6; what is
/// left ends at 1.0, by the server's clock, so that a slow client disturbs nothing.
#[tokio::test]
async fn r06_the_bound_is_for_all_waits_of_a_batch_together() {
    let Some(stand) = Stand::new().await else { return };
    let (first, mut second) = (holder(&stand, "a").await, holder(&stand, "b").await);
    let second_pid = pid(&mut second).await;
    let bound = Duration::from_secs(4);
    let inbox = stand.inbox.clone().with_wait(bound);
    let mut tx = inbox.begin().await.unwrap();
    let pid = pid(&mut tx).await;
    let started = Instant::now();
    let batch = [message("b"), message("a")];
    let (answer, ()) = tokio::join!(tx.register_batch(&batch), async {
        stand.until_waiting(pid).await;
        tokio::time::sleep(bound.mul_f64(0.6).saturating_sub(started.elapsed())).await;
        first.rollback().await.unwrap();
        stand.until_waiting_for(pid, second_pid).await;
    });
    assert_eq!(kind(answer), ErrorKind::Busy);
    let waited = stand.last_statement_took(pid).await;
    assert!(waited >= bound.mul_f64(0.95), "{waited:?}");
    assert!(waited < bound.mul_f64(1.5), "the second wait got the whole bound again: {waited:?}");
}
