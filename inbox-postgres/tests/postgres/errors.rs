//! Each kind of error as a real server raises it (R13).

use std::time::Duration;

use inbox_core::ErrorKind;
use inbox_postgres::is_retryable;

use crate::stand::{Stand, kind, message, pid, run, try_run};

#[tokio::test]
async fn r13_a_wrong_table_is_of_kind_schema() {
    let Some(stand) = Stand::new().await else { return };
    for (damage, remedy) in [
        ("DROP TABLE inbox", "run create_schema, or the text of ddl"),
        ("DROP SCHEMA public CASCADE", "run create_schema, or the text of ddl"),
        ("ALTER TABLE inbox DROP COLUMN event_type", "run verify"),
        ("ALTER TABLE inbox DROP CONSTRAINT inbox_pkey", "run verify"),
        (
            "ALTER TABLE inbox DROP CONSTRAINT inbox_pkey, ADD PRIMARY KEY (consumer, message_id) DEFERRABLE",
            "run verify",
        ),
        ("CREATE ROLE nobody_of_inbox; SET LOCAL ROLE nobody_of_inbox", "the text of grants"),
    ] {
        for batch in [false, true] {
            let mut tx = stand.pool.begin().await.unwrap();
            run(&mut tx, damage).await;
            let error = match batch {
                false => stand.inbox.register_if_new(&mut tx, &message("m")).await.map(drop),
                true => stand.inbox.register_batch(&mut tx, &[message("m")]).await.map(drop),
            };
            let error = error.expect_err(damage);
            assert_eq!(error.kind(), ErrorKind::Schema, "{damage}");
            assert!(error.to_string().contains(remedy), "{damage}: {error}");
            assert!(!error.to_string().contains("the bound of the wait"), "{damage}: {error}");
        }
    }
}

#[tokio::test]
async fn r13_a_unique_violation_while_registering_is_retryable() {
    let Some(stand) = Stand::new().await else { return };
    // As REINDEX CONCURRENTLY: an index that ON CONFLICT does not arbitrate on.
    stand.sql("INSERT INTO inbox VALUES ('loyalty', 'm', 'PaymentConfirmed'); CREATE UNIQUE INDEX ON inbox (event_type)").await;
    for batch in [false, true] {
        let mut tx = stand.pool.begin().await.unwrap();
        let answer = match batch {
            false => stand.inbox.register_if_new(&mut tx, &message("n")).await.map(drop),
            true => stand.inbox.register_batch(&mut tx, &[message("n")]).await.map(drop),
        };
        assert_eq!(kind(answer), ErrorKind::Retryable, "batch: {batch}");
    }
}

#[tokio::test]
async fn r13_a_deadlock_is_retryable() {
    let Some(stand) = Stand::new().await else { return };
    let (mut one, mut other) = (stand.pool.begin().await.unwrap(), stand.pool.begin().await.unwrap());
    stand.inbox.register_if_new(&mut one, &message("a")).await.unwrap();
    stand.inbox.register_if_new(&mut other, &message("b")).await.unwrap();
    let (b, a) = (message("b"), message("a"));
    // The loser is dropped at once, so that the other one need not wait for its own bound.
    let (first, second) = tokio::join!(
        async {
            let answer = stand.inbox.register_if_new(&mut one, &b).await;
            drop(one);
            answer
        },
        async {
            let answer = stand.inbox.register_if_new(&mut other, &a).await;
            drop(other);
            answer
        },
    );
    let kinds = [first, second].map(|answer| answer.err().map(|error| error.kind()));
    assert!(kinds.contains(&Some(ErrorKind::Retryable)) && kinds.contains(&None), "{kinds:?}");
}

#[tokio::test]
async fn r13_a_read_only_transaction_is_unavailable() {
    let Some(stand) = Stand::new().await else { return };
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SET TRANSACTION READ ONLY").await;
    assert_eq!(kind(stand.inbox.register_if_new(&mut tx, &message("m")).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn r13_a_session_that_was_ended_is_unavailable() {
    let Some(stand) = Stand::new().await else { return };
    let mut killed = stand.pool.begin().await.unwrap();
    stand.kill(pid(&mut killed).await).await;
    assert_eq!(kind(stand.inbox.register_if_new(&mut killed, &message("m")).await), ErrorKind::Unavailable);

    let mut idle = stand.pool.begin().await.unwrap();
    let pid = pid(&mut idle).await;
    run(&mut idle, "SET LOCAL idle_in_transaction_session_timeout = '1ms'").await;
    stand.until_gone(pid).await;
    assert_eq!(kind(stand.inbox.register_if_new(&mut idle, &message("m")).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn r13_an_aborted_transaction_is_of_kind_aborted() {
    let Some(stand) = Stand::new().await else { return };
    let mut tx = stand.pool.begin().await.unwrap();
    try_run(&mut tx, "SELECT 1/0").await.unwrap_err();
    assert_eq!(kind(stand.inbox.register_if_new(&mut tx, &message("m")).await), ErrorKind::Aborted);
}

#[tokio::test]
async fn r13_a_statement_timeout_is_the_callers_and_not_ours() {
    let Some(stand) = Stand::new().await else { return };
    let mut holder = stand.pool.begin().await.unwrap();
    stand.inbox.register_if_new(&mut holder, &message("m")).await.unwrap();
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SET LOCAL statement_timeout = '50ms'").await;
    assert_eq!(kind(stand.inbox.register_if_new(&mut tx, &message("m")).await), ErrorKind::Backend);
}

#[tokio::test]
async fn r13_no_connection_is_unavailable() {
    let Some(stand) = Stand::new().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    let held = inbox.begin().await.unwrap();
    assert_eq!(kind(inbox.begin().await), ErrorKind::Unavailable, "the pool is used up");
    drop(held);
    inbox.store().pool().close().await;
    assert_eq!(kind(inbox.begin().await), ErrorKind::Unavailable, "the pool is closed");

    let nobody = sqlx::postgres::PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(200))
        .connect_lazy("postgres://nobody@127.0.0.1:1/none")
        .unwrap();
    assert_eq!(kind(inbox_postgres::PostgresStore::open(nobody).await), ErrorKind::Unavailable);
}

/// Redelivered, not parked: the message is not to blame.
#[tokio::test]
async fn r13_a_refused_login_is_unavailable() {
    let Some(stand) = Stand::new().await else { return };
    let options = stand.pool.connect_options().as_ref().clone().username("inbox_nobody");
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(options);
    let error = inbox_postgres::PostgresStore::open(pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("check user, password and host"), "{error}");
}

#[tokio::test]
async fn a_handlers_own_errors_are_told_apart() {
    let Some(stand) = Stand::new().await else { return };
    let mut holder = stand.pool.begin().await.unwrap();
    run(&mut holder, "LOCK TABLE effect").await;
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SET LOCAL lock_timeout = '1ms'").await;
    assert!(is_retryable(&try_run(&mut tx, "INSERT INTO effect VALUES ('e')").await.unwrap_err()));
    assert!(!is_retryable(&try_run(&mut tx, "SELECT 1").await.unwrap_err()), "aborted");
}
