//! A transaction begins on a connection that nobody has left something on (R12, R17).

use inbox_core::{AfterDead, Claim, Deferred, Error, ErrorKind, Inbox, Outcome};
use inbox_postgres::PostgresStore;
use sqlx::Connection;

use crate::deferred;
use crate::stand::{Stand, consumer, effect, kind, message, run, try_run};

async fn processed(inbox: &Inbox<PostgresStore>, id: &str) -> bool {
    let letter = message(id);
    let answer: Result<Outcome<()>, Error> = inbox.process(&letter, async |_| Ok(())).await;
    answer.unwrap().is_processed()
}

#[tokio::test]
async fn a_nested_transaction_that_was_leaked_is_undone_and_the_pool_goes_on() {
    let Some(stand) = Stand::new().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    let mut tx = inbox.store().pool().begin().await.unwrap();
    effect(&mut tx).await;
    std::mem::forget(tx.begin().await.unwrap());
    drop(tx);

    assert_eq!(kind(inbox.begin().await), ErrorKind::Unavailable);
    assert!(processed(&inbox, "m").await);
    assert_eq!((stand.registered().await, stand.effects().await), (1, 0));
}

#[tokio::test]
async fn a_failed_transaction_that_was_left_on_a_connection_is_undone() {
    let Some(stand) = Stand::new().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    let mut conn = inbox.store().pool().acquire().await.unwrap();
    run(&mut conn, "BEGIN").await;
    try_run(&mut conn, "SELECT 1/0").await.unwrap_err();
    drop(conn);

    inbox.begin().await.unwrap().rollback().await.unwrap();
    assert!(processed(&inbox, "m").await);
}

#[tokio::test]
async fn a_claim_in_order_undoes_what_was_left_on_its_connection() {
    let Some(stand) = deferred::stand().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    deferred::receive(&inbox, "m").await;
    let consumer = consumer();
    let claim = || Claim::new(&consumer, deferred::LEASE, 5).order(Some(AfterDead::Pass));
    let mut tx = inbox.store().pool().begin().await.unwrap();
    effect(&mut tx).await;
    std::mem::forget(tx.begin().await.unwrap());
    drop(tx);
    assert_eq!(kind(inbox.store().claim(&claim()).await), ErrorKind::Unavailable);

    let mut conn = inbox.store().pool().acquire().await.unwrap();
    run(&mut conn, "BEGIN").await;
    try_run(&mut conn, "SELECT 1/0").await.unwrap_err();
    drop(conn);
    assert_eq!(inbox.store().claim(&claim()).await.unwrap().len(), 1);
    assert_eq!(stand.effects().await, 0);
}

#[tokio::test]
async fn r13_a_database_that_takes_no_connections_is_unavailable() {
    let Some(stand) = Stand::new().await else { return };
    let database: String =
        sqlx::query_scalar("SELECT current_database()").fetch_one(&stand.pool).await.unwrap();
    let name = format!("{database}_closed");
    stand.sql(&format!("CREATE DATABASE {name} ALLOW_CONNECTIONS false")).await;
    let options = (*stand.pool.connect_options()).clone().database(&name);
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(options);
    let answer = PostgresStore::open(pool).await;
    stand.sql(&format!("DROP DATABASE {name}")).await;
    assert_eq!(kind(answer), ErrorKind::Unavailable);
}
