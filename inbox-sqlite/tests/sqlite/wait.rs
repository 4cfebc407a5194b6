//! The wait for the writer: bounded, in order, and without a trace (R5, R6).

use std::time::{Duration, Instant};

use inbox_core::{Begin, ErrorKind, Outcome, Registration, RetryPolicy};

use crate::stand::{AppError, File, credit, credits, in_memory, inbox, message, poll_once};

const SHORT: Duration = Duration::from_millis(120);
/// Far more than [`SHORT`], for a busy machine; far less than the default wait.
const BOUND: Duration = Duration::from_secs(5);

async fn busy_within_bounds(store: &inbox_sqlite::SqliteStore, wait: Duration) {
    let started = Instant::now();
    let error = store.begin(Some(wait)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    assert!(started.elapsed() >= wait, "gave up early: {:?}", started.elapsed());
    assert!(started.elapsed() < BOUND, "waited {:?}", started.elapsed());
}

#[tokio::test]
async fn r06_the_wait_for_another_process_is_bounded() {
    let (file, store) = File::new().await;
    let foreign = file.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    for wait in [SHORT, Duration::ZERO] {
        busy_within_bounds(&store, wait).await;
    }
    foreign.execute_batch("ROLLBACK").unwrap();
    store.begin(Some(Duration::ZERO)).await.unwrap();
}

#[tokio::test]
async fn r06_the_wait_for_this_store_is_bounded() {
    for store in [in_memory().await, File::new().await.1] {
        let holder = store.begin(None).await.unwrap();
        for wait in [SHORT, Duration::ZERO] {
            busy_within_bounds(&store, wait).await;
        }
        drop(holder);
        store.begin(Some(Duration::ZERO)).await.unwrap();
    }
}

#[tokio::test]
async fn r06_an_endless_wait_is_no_overflow() {
    in_memory().await.begin(Some(Duration::MAX)).await.unwrap();
}

#[tokio::test]
async fn r06_the_inboxs_wait_reaches_begin_and_busy_is_retried_as_often_as_allowed() {
    let store = in_memory().await;
    let holder = store.begin(None).await.unwrap();
    let inbox =
        inbox(&store).with_wait(Duration::ZERO).with_retry(RetryPolicy::default().with_max_attempts(3));
    let busy = inbox.process(&message("m"), async |tx| credit(tx).await).await;
    let AppError::Inbox(error) = busy.unwrap_err() else { panic!("of the inbox") };
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(holder);
}

#[tokio::test]
async fn who_waits_in_the_store_is_served_in_order() {
    let store = in_memory().await;
    let holder = store.begin(None).await.unwrap();
    let (mut first, mut second) = (store.begin(None), store.begin(None));
    assert!(poll_once(&mut first).await.is_none());
    assert!(poll_once(&mut second).await.is_none());
    drop(holder);
    assert!(store.begin(Some(Duration::ZERO)).await.is_err(), "a newcomer does not overtake");

    let first = first.await.unwrap();
    assert!(poll_once(&mut second).await.is_none());
    drop(first);
    second.await.unwrap();
}

/// Begins while a first transaction with "m" is open; answers what it then is to the second.
async fn second_after(commits: bool) -> Registration {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut first = inbox.begin().await.unwrap();
    assert!(first.register_if_new(&message("m")).await.unwrap().is_new());
    let mut second = Box::pin(inbox.begin());
    assert!(poll_once(&mut second).await.is_none());
    if commits {
        first.commit().await.unwrap();
    } else {
        drop(first);
    }
    second.await.unwrap().register_if_new(&message("m")).await.unwrap()
}

#[tokio::test]
async fn r05_the_second_is_a_duplicate_if_the_first_commits_and_new_if_it_does_not() {
    assert!(matches!(second_after(true).await, Registration::Duplicate(_)));
    assert!(second_after(false).await.is_new());
}

/// Waits until somebody else has the turn of this store's writer, by the text of a refusal.
async fn until_the_turn_is_taken(store: &inbox_sqlite::SqliteStore) {
    loop {
        let busy = store.begin(Some(Duration::ZERO)).await.unwrap_err();
        let source = std::error::Error::source(&busy).unwrap().to_string();
        if source.contains("another transaction of this store") {
            return;
        }
    }
}

#[tokio::test]
async fn a_transaction_left_to_another_process_is_waited_for() {
    let (file, store) = File::new().await;
    let foreign = file.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE; INSERT INTO points VALUES (1)").unwrap();
    let mut waiting = tokio::spawn({
        let inbox = inbox(&store).with_retry(RetryPolicy::none());
        async move { inbox.process(&message("m"), async |tx| credit(tx).await).await }
    });
    until_the_turn_is_taken(&store).await;
    // Its turn has come and the file is locked, so it waits in SQLite, or would have failed by now.
    let answer = tokio::time::timeout(SHORT, &mut waiting).await;
    assert!(answer.is_err(), "{answer:?}");
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Outcome::Processed(()));
    assert_eq!(credits(&store).await, 2);
}
