//! Batches: by position, of any size, in one order.

use inbox_core::{Message, Registration};

use crate::stand::{Stand, message};

fn shape(answers: &[Registration]) -> String {
    answers
        .iter()
        .map(|answer| match answer {
            Registration::New => 'n',
            Registration::Duplicate(_) => 'd',
            Registration::Mismatch(_) => 'm',
            _ => '?',
        })
        .collect()
}

#[tokio::test]
async fn r10_a_batch_answers_by_position_as_single_calls_would() {
    let Some(stand) = Stand::new().await else { return };
    stand.sql("INSERT INTO inbox VALUES ('loyalty', 'old', 't', decode(repeat('00', 16), 'hex'))").await;
    let batch = [
        message("z"),
        message("old"),
        message("a").with_payload(b"one"),
        message("z"),
        message("old").with_payload(b"x"),
        message("a").with_payload(b"two"),
        message("A"),
    ];

    let mut tx = stand.inbox.begin().await.unwrap();
    let answers = tx.register_batch(&batch).await.unwrap();
    assert_eq!(shape(&answers), "ndndmmn");
    tx.commit().await.unwrap();

    let mut tx = stand.pool.begin().await.unwrap();
    assert_eq!(shape(&stand.inbox.register_batch(&mut tx, &batch).await.unwrap()), "ddddmmd");
    assert_eq!(shape(&stand.inbox.register_batch(&mut tx, &[]).await.unwrap()), "");
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn r10_a_batch_may_have_twenty_thousand_ids() {
    let Some(stand) = Stand::new().await else { return };
    let batch: Vec<Message> = (0..20_000).map(|n| message(&format!("{n:0>200}"))).collect();
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.register_batch(&batch).await.unwrap().iter().all(Registration::is_new));
    assert!(!tx.register_batch(&batch).await.unwrap().iter().any(Registration::is_new));
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 20_000);
}
