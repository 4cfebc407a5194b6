//! What an operator does leaves the pool's connections as they were.

use inbox_core::{ErrorKind, MessageId};

use crate::stand::{Stand, effect, kind, on_each_server};

on_each_server![a_look_that_fails_leaves_no_transaction_in_the_pool];

async fn a_look_that_fails_leaves_no_transaction_in_the_pool(stand: Stand) {
    let inbox = stand.inbox_on_one("DO 0").await;
    let id = MessageId::new("m-1").unwrap();
    assert_eq!(inbox.find(&id).await.unwrap(), None);
    stand.sql("DROP TABLE inbox").await;
    assert_eq!(kind(inbox.find(&id).await), ErrorKind::Schema);
    // In a read-only transaction that was left open it would fail with 1792.
    effect(&mut inbox.store().pool().acquire().await.unwrap()).await;
    assert_eq!(stand.effects().await, 1);
}
