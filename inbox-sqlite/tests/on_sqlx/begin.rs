//! Begins that are dropped, and what others left on a connection (R15, R17).

use std::time::Duration;

use inbox_core::{Begin as _, Outcome};
use sqlx::sqlite::SqliteJournalMode;

use crate::stand::{
    AppError, File, assert_forgotten, assert_sound, credit, credits, in_memory, inbox, message, poll_once,
    sql,
};

#[tokio::test]
async fn r17_begin_dropped_after_any_number_of_polls() {
    // One connection, so that what is left on it cannot be overlooked.
    let (_file, store) = File::with(SqliteJournalMode::Wal, 1).await;
    for polls in 0..12 {
        let mut begin = store.begin(None);
        for _ in 0..polls {
            if poll_once(&mut begin).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);
        assert_forgotten(&store).await;
    }
}

#[tokio::test]
async fn r17_begin_dropped_while_sqlite_waits_for_another_process() {
    let (file, store) = File::with(SqliteJournalMode::Wal, 1).await;
    let mut foreign = file.foreign().await;
    sql(&mut foreign, "BEGIN IMMEDIATE").await.unwrap();
    let mut begin = store.begin(None);
    assert!(poll_once(&mut begin).await.is_none());
    // It has taken the pool's one connection once nobody else gets it.
    while store.pool().try_acquire().is_some() {
        assert!(poll_once(&mut begin).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(begin);
    sql(&mut foreign, "ROLLBACK").await.unwrap();
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r17_process_dropped_inside_the_handler() {
    let (_file, store) = File::new().await;
    let (inbox, message) = (inbox(&store), message("m"));
    let (in_handler, mut handled) = tokio::sync::mpsc::channel(1);
    let process = inbox.process(&message, async |tx| {
        credit(tx).await?;
        in_handler.send(()).await.unwrap();
        std::future::pending::<Result<(), AppError>>().await
    });
    tokio::select! {
        _ = process => unreachable!("the handler never ends"),
        Some(()) = handled.recv() => {}
    }
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn what_others_left_on_a_connection_is_rolled_back_at_begin() {
    let store = in_memory().await;
    for left in ["a raw BEGIN", "a leaked transaction", "one that a raw ROLLBACK ended", "a savepoint on top"]
    {
        let mut conn = store.pool().acquire().await.unwrap();
        match left {
            "a raw BEGIN" => sql(&mut conn, "BEGIN; INSERT INTO points VALUES (1)").await.unwrap(),
            _ => {
                let mut tx = sqlx::Connection::begin(&mut *conn).await.unwrap();
                credit(&mut tx).await.unwrap();
                match left {
                    "a leaked transaction" => {}
                    "one that a raw ROLLBACK ended" => sql(&mut tx, "ROLLBACK").await.unwrap(),
                    _ => std::mem::forget(sqlx::Connection::begin(&mut *tx).await.unwrap()),
                }
                std::mem::forget(tx);
            }
        }
        drop(conn);

        let processed = inbox(&store).process(&message(left), async |tx| credit(tx).await).await;

        assert!(matches!(processed, Ok(Outcome::Processed(()))), "{left}: {processed:?}");
        assert_eq!(credits(&store).await, 1, "{left}");
        sqlx::raw_sql("DELETE FROM points").execute(store.pool()).await.unwrap();
        assert_sound(&store).await;
    }
}

#[tokio::test]
async fn r15_the_busy_timeout_is_put_back_after_a_begin_that_succeeds_and_one_that_fails() {
    let (file, store) = File::with(SqliteJournalMode::Wal, 1).await;
    let mut tx = store.begin(Some(Duration::from_secs(77))).await.unwrap();
    let timeout: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(timeout, 5000);
    drop(tx);

    let mut foreign = file.foreign().await;
    sql(&mut foreign, "BEGIN IMMEDIATE").await.unwrap();
    assert!(store.begin(Some(Duration::from_millis(1))).await.is_err());
    sql(&mut foreign, "ROLLBACK").await.unwrap();
    assert_sound(&store).await;
}
