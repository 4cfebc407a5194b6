//! After an error of a call by reference nothing more can be written through the transaction (R9).

use inbox_core::ErrorKind;
use sqlx::Connection;

use crate::stand::{Stand, give_up, kind, message, on_each_server, run, try_run};

on_each_server![
    r09_an_error_by_reference_ends_the_transaction,
    r09_an_error_by_reference_ends_it_past_the_late_errors_of_others,
];

/// So that another payload under the id is an error.
async fn register_with_payload(stand: &Stand) {
    let mut tx = stand.inbox.begin().await.unwrap();
    tx.register_if_new(&message("m-1").with_payload(b"one")).await.unwrap();
    tx.commit().await.unwrap();
}

async fn nothing_can_be_written(stand: &Stand, mut tx: sqlx::Transaction<'static, sqlx::MySql>) {
    assert!(try_run(&mut tx, "INSERT INTO effect VALUES ('after')").await.is_err());
    assert!(tx.commit().await.is_err(), "a condemned transaction was committed");
    assert_eq!(stand.committed().await, (1, 0));
}

async fn r09_an_error_by_reference_ends_the_transaction(stand: Stand) {
    register_with_payload(&stand).await;
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "INSERT INTO effect VALUES ('before')").await;
    let answer = stand.inbox.register_if_new(&mut tx, &message("m-1").with_payload(b"other")).await;
    assert_eq!(kind(answer), ErrorKind::Mismatch);
    nothing_can_be_written(&stand, tx).await;
}

/// Two errors are still to be read: of a statement that was given up, and of the rollback of the nested
/// transaction around it, whose savepoint a raw ROLLBACK has removed.
async fn r09_an_error_by_reference_ends_it_past_the_late_errors_of_others(stand: Stand) {
    register_with_payload(&stand).await;
    let mut tx = stand.pool.begin().await.unwrap();
    let mut nested = tx.begin().await.unwrap();
    run(&mut nested, "ROLLBACK; START TRANSACTION").await;
    give_up(&mut nested, "DO SLEEP(0.1); SIGNAL SQLSTATE '45000'").await;
    drop(nested);
    let answer = stand.inbox.register_if_new(&mut tx, &message("m-1").with_payload(b"other")).await;
    assert_eq!(kind(answer), ErrorKind::Backend, "the late error is the inbox's to report");
    nothing_can_be_written(&stand, tx).await;
}
