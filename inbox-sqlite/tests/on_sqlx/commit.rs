//! What ends a transaction behind the inbox's back, and what sqlx makes of it (R12).

use inbox_core::{ErrorKind, GuardedTx, Inbox, Registered};
use inbox_sqlite::on_sqlx::SqlxSqliteStore;
use sqlx::sqlite::{Sqlite, SqliteJournalMode};
use sqlx::{Connection as _, Transaction};

use crate::stand::{
    AppError, File, assert_forgotten, assert_sound, credit, credits, in_memory, inbox, is_registered,
    keep_busy, kind, mend, message, poll_once, sql,
};

type Guarded<'i> = GuardedTx<'i, SqlxSqliteStore, Transaction<'static, Sqlite>>;

async fn registered_and_credited(inbox: &Inbox<SqlxSqliteStore>) -> Guarded<'_> {
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    credit(&mut tx).await.unwrap();
    tx
}

/// The one connection of a database that is full after a few more pages.
async fn nearly_full() -> SqlxSqliteStore {
    let store = in_memory().await;
    let mut conn = store.pool().acquire().await.unwrap();
    sql(&mut conn, "CREATE TABLE big (bytes BLOB)").await.unwrap();
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *conn).await.unwrap();
    sql(&mut conn, &format!("PRAGMA max_page_count = {}", pages + 5)).await.unwrap();
    drop(conn);
    store
}

const TOO_BIG: &str = "INSERT INTO big VALUES (zeroblob(1000000))";

/// Runs the statement that fills the disk.
async fn fill(tx: &mut Transaction<'static, Sqlite>) -> Result<(), AppError> {
    let full = sql(tx, TOO_BIG).await;
    let code = full.as_ref().err().and_then(|error| error.as_database_error()?.code());
    assert_eq!(code.as_deref(), Some("13"), "SQLITE_FULL");
    Ok(full?)
}

#[tokio::test]
async fn r12_after_a_full_disk_the_commit_is_lost_and_the_connection_is_mended() {
    let store = nearly_full().await;
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    fill(&mut tx).await.unwrap_err();

    assert_eq!(kind(tx.commit().await), Some(ErrorKind::TransactionLost));

    assert_forgotten(&store).await;
}

/// What the module's documentation says of sqlx: were it kept from happening one day, this fails.
#[tokio::test]
async fn r12_what_a_handler_runs_after_a_full_disk_is_committed_and_the_message_is_not() {
    let store = nearly_full().await;
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    fill(&mut tx).await.unwrap_err();
    credit(&mut tx).await.unwrap();

    assert_eq!(kind(tx.commit().await), Some(ErrorKind::TransactionLost));

    assert_sound(&store).await;
    assert_eq!((credits(&store).await, is_registered(&store, "m").await), (1, false));
}

#[tokio::test]
async fn r12_after_a_full_disk_nothing_is_registered_by_the_guard_or_by_reference() {
    let store = nearly_full().await;
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    fill(&mut tx).await.unwrap_err();
    assert_eq!(kind(tx.register_if_new(&message("n")).await), Some(ErrorKind::TransactionLost));
    // The refusal has begun a transaction, and with it this is rolled back.
    credit(&mut tx).await.unwrap();
    drop(tx);
    assert_forgotten(&store).await;

    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    fill(&mut tx).await.unwrap_err();
    assert_eq!(kind(inbox.register_if_new(&mut tx, &message("n")).await), Some(ErrorKind::TransactionLost));
    credit(&mut tx).await.unwrap();
    assert!(tx.commit().await.is_err());
    mend(&store).await;
    assert_forgotten(&store).await;
    assert!(!is_registered(&store, "n").await);
}

#[tokio::test]
async fn r12_a_handler_that_fails_with_a_full_disk_is_lost() {
    let store = nearly_full().await;
    let failed = inbox(&store)
        .process(&message("m"), async |tx| {
            credit(tx).await?;
            fill(tx).await
        })
        .await;
    let AppError::Inbox(error) = failed.unwrap_err() else { panic!("nothing tells what ran after the end") };
    assert_eq!(error.kind(), ErrorKind::TransactionLost);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_swallowed_conflict_under_or_rollback_is_lost() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    sql(&mut tx, "INSERT OR ROLLBACK INTO main.inbox SELECT * FROM main.inbox").await.unwrap_err();
    assert_eq!(kind(tx.commit().await), Some(ErrorKind::TransactionLost));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_nested_begin_that_fails_is_lost() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    assert!(tx.begin_with("BEGIN IMMEDIATE").await.is_err());
    assert_eq!(kind(tx.commit().await), Some(ErrorKind::TransactionLost));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_nested_begin_that_is_dropped_is_lost_and_nothing_is_registered_alone() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    for _ in 0..3 {
        let mut tx = registered_and_credited(&inbox).await;
        keep_busy(&mut tx).await;
        let mut nested = Box::pin(tx.begin());
        assert!(poll_once(&mut nested).await.is_none());
        drop(nested);
        // Its rollback of the outer transaction is only queued here.
        assert_eq!(kind(tx.register_if_new(&message("n")).await), Some(ErrorKind::TransactionLost));
        drop(tx);
        assert_forgotten(&store).await;
        assert!(!is_registered(&store, "n").await);

        let mut tx = registered_and_credited(&inbox).await;
        keep_busy(&mut tx).await;
        let mut nested = Box::pin(tx.begin());
        assert!(poll_once(&mut nested).await.is_none());
        drop(nested);
        assert_eq!(kind(tx.commit().await), Some(ErrorKind::TransactionLost));
        assert_forgotten(&store).await;
    }
}

#[tokio::test]
async fn r12_a_restart_is_noticed_without_a_registration_and_under_a_guard_of_ones_own() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut begun = inbox.begin().await.unwrap();
    sql(&mut begun, "COMMIT; BEGIN").await.unwrap();
    assert_eq!(kind(begun.commit().await), Some(ErrorKind::TransactionLost));

    let mut guarded = inbox.guard(store.pool().begin().await.unwrap()).await.unwrap();
    assert!(guarded.register_if_new(&message("n")).await.unwrap().is_new());
    sql(&mut guarded, "COMMIT; BEGIN").await.unwrap();
    assert!(guarded.register_if_new(&message("o")).await.unwrap().is_new());
    assert_eq!(kind(guarded.commit().await), Some(ErrorKind::TransactionLost));
    assert!(!is_registered(&store, "o").await);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn a_nested_transaction_has_a_guard_of_its_own() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut outer = inbox.begin().await.unwrap();
    assert!(outer.register_if_new(&message("outer")).await.unwrap().is_new());

    let mut nested = inbox.guard(outer.begin().await.unwrap()).await.unwrap();
    assert!(nested.register_if_new(&message("kept")).await.unwrap().is_new());
    nested.commit().await.unwrap();
    let mut nested = inbox.guard(outer.begin().await.unwrap()).await.unwrap();
    assert!(nested.register_if_new(&message("m")).await.unwrap().is_new());
    credit(&mut nested).await.unwrap();
    nested.rollback().await.unwrap();
    let mut dropped = outer.begin().await.unwrap();
    credit(&mut dropped).await.unwrap();
    keep_busy(&mut dropped).await;
    drop(dropped);

    outer.commit().await.unwrap();
    assert!(is_registered(&store, "outer").await && is_registered(&store, "kept").await);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_nested_transaction_that_lost_its_guard_does_not_take_the_outer_ones() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut outer = inbox.begin().await.unwrap();
    assert!(outer.register_if_new(&message("outer")).await.unwrap().is_new());
    let mut nested = outer.begin().await.unwrap();
    sql(&mut nested, "SAVEPOINT before_it").await.unwrap();
    let mut nested = inbox.guard(nested).await.unwrap();
    assert!(nested.register_if_new(&message("m")).await.unwrap().is_new());
    sql(&mut nested, "RELEASE before_it").await.unwrap();

    assert_eq!(kind(nested.commit().await), Some(ErrorKind::TransactionLost));

    outer.commit().await.unwrap();
    assert!(is_registered(&store, "outer").await);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_deferred_foreign_key_that_fails_at_commit_commits_nothing() {
    let store = in_memory().await;
    let tables = "CREATE TABLE parent (id INTEGER PRIMARY KEY);
                  CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(tables).execute(store.pool()).await.unwrap();
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    sql(&mut tx, "INSERT INTO child VALUES (1)").await.unwrap();
    assert_eq!(kind(tx.commit().await), Some(ErrorKind::Backend));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_commit_that_readers_hold_up_is_busy_and_rolled_back() {
    // The rollback journal, not a write-ahead log: there a reader stops the commit.
    let (file, store) = File::with(SqliteJournalMode::Delete, 1).await;
    let mut reader = file.foreign().await;
    sql(&mut reader, "BEGIN; SELECT count(*) FROM points").await.unwrap();
    let inbox = inbox(&store);
    let mut tx = registered_and_credited(&inbox).await;
    sql(&mut tx, "PRAGMA busy_timeout = 50").await.unwrap();

    assert_eq!(kind(tx.commit().await), Some(ErrorKind::Busy));

    sql(&mut reader, "COMMIT").await.unwrap();
    sqlx::raw_sql("PRAGMA busy_timeout = 5000").execute(store.pool()).await.unwrap();
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_by_value_the_callers_transaction_is_committed_with_its_registration() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    for begin in ["BEGIN", "BEGIN IMMEDIATE"] {
        let tx = store.pool().begin_with(begin).await.unwrap();
        let Registered::New(mut tx) = inbox.register(tx, &message(begin)).await.unwrap() else {
            panic!("it is new")
        };
        credit(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        assert!(is_registered(&store, begin).await);
    }
    assert_eq!(credits(&store).await, 2);
}
