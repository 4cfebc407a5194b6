//! Batches: by position, of any size, in one order.

use inbox_core::{Message, Registration};

use crate::stand::{Stand, effect, message, on_each_server, run};

on_each_server![
    r10_a_batch_answers_by_position_as_single_calls_would,
    r10_a_batch_may_have_ten_thousand_ids,
    r10_a_batch_is_answered_across_the_borders_of_its_statements,
    r10_a_batch_beside_an_older_snapshot_knows_what_was_committed_since,
];

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

async fn r10_a_batch_answers_by_position_as_single_calls_would(stand: Stand) {
    stand
        .sql(
            "INSERT INTO inbox (consumer, message_id, event_type, fingerprint)
             VALUES ('loyalty', 'old', 't', REPEAT(x'00', 16))",
        )
        .await;
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

async fn r10_a_batch_may_have_ten_thousand_ids(stand: Stand) {
    let batch: Vec<Message> = (0..10_000).map(|n| message(&format!("{n:0>200}"))).collect();
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.register_batch(&batch).await.unwrap().iter().all(Registration::is_new));
    assert!(!tx.register_batch(&batch).await.unwrap().iter().any(Registration::is_new));
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 10_000);
}

/// One statement takes 999 rows.
async fn r10_a_batch_is_answered_across_the_borders_of_its_statements(stand: Stand) {
    for ids in [998, 999, 1_000, 1_998, 1_999] {
        let id = |n: usize| format!("{ids}-{n:0>5}");
        let known = |n: usize| n.is_multiple_of(7);
        let before: Vec<Message> = (0..ids).filter(|&n| known(n)).map(|n| message(&id(n))).collect();
        let mut tx = stand.inbox.begin().await.unwrap();
        tx.register_batch(&before).await.unwrap();
        tx.commit().await.unwrap();

        let one_with_another_payload = ids / 2 + usize::from(known(ids / 2));
        let batch: Vec<Message> = (0..ids)
            .map(|n| message(&id(n)).with_payload(b"one"))
            // Each id once more, and so far away from its first place.
            .chain((0..ids).rev().map(|n| {
                message(&id(n)).with_payload(if n == one_with_another_payload { b"two" } else { b"one" })
            }))
            .collect();
        let mut tx = stand.pool.begin().await.unwrap();
        let answers = shape(&stand.inbox.register_batch(&mut tx, &batch).await.unwrap());
        effect(&mut tx).await;
        tx.commit().await.unwrap();

        let first: String = (0..ids).map(|n| if known(n) { 'd' } else { 'n' }).collect();
        let again: String =
            (0..ids).rev().map(|n| if n == one_with_another_payload { 'm' } else { 'd' }).collect();
        assert!(answers == format!("{first}{again}"), "{ids} ids: {answers}");
    }
    assert_eq!(stand.registered().await, 998 + 999 + 1_000 + 1_998 + 1_999);
}

async fn r10_a_batch_beside_an_older_snapshot_knows_what_was_committed_since(stand: Stand) {
    if stand.isolates_snapshots() {
        return; // refused with 1020: see register.rs
    }
    let mut old = stand.pool.begin().await.unwrap();
    run(&mut old, "SELECT count(*) FROM inbox").await;
    stand.insert("known").await;
    let batch = [message("new"), message("known"), message("new")];
    assert_eq!(shape(&stand.inbox.register_batch(&mut old, &batch).await.unwrap()), "ndd");
    old.commit().await.unwrap();
}
