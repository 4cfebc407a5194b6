//! The wait for the writer: bounded, in order, and without a trace (R5, R6).

use std::time::{Duration, Instant};

use inbox_core::{Begin as _, ErrorKind, Outcome, RetryPolicy};
use inbox_sqlite::on_sqlx::SqlxSqliteStore;
use sqlx::sqlite::SqlitePoolOptions;

use crate::stand::{
    AppError, File, assert_sound, credit, credits, in_memory, inbox, kind, message, poll_once, sql,
};

const SHORT: Duration = Duration::from_millis(120);
/// Far more than [`SHORT`], for a busy machine; less than the connections' own timeout of 5 s.
const BOUND: Duration = Duration::from_secs(4);

async fn busy_within_bounds(store: &SqlxSqliteStore, wait: Duration) {
    let started = Instant::now();
    assert_eq!(kind(store.begin(Some(wait)).await), Some(ErrorKind::Busy));
    assert!(started.elapsed() >= wait, "gave up early: {:?}", started.elapsed());
    assert!(started.elapsed() < BOUND, "waited {:?}", started.elapsed());
}

#[tokio::test]
async fn r06_the_wait_for_another_process_is_bounded() {
    let (file, store) = File::new().await;
    let mut foreign = file.foreign().await;
    sql(&mut foreign, "BEGIN IMMEDIATE").await.unwrap();
    for wait in [SHORT, Duration::ZERO] {
        busy_within_bounds(&store, wait).await;
    }
    sql(&mut foreign, "ROLLBACK").await.unwrap();
    drop(store.begin(Some(Duration::ZERO)).await.unwrap());
    assert_sound(&store).await;
}

#[tokio::test]
async fn r06_a_connection_that_does_not_wait_is_waited_for_all_the_same() {
    let (file, _sound) = File::new().await;
    let options = file.options().busy_timeout(Duration::ZERO);
    let store = SqlxSqliteStore::new(SqlitePoolOptions::new().connect_with(options).await.unwrap());
    let mut foreign = file.foreign().await;
    sql(&mut foreign, "BEGIN IMMEDIATE").await.unwrap();
    for wait in [SHORT, Duration::ZERO] {
        busy_within_bounds(&store, wait).await;
    }
    let mut begin = store.begin(None);
    assert!(poll_once(&mut begin).await.is_none());
    sql(&mut foreign, "ROLLBACK").await.unwrap();
    let mut tx = begin.await.unwrap();
    let timeout: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(timeout, 0, "R15");
}

#[tokio::test]
async fn r06_the_wait_for_the_pools_one_connection_is_bounded() {
    let store = in_memory().await;
    let holder = store.begin(None).await.unwrap();
    for wait in [SHORT, Duration::ZERO] {
        busy_within_bounds(&store, wait).await;
    }
    drop(holder);
    drop(store.begin(Some(SHORT)).await.unwrap());
}

#[tokio::test]
async fn r06_an_endless_wait_is_no_overflow() {
    drop(in_memory().await.begin(Some(Duration::MAX)).await.unwrap());
}

#[tokio::test]
async fn r06_the_inboxs_wait_reaches_begin_and_busy_is_retried_as_often_as_allowed() {
    let (_file, store) = File::new().await;
    let holder = store.begin(None).await.unwrap();
    let inbox =
        inbox(&store).with_wait(Duration::ZERO).with_retry(RetryPolicy::default().with_max_attempts(3));
    let busy = inbox.process(&message("m"), async |tx| credit(tx).await).await;
    let AppError::Inbox(error) = busy.unwrap_err() else { panic!("of the inbox") };
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(holder);
}

#[tokio::test]
async fn who_begins_through_the_store_is_served_in_order() {
    let (_file, store) = File::new().await;
    let holder = store.begin(None).await.unwrap();
    let (mut first, mut second) = (store.begin(None), store.begin(None));
    assert!(poll_once(&mut first).await.is_none());
    // The first has its turn once a newcomer without a wait is refused for it.
    let has_turn = async {
        while !store.begin(Some(Duration::ZERO)).await.unwrap_err().to_string().contains("others that begin")
        {
        }
    };
    tokio::time::timeout(BOUND, has_turn).await.expect("the first takes its turn");
    assert!(poll_once(&mut second).await.is_none());
    tokio::task::yield_now().await;
    drop(holder);

    let first = first.await.unwrap();
    assert!(poll_once(&mut second).await.is_none());
    drop(first);
    drop(second.await.unwrap());
}

#[tokio::test]
async fn r06_each_of_eight_that_wait_is_refused_in_its_own_time() {
    let (_file, store) = File::new().await;
    let holder = store.begin(None).await.unwrap();
    let started = Instant::now();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        waiters.spawn(async move { store.begin(Some(SHORT)).await });
    }
    while let Some(answer) = waiters.join_next().await {
        assert_eq!(kind(answer.unwrap()), Some(ErrorKind::Busy));
    }
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    drop(holder);
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_lose_nothing_and_none_is_refused() {
    let (_file, store) = File::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let inbox = inbox(&store).with_retry(RetryPolicy::none());
        writers.spawn(async move {
            for number in 0..20 {
                // Each id is delivered by two writers.
                let message = message(&format!("{}-{number}", writer / 2));
                inbox.process(&message, async |tx| credit(tx).await).await.unwrap();
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    assert_eq!(credits(&store).await, 4 * 20);
}

#[tokio::test]
async fn in_memory_transactions_follow_each_other() {
    let store = in_memory().await;
    let (one, two) = (inbox(&store), inbox(&store));
    let message = message("m");
    let (one, two) = tokio::join!(
        one.process(&message, async |tx| credit(tx).await),
        two.process(&message, async |tx| credit(tx).await),
    );
    let processed = [one, two].map(Result::unwrap).iter().filter(|outcome| outcome.is_processed()).count();
    assert_eq!((processed, credits(&store).await), (1, 1));
    assert!(matches!(
        inbox(&store).process(&message, async |tx| credit(tx).await).await,
        Ok(Outcome::Duplicate(_))
    ));
}
