//! A registration in a transaction that the server has ended would be committed alone, without an
//! effect, and its message lost (R4, R12).

use inbox_core::{ErrorKind, Registered};

use crate::stand::{Stand, kind, message, on_each_server, run};

on_each_server![
    r12_b14_by_reference_in_an_ended_transaction_nothing_is_registered,
    r12_b14_by_value_in_an_ended_transaction_nothing_is_registered,
    r12_b14_through_a_guard_in_an_ended_transaction_nothing_is_registered,
    r12_b14_an_ended_transaction_gets_no_guard,
    r12_an_open_transaction_is_taken_for_one,
];

/// What leaves sqlx with a transaction that the server does not have.
const ENDS: [&str; 4] =
    ["COMMIT", "ROLLBACK", "CREATE TABLE IF NOT EXISTS made (id INT)", "TRUNCATE TABLE effect"];

async fn r12_b14_by_reference_in_an_ended_transaction_nothing_is_registered(stand: Stand) {
    for end in ENDS {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, end).await;
        let single = stand.inbox.register_if_new(&mut tx, &message("m-1")).await;
        assert_eq!(kind(single), ErrorKind::TransactionLost, "{end}");

        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, end).await;
        let batch = stand.inbox.register_batch(&mut tx, &[message("m-1"), message("m-2")]).await;
        assert_eq!(kind(batch), ErrorKind::TransactionLost, "{end}");
        assert_eq!(stand.registered().await, 0, "{end}");
    }
}

async fn r12_b14_by_value_in_an_ended_transaction_nothing_is_registered(stand: Stand) {
    for end in ENDS {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, end).await;
        assert_eq!(
            kind(stand.inbox.register(tx, &message("m-1")).await),
            ErrorKind::TransactionLost,
            "{end}"
        );
        assert_eq!(stand.registered().await, 0, "{end}");
    }
}

async fn r12_b14_through_a_guard_in_an_ended_transaction_nothing_is_registered(stand: Stand) {
    for end in ENDS {
        let mut tx = stand.inbox.begin().await.unwrap();
        run(&mut tx, end).await;
        assert_eq!(kind(tx.register_if_new(&message("m-1")).await), ErrorKind::TransactionLost, "{end}");
        drop(tx);
        let mut tx = stand.inbox.begin().await.unwrap();
        run(&mut tx, end).await;
        assert_eq!(kind(tx.register_batch(&[message("m-1")]).await), ErrorKind::TransactionLost, "{end}");
        drop(tx);
        assert_eq!(stand.registered().await, 0, "{end}");
    }
}

async fn r12_b14_an_ended_transaction_gets_no_guard(stand: Stand) {
    for end in ENDS {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, end).await;
        assert_eq!(kind(stand.inbox.guard(tx).await), ErrorKind::TransactionLost, "{end}");
    }
}

/// Also where autocommit is off, and SQL alone began it.
async fn r12_an_open_transaction_is_taken_for_one(stand: Stand) {
    for begin in ["DO 0", "SET autocommit = 0", "COMMIT; START TRANSACTION"] {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, begin).await;
        let Registered::New(tx) = stand.inbox.register(tx, &message(begin)).await.unwrap() else {
            panic!("{begin}: a duplicate");
        };
        tx.commit().await.unwrap();
    }
    assert_eq!(stand.registered().await, 3);
}
