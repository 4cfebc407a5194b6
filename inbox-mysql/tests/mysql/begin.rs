//! A transaction begins on a connection that nobody has left something on (R12, R17).

use std::future::{Future, poll_fn};
use std::task::Poll;

use inbox_core::{Error, ErrorKind, Inbox, Outcome};
use inbox_mysql::MySqlStore;
use sqlx::Connection;

use crate::stand::{Stand, effect, kind, message, on_each_server, run, session};

on_each_server![
    a_transaction_that_was_left_on_a_connection_is_undone_and_not_committed,
    a_transaction_that_was_leaked_is_undone_and_the_pool_goes_on,
    a_nested_transaction_that_was_leaked_is_undone_and_the_pool_goes_on,
    r17_a_cancelled_begin_leaves_no_open_transaction_in_the_pool,
    r13_a_database_that_is_not_there_is_of_kind_schema,
];

async fn processed(inbox: &Inbox<MySqlStore>, id: &str) -> bool {
    let letter = message(id);
    let answer: Result<Outcome<()>, Error> = inbox.process(&letter, async |_| Ok(())).await;
    answer.unwrap().is_processed()
}

/// START TRANSACTION would commit it.
async fn a_transaction_that_was_left_on_a_connection_is_undone_and_not_committed(stand: Stand) {
    for left in ["BEGIN", "SET autocommit = 0"] {
        let inbox = stand.inbox_on_one("DO 0").await;
        let mut conn = inbox.store().pool().acquire().await.unwrap();
        run(&mut conn, left).await;
        effect(&mut conn).await;
        drop(conn);

        inbox.begin().await.unwrap().rollback().await.unwrap();
        assert!(processed(&inbox, left).await);
        assert_eq!(stand.effects().await, 0, "{left}");
    }
    assert_eq!(stand.registered().await, 2);
}

async fn a_transaction_that_was_leaked_is_undone_and_the_pool_goes_on(stand: Stand) {
    let inbox = stand.inbox_on_one("DO 0").await;
    let mut tx = inbox.store().pool().acquire().await.unwrap();
    let mut leaked = tx.begin().await.unwrap();
    effect(&mut leaked).await;
    std::mem::forget(leaked);
    drop(tx);

    assert!(processed(&inbox, "m").await);
    assert_eq!(stand.committed().await, (1, 0));
}

async fn a_nested_transaction_that_was_leaked_is_undone_and_the_pool_goes_on(stand: Stand) {
    let inbox = stand.inbox_on_one("DO 0").await;
    let mut tx = inbox.store().pool().begin().await.unwrap();
    effect(&mut tx).await;
    std::mem::forget(tx.begin().await.unwrap());
    drop(tx);

    assert!(processed(&inbox, "m").await);
    assert_eq!(stand.committed().await, (1, 0));
}

async fn r17_a_cancelled_begin_leaves_no_open_transaction_in_the_pool(stand: Stand) {
    let inbox = stand.inbox_on_one("DO 0").await;
    let session = session(&mut inbox.store().pool().acquire().await.unwrap()).await;
    for steps in 0..40 {
        let mut begin = Box::pin(inbox.begin());
        for _ in 0..steps {
            let polled = poll_fn(|cx| Poll::Ready(begin.as_mut().poll(cx))).await;
            if polled.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);

        // Whoever gets the connection next, without the inbox, would write into what is left open.
        let mut conn = inbox.store().pool().acquire().await.unwrap();
        effect(&mut conn).await;
        assert!(!stand.has_open_transaction(session).await, "after {steps} steps");
        drop(conn);
        assert_eq!(stand.effects().await, steps + 1, "after {steps} steps");
    }
}

async fn r13_a_database_that_is_not_there_is_of_kind_schema(stand: Stand) {
    let options = stand.options().database("inbox_test_of_nobody");
    let pool = sqlx::mysql::MySqlPoolOptions::new().connect_lazy_with(options);
    assert_eq!(kind(MySqlStore::open(pool).await), ErrorKind::Schema);
}
