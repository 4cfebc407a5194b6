//! After an error by reference the transaction commits nothing (R9).

use inbox_core::ErrorKind;
use inbox_sqlite::on_sqlx::{InTransaction, SqlxSqliteStore};
use sqlx::sqlite::Sqlite;
use sqlx::{Connection as _, Transaction};

use crate::stand::{
    assert_forgotten, credit, credits, in_memory, inbox, is_registered, kind, mend, message, sql,
};

/// A database whose one connection has a transaction that was condemned by a mismatch.
async fn condemned(store: &SqlxSqliteStore) -> Transaction<'static, Sqlite> {
    let inbox = inbox(store);
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    sql(&mut tx, "SAVEPOINT before_it").await.unwrap();
    assert!(inbox.register_if_new(&mut tx, &message("m").with_payload(b"1")).await.unwrap().is_new());
    credit(&mut tx).await.unwrap();
    let mismatch = inbox.register_if_new(&mut tx, &message("m").with_payload(b"2")).await;
    assert_eq!(kind(mismatch), Some(ErrorKind::Mismatch));
    tx
}

#[tokio::test]
async fn r09_the_drivers_commit_fails_and_commits_nothing() {
    for swallow in ["", "ROLLBACK TO before_it", "RELEASE before_it"] {
        let store = in_memory().await;
        let mut tx = condemned(&store).await;
        sql(&mut tx, swallow).await.unwrap();
        credit(&mut tx).await.unwrap();
        let refused = tx.commit().await.unwrap_err();
        assert_eq!(refused.as_database_error().and_then(|error| error.code()).as_deref(), Some("531"));
        mend(&store).await;
        assert_forgotten(&store).await;
    }
}

#[tokio::test]
async fn r09_the_stores_commit_is_aborted_and_the_connection_is_mended() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let mut tx = inbox.guard(condemned(&store).await).await.unwrap();
    credit(&mut tx).await.unwrap();
    assert_eq!(kind(tx.commit().await), Some(ErrorKind::Aborted));
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r09_a_raw_commit_fails_as_well() {
    let store = in_memory().await;
    let mut tx = condemned(&store).await;
    assert!(sql(&mut tx, "COMMIT").await.is_err());
    drop(tx);
    mend(&store).await;
    assert_forgotten(&store).await;
}

#[tokio::test]
async fn r15_the_next_transaction_of_the_connection_commits() {
    let store = in_memory().await;
    condemned(&store).await.rollback().await.unwrap();
    let mut tx = store.pool().begin().await.unwrap();
    assert!(inbox(&store).register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    credit(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((credits(&store).await, is_registered(&store, "m").await), (1, true));
}

#[tokio::test]
async fn r15_a_transaction_that_sqlx_has_lost_leaves_nothing_on_the_connection() {
    let store = in_memory().await;
    let mut tx = store.pool().begin().await.unwrap();
    credit(&mut tx).await.unwrap();
    assert!(tx.begin_with("BEGIN").await.is_err());
    let lost = inbox(&store).register_if_new(&mut tx, &message("m")).await;
    assert_eq!(kind(lost), Some(ErrorKind::TransactionLost));
    drop(tx);
    assert_forgotten(&store).await;

    let processed = inbox(&store).process(&message("m"), async |tx| credit(tx).await).await.unwrap();
    assert!(processed.is_processed());
}

#[tokio::test]
async fn a_connection_in_a_transaction_is_registered_on_and_condemned() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let mut conn = store.pool().acquire().await.unwrap();
    assert_eq!(kind(InTransaction::new(&mut conn)), Some(ErrorKind::TransactionLost));

    let mut tx = conn.begin().await.unwrap();
    let mut borrowed = InTransaction::new(&mut tx).unwrap();
    assert!(inbox.register_if_new(&mut borrowed, &message("kept")).await.unwrap().is_new());
    tx.commit().await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    let mut borrowed = InTransaction::new(&mut tx).unwrap();
    credit(&mut borrowed).await.unwrap();
    sql(&mut borrowed, "ALTER TABLE inbox RENAME TO hidden").await.unwrap();
    assert_eq!(kind(inbox.register_if_new(&mut borrowed, &message("m")).await), Some(ErrorKind::Schema));
    assert!(tx.commit().await.is_err());
    drop(conn);
    mend(&store).await;

    assert!(is_registered(&store, "kept").await);
    assert_forgotten(&store).await;
}
