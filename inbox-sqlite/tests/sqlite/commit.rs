//! How transactions end, and that nobody is told otherwise (R4, R9, R12).

use std::time::{Duration, Instant};

use inbox_core::{
    Begin, End, Error, ErrorKind, InboxStore, Outcome, Registration, RetryPolicy, TableName, Transactional,
};
use inbox_sqlite::{SqliteStore, SqliteTx};
use rusqlite::{Connection, ffi};

use crate::stand::{
    AppError, File, consumer, count, credit, credits, in_memory, inbox, is_registered, message,
};

/// A transaction that has registered "m" by reference and credited.
async fn registered_and_credited(store: &SqliteStore) -> SqliteTx {
    let mut tx = store.begin(None).await.unwrap();
    assert!(inbox(store).register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    credit(&mut tx).await.unwrap();
    tx
}

/// Commits as the guard would that saw "m" as new.
async fn commit(store: &SqliteStore, tx: SqliteTx) -> Result<(), Error> {
    store.commit(tx, End::new(&consumer(), &[message("m").id().clone()])).await
}

/// Rolls back as the guard would that saw "m" as new.
async fn roll_back(store: &SqliteStore, tx: SqliteTx) -> Result<(), Error> {
    store.rollback(tx, End::new(&consumer(), &[message("m").id().clone()])).await
}

async fn sql(tx: &mut SqliteTx, text: &'static str) -> rusqlite::Result<()> {
    tx.call(move |conn| conn.execute_batch(text)).await
}

fn kind(result: Result<(), Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Nothing is left of "m", and the store goes on working.
async fn assert_forgotten(store: &SqliteStore) {
    assert!(!is_registered(store, "m").await);
    assert_eq!(credits(store).await, 0);
    let outcome = inbox(store).process(&message("m"), async |tx| credit(tx).await).await.unwrap();
    assert_eq!(outcome, Outcome::Processed(()));
}

#[tokio::test]
async fn a_commit_keeps_effect_and_registration() {
    let store = in_memory().await;
    let tx = registered_and_credited(&store).await;
    assert_eq!(kind(commit(&store, tx).await), None);
    assert!(is_registered(&store, "m").await);
    assert_eq!(credits(&store).await, 1);
}

#[tokio::test]
async fn r04_rollback_drop_and_a_failing_handler_forget() {
    let store = in_memory().await;
    let tx = registered_and_credited(&store).await;
    roll_back(&store, tx).await.unwrap();
    drop(registered_and_credited(&store).await);
    let failed = inbox(&store)
        .process(&message("m"), async |tx| {
            credit(tx).await?;
            Err::<(), _>(AppError::Refused)
        })
        .await;
    assert!(matches!(failed, Err(AppError::Refused)), "{failed:?}");
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_raw_commit_is_lost_and_later_calls_do_not_run() {
    let store = in_memory().await;
    let mut tx = registered_and_credited(&store).await;
    sql(&mut tx, "COMMIT").await.unwrap();

    let refused = credit(&mut tx).await.unwrap_err();

    assert!(refused.to_string().contains("ended this transaction"), "{refused}");
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::TransactionLost));
    assert_eq!(credits(&store).await, 1, "the raw COMMIT's, no second one");
}

#[tokio::test]
async fn r12_a_raw_commit_and_begin_in_one_call_is_lost_at_commit() {
    let store = in_memory().await;
    for again in ["COMMIT; BEGIN", "COMMIT; BEGIN IMMEDIATE", "ROLLBACK; BEGIN"] {
        let mut tx = registered_and_credited(&store).await;
        sql(&mut tx, again).await.unwrap();
        credit(&mut tx).await.unwrap();
        assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::TransactionLost), "{again}");
        store.call(|conn| conn.execute_batch("DELETE FROM inbox")).await.unwrap();
    }
    assert_eq!(credits(&store).await, 2, "those of the two raw COMMITs");
}

#[tokio::test]
async fn r12_a_raw_rollback_is_lost() {
    let store = in_memory().await;
    let mut tx = registered_and_credited(&store).await;
    sql(&mut tx, "ROLLBACK").await.unwrap();
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::TransactionLost));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_rollback_too_tells_that_the_transaction_was_ended_before() {
    let store = in_memory().await;
    for ended in ["COMMIT", "COMMIT; BEGIN"] {
        let mut tx = store.begin(None).await.unwrap();
        sql(&mut tx, ended).await.unwrap();
        assert_eq!(
            kind(store.rollback(tx, End::new(&consumer(), &[])).await),
            Some(ErrorKind::TransactionLost),
            "{ended}"
        );
    }
    let tx = store.begin(None).await.unwrap();
    assert_eq!(kind(store.rollback(tx, End::new(&consumer(), &[])).await), None);
}

/// Processes "m" with a handler that credits, runs `sql` in one call, ignores its error, and fails.
async fn fails_after(store: &SqliteStore, text: &'static str) -> AppError {
    inbox(store)
        .process(&message("m"), async |tx| {
            credit(tx).await?;
            sql(tx, text).await.unwrap_or(());
            Err::<(), _>(AppError::Refused)
        })
        .await
        .unwrap_err()
}

#[tokio::test]
async fn r12_a_failing_handler_whose_transaction_was_rolled_back_keeps_its_error() {
    let store = in_memory().await;
    for ended in ["INSERT OR ROLLBACK INTO points VALUES (NULL)", "ROLLBACK"] {
        let failed = fails_after(&store, ended).await;
        assert!(matches!(failed, AppError::Refused), "{ended}: {failed:?}");
        assert!(!is_registered(&store, "m").await);
        assert_eq!(credits(&store).await, 0);
    }
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_failing_handler_under_which_something_may_be_committed_is_lost() {
    for ended in [
        "COMMIT",
        "COMMIT; BEGIN",
        "COMMIT; INSERT INTO points VALUES (1)",
        "ROLLBACK; INSERT INTO points VALUES (1)",
    ] {
        let store = in_memory().await;
        let failed = fails_after(&store, ended).await;
        let AppError::Inbox(lost) = failed else { panic!("{ended}: {failed:?}") };
        assert_eq!(lost.kind(), ErrorKind::TransactionLost, "{ended}");
        assert!(credits(&store).await > 0, "{ended}");
    }
}

#[tokio::test]
async fn r12_an_error_of_the_inbox_in_another_transaction_hides_no_lost_one() {
    let store = in_memory().await;
    let other = inbox(&SqliteStore::in_memory().unwrap().with_table(TableName::new("main", "none").unwrap()));
    let failed = inbox(&store)
        .process(&message("m"), async |tx| {
            credit(tx).await?;
            sql(tx, "COMMIT; BEGIN").await?;
            other.register_if_new(tx, &message("n")).await?;
            Ok::<_, AppError>(())
        })
        .await;
    let AppError::Inbox(lost) = failed.unwrap_err() else { panic!("of the inbox") };
    assert_eq!(lost.kind(), ErrorKind::TransactionLost);
    assert!(is_registered(&store, "m").await);
}

#[tokio::test]
async fn r12_without_a_registration_nothing_proves_a_rollback() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    sql(&mut tx, "ROLLBACK").await.unwrap();
    let rolled_back = store.rollback(tx, End::new(&consumer(), &[])).await;
    assert_eq!(kind(rolled_back), Some(ErrorKind::TransactionLost));
}

#[tokio::test]
async fn r12_nobody_gets_in_between_an_end_and_the_rollback_that_looks_at_it() {
    let (_file, store) = File::new().await;
    let mut tx = registered_and_credited(&store).await;
    sql(&mut tx, "ROLLBACK").await.unwrap();
    let busy = store.begin(Some(std::time::Duration::ZERO)).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert_eq!(kind(roll_back(&store, tx).await), None);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_savepoint_that_undid_the_registration_is_noticed() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    sql(&mut tx, "SAVEPOINT mine").await.unwrap();
    assert!(inbox(&store).register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    sql(&mut tx, "ROLLBACK TO mine").await.unwrap();
    credit(&mut tx).await.unwrap();
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::TransactionLost));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r04_a_savepoint_forgets_and_the_id_is_new_again_in_the_same_transaction() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    for _ in 0..2 {
        sql(&mut tx, "SAVEPOINT mine").await.unwrap();
        assert!(inbox(&store).register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
        sql(&mut tx, "ROLLBACK TO mine; RELEASE mine").await.unwrap();
    }
    assert!(inbox(&store).register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    sql(&mut tx, "SAVEPOINT left_open").await.unwrap();
    assert_eq!(kind(commit(&store, tx).await), None);
    assert!(is_registered(&store, "m").await);
}

/// A file that is full after a few more pages.
async fn nearly_full() -> (File, SqliteStore) {
    let (file, store) = File::new().await;
    store
        .call(|conn| {
            conn.execute_batch("CREATE TABLE big (bytes BLOB)")?;
            let pages: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            conn.query_row(&format!("PRAGMA max_page_count = {}", pages + 5), [], |_| Ok(()))
        })
        .await
        .unwrap();
    (file, store)
}

const TOO_BIG: &str = "INSERT INTO big VALUES (zeroblob(1000000))";

#[tokio::test]
async fn r12_a_full_disk_ends_the_transaction_and_nothing_runs_after_it() {
    let (_file, store) = nearly_full().await;
    let mut tx = registered_and_credited(&store).await;

    let code = sql(&mut tx, TOO_BIG).await.unwrap_err().sqlite_error_code();
    let swallowed = credit(&mut tx).await;

    assert_eq!(code, Some(ffi::ErrorCode::DiskFull));
    assert!(swallowed.is_err(), "it would have been in autocommit");
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::TransactionLost));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_handler_that_fails_with_a_full_disk_keeps_its_error() {
    let (_file, store) = nearly_full().await;
    let failed = inbox(&store)
        .process(&message("m"), async |tx| {
            credit(tx).await?;
            Ok::<_, AppError>(sql(tx, TOO_BIG).await?)
        })
        .await;
    let failed = failed.unwrap_err();
    let AppError::Sqlite(full) = failed else { panic!("{failed:?}") };
    assert_eq!(full.sqlite_error_code(), Some(ffi::ErrorCode::DiskFull));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r09_a_condemned_transaction_commits_nothing() {
    let store = in_memory().await;
    let mut tx = registered_and_credited(&store).await;
    store.condemn(&mut tx).await;

    assert!(credit(&mut tx).await.is_err());
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::Aborted));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r09_an_error_of_the_inbox_condemns_the_transaction() {
    let store = in_memory().await;
    let mut tx = registered_and_credited(&store).await;
    let other_table = SqliteStore::in_memory().unwrap().with_table(TableName::new("main", "none").unwrap());
    let error = inbox(&other_table).register_if_new(&mut tx, &message("n")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::Aborted));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r09_an_error_of_the_inbox_that_ended_the_transaction_condemns_it_too() {
    let store = in_memory().await;
    let mut tx = registered_and_credited(&store).await;
    let trigger = "CREATE TRIGGER t BEFORE INSERT ON inbox BEGIN SELECT RAISE(ROLLBACK, 'no'); END";
    sql(&mut tx, trigger).await.unwrap();
    assert!(inbox(&store).register_if_new(&mut tx, &message("n")).await.is_err());
    assert_eq!(kind(store.rollback(tx, End::new(&consumer(), &[])).await), None);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_an_error_of_the_handlers_own_sql_leaves_the_choice_to_the_handler() {
    let store = in_memory().await;
    let mut tx = registered_and_credited(&store).await;
    assert!(sql(&mut tx, "INSERT INTO points VALUES (NULL)").await.is_err());
    assert_eq!(kind(commit(&store, tx).await), None);
    assert_eq!(credits(&store).await, 1);
}

#[tokio::test]
async fn r12_a_deferred_foreign_key_that_fails_at_commit_commits_nothing() {
    let store = in_memory().await;
    store
        .call(|conn| {
            conn.execute_batch(
                "PRAGMA foreign_keys = ON;
                 CREATE TABLE parent (id INTEGER PRIMARY KEY);
                 CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);",
            )
        })
        .await
        .unwrap();
    let mut tx = registered_and_credited(&store).await;
    sql(&mut tx, "INSERT INTO child VALUES (1)").await.unwrap();
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::Backend));
    assert_eq!(count(&store, "SELECT count(*) FROM child").await, 0);
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r12_a_commit_that_readers_hold_up_past_the_wait_is_busy_and_rolled_back() {
    let file = File::empty();
    let conn = Connection::open(file.path()).unwrap();
    let store = SqliteStore::from_connection(conn).unwrap().with_wait(std::time::Duration::from_millis(50));
    store.create_schema().await.unwrap();
    store.call(|conn| conn.execute_batch(crate::stand::POINTS)).await.unwrap();
    // The rollback journal, not a write-ahead log: there a reader stops the commit.
    let reader = file.foreign();
    reader.execute_batch("BEGIN; SELECT count(*) FROM points").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM points", [], |row| row.get(0)).unwrap();

    let tx = registered_and_credited(&store).await;
    assert_eq!(kind(commit(&store, tx).await), Some(ErrorKind::Busy));

    reader.execute_batch("COMMIT").unwrap();
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r06_the_inboxs_wait_bounds_the_commit_too() {
    let file = File::empty();
    let store = SqliteStore::from_connection(Connection::open(file.path()).unwrap()).unwrap();
    store.create_schema().await.unwrap();
    store.call(|conn| conn.execute_batch(crate::stand::POINTS)).await.unwrap();
    let reader = file.foreign();
    reader.execute_batch("BEGIN; SELECT count(*) FROM points").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM points", [], |row| row.get(0)).unwrap();
    let inbox = inbox(&store).with_wait(Duration::ZERO).with_retry(RetryPolicy::none());

    let started = Instant::now();
    let answer = inbox.process(&message("m"), async |tx| credit(tx).await).await;

    let AppError::Inbox(error) = answer.unwrap_err() else { panic!("of the inbox") };
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    // The store's own wait is 10 s.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_transaction_of_duplicates_only_commits() {
    let store = in_memory().await;
    let tx = registered_and_credited(&store).await;
    commit(&store, tx).await.unwrap();
    let inbox = inbox(&store);
    let mut tx = inbox.begin().await.unwrap();
    assert!(matches!(tx.register_if_new(&message("m")).await.unwrap(), Registration::Duplicate(_)));
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_call_outside_that_leaves_a_transaction_open_is_an_error_and_rolled_back() {
    let store = in_memory().await;
    let left_open = store.call(|conn| conn.execute_batch("BEGIN; INSERT INTO points VALUES (1)")).await;
    let code = left_open.unwrap_err().sqlite_error_code();
    assert_eq!(code, Some(ffi::ErrorCode::ApiMisuse));
    assert_forgotten(&store).await;
}
