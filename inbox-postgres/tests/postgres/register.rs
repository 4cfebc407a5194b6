//! One message: answers, proof, and what a call leaves in the session.

use std::time::{Duration, SystemTime};

use inbox_core::{ErrorKind, Registered, Registration};
use inbox_postgres::InTransaction;
use sqlx::Connection;

use crate::stand::{Stand, effect, kind, message, pid, run, show};

#[tokio::test]
async fn r02_a_duplicate_carries_the_original_with_its_type_and_time() {
    let Some(stand) = Stand::new().await else { return };
    let Registered::New(tx) =
        stand.inbox.register(stand.pool.begin().await.unwrap(), &message("m")).await.unwrap()
    else {
        panic!("not new")
    };
    tx.commit().await.unwrap();

    let again = inbox_core::Message::new(message("m").id().clone(), "Another").unwrap();
    let answer = stand.inbox.register(stand.pool.begin().await.unwrap(), &again).await.unwrap();

    let Registered::Duplicate(original) = answer else { panic!("not a duplicate") };
    assert_eq!(original.event_type, "PaymentConfirmed");
    let micros: i64 =
        stand.ask("SELECT (extract(epoch FROM registered_at) * 1000000)::bigint FROM inbox").await;
    assert_eq!(
        original.registered_at.duration_since(SystemTime::UNIX_EPOCH).unwrap(),
        Duration::from_micros(micros.unsigned_abs())
    );
}

#[tokio::test]
async fn r03_r04_a_registration_counts_in_its_transaction_and_not_after_a_rollback() {
    let Some(stand) = Stand::new().await else { return };
    let mut tx = stand.pool.begin().await.unwrap();
    assert!(stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    let again = stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap();
    assert!(matches!(again, Registration::Duplicate(_)));
    tx.rollback().await.unwrap();
    assert_eq!(stand.registered().await, 0);
}

#[tokio::test]
async fn r07_ids_are_compared_byte_for_byte() {
    let Some(stand) = Stand::new().await else { return };
    let mut tx = stand.pool.begin().await.unwrap();
    let ids =
        ["a", "A", "a ", " a", "ａ", "ä", "a\u{308}", "ß", "ss", "0", "00", "a\u{200d}", "a%", "a\\", "a'"];
    for id in ids {
        assert!(stand.inbox.register_if_new(&mut tx, &message(id)).await.unwrap().is_new(), "{id:?}");
    }
}

#[tokio::test]
async fn r08_b44_a_swallowed_insert_is_unconfirmed_and_condemns_the_transaction() {
    let Some(stand) = Stand::new().await else { return };
    stand
        .sql(
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
              CREATE TRIGGER swallow BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION swallow()",
        )
        .await;
    let mut tx = stand.pool.begin().await.unwrap();
    effect(&mut tx).await;
    assert_eq!(kind(stand.inbox.register_if_new(&mut tx, &message("m")).await), ErrorKind::Unconfirmed);
    assert_eq!(kind(stand.inbox.register_if_new(&mut tx, &message("m")).await), ErrorKind::Aborted);
    tx.commit().await.unwrap();
    assert_eq!(stand.effects().await, 0, "the driver's own commit was a rollback");

    let mut tx = stand.inbox.begin().await.unwrap();
    let batch = [message("m"), message("n")];
    assert_eq!(kind(tx.register_batch(&batch).await), ErrorKind::Unconfirmed);
    assert_eq!(kind(tx.commit().await), ErrorKind::Aborted);
}

#[tokio::test]
async fn r11_another_fingerprint_is_a_mismatch() {
    let Some(stand) = Stand::new().await else { return };
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m").with_payload(b"one")).await.unwrap().is_new());
    tx.commit().await.unwrap();

    let mut tx = stand.pool.begin().await.unwrap();
    let same = stand.inbox.register_if_new(&mut tx, &message("m").with_payload(b"one")).await.unwrap();
    assert!(matches!(same, Registration::Duplicate(_)));
    assert!(matches!(
        stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap(),
        Registration::Duplicate(_)
    ));
    let other = stand.inbox.register_if_new(&mut tx, &message("m").with_payload(b"two")).await;
    assert_eq!(kind(other), ErrorKind::Mismatch);
}

#[tokio::test]
async fn a_damaged_fingerprint_is_a_fault_of_the_table() {
    let Some(stand) = Stand::new().await else { return };
    stand.sql("INSERT INTO inbox VALUES ('loyalty', 'm', 't', 'abc')").await;
    let mut tx = stand.pool.begin().await.unwrap();
    let error = stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("3 bytes instead of 16"), "{error}");
}

#[tokio::test]
async fn b30_a_duplicate_leaves_the_transaction_usable() {
    let Some(stand) = Stand::new().await else { return };
    stand.sql("INSERT INTO inbox VALUES ('loyalty', 'm', 't')").await;
    let mut tx = stand.pool.begin().await.unwrap();
    effect(&mut tx).await;
    assert!(!stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    effect(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(stand.effects().await, 2);
}

#[tokio::test]
async fn b26_an_id_newer_than_the_snapshot_is_retryable() {
    let Some(stand) = Stand::new().await else { return };
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut old = stand.pool.begin().await.unwrap();
        run(&mut old, &format!("SET TRANSACTION ISOLATION LEVEL {level}; SELECT 1")).await;
        stand.sql(&format!("INSERT INTO inbox VALUES ('loyalty', '{level}', 't')")).await;
        let answer = stand.inbox.register_if_new(&mut old, &message(level)).await;
        assert_eq!(kind(answer), ErrorKind::Retryable, "{level}");
        drop(old);

        let mut fresh = stand.pool.begin().await.unwrap();
        run(&mut fresh, &format!("SET TRANSACTION ISOLATION LEVEL {level}")).await;
        assert!(!stand.inbox.register_if_new(&mut fresh, &message(level)).await.unwrap().is_new());
    }
}

#[tokio::test]
async fn r15_a_temporary_table_of_the_same_name_takes_no_registration() {
    let Some(stand) = Stand::new().await else { return };
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "CREATE TEMP TABLE inbox (LIKE public.inbox INCLUDING ALL) ON COMMIT DROP").await;
    assert!(stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    assert!(stand.inbox.register_batch(&mut tx, &[message("n")]).await.unwrap()[0].is_new());
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 2);
}

#[tokio::test]
async fn r15_the_sessions_lock_timeout_is_restored() {
    let Some(stand) = Stand::new().await else { return };
    let mut conn = stand.connection().await;
    run(&mut conn, "SET lock_timeout = '7s'").await;
    let mut tx = conn.begin().await.unwrap();

    stand.inbox.register_if_new(&mut tx, &message("new")).await.unwrap();
    assert_eq!(show(&mut tx, "lock_timeout").await, "7s", "after a new id");
    stand.inbox.register_if_new(&mut tx, &message("new")).await.unwrap();
    assert_eq!(show(&mut tx, "lock_timeout").await, "7s", "after a duplicate");
    stand.inbox.register_batch(&mut tx, &[message("new"), message("other")]).await.unwrap();
    assert_eq!(show(&mut tx, "lock_timeout").await, "7s", "after a batch");
    run(&mut tx, "SET LOCAL lock_timeout = '3s'").await;
    stand.inbox.register_if_new(&mut tx, &message("local")).await.unwrap();
    assert_eq!(show(&mut tx, "lock_timeout").await, "3s", "the transaction's own");

    let mut holder = stand.pool.begin().await.unwrap();
    stand.inbox.register_if_new(&mut holder, &message("held")).await.unwrap();
    run(&mut tx, "SAVEPOINT s").await;
    let no_wait = stand.inbox.clone().with_wait(Duration::ZERO);
    assert_eq!(kind(no_wait.register_if_new(&mut tx, &message("held")).await), ErrorKind::Busy);
    run(&mut tx, "ROLLBACK TO s").await;
    assert_eq!(show(&mut tx, "lock_timeout").await, "3s", "after an error and a savepoint");
    tx.commit().await.unwrap();
    assert_eq!(show(&mut conn, "lock_timeout").await, "7s", "after the commit");
}

#[tokio::test]
async fn a_connection_is_taken_for_a_transaction_only_if_one_is_open() {
    let Some(stand) = Stand::new().await else { return };
    let mut conn = stand.connection().await;
    assert_eq!(kind(InTransaction::new(&mut conn)), ErrorKind::TransactionLost);

    let mut tx = conn.begin().await.unwrap();
    let mut inside = InTransaction::new(&mut tx).unwrap();
    assert!(stand.inbox.register_if_new(&mut inside, &message("m")).await.unwrap().is_new());
    assert!(stand.inbox.register_batch(&mut inside, &[message("n")]).await.unwrap()[0].is_new());
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 2);
}

#[tokio::test]
async fn unprepared_statements_leave_nothing_on_the_server() {
    let Some(stand) = Stand::new().await else { return };
    let inbox = inbox_core::Inbox::new(stand.store.clone().unprepared(), crate::stand::consumer());
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "DEALLOCATE ALL").await;
    assert!(inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    assert!(!inbox.register_batch(&mut tx, &[message("m")]).await.unwrap()[0].is_new());
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%inbox%'")
            .persistent(false)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn r17_a_cancelled_begin_leaves_no_open_transaction_in_the_pool() {
    let Some(stand) = Stand::new().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    let pid = pid(&mut inbox.store().pool().acquire().await.unwrap()).await;
    for steps in 0..40 {
        let mut begin = Box::pin(inbox.begin());
        for _ in 0..steps {
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(begin.as_mut().poll(cx))).await;
            if polled.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);
        stand.until_idle(pid).await;
    }
}

#[tokio::test]
async fn an_operator_finds_and_forgets_a_registration() {
    let Some(stand) = Stand::new().await else { return };
    let id = message("m").id().clone();
    assert_eq!(stand.inbox.find(&id).await.unwrap(), None);
    assert!(!stand.inbox.forget(&id).await.unwrap());
    stand.sql("INSERT INTO inbox VALUES ('loyalty', 'm', 't')").await;
    assert_eq!(stand.inbox.find(&id).await.unwrap().unwrap().event_type, "t");

    let mut holder = stand.pool.begin().await.unwrap();
    run(&mut holder, "SELECT FROM inbox FOR UPDATE").await;
    let impatient = stand.store.clone().with_wait(Duration::from_millis(50));
    let impatient = inbox_core::Inbox::new(impatient, crate::stand::consumer());
    assert_eq!(kind(impatient.forget(&id).await), ErrorKind::Busy);
    drop(holder);

    assert!(stand.inbox.forget(&id).await.unwrap());
    assert_eq!(stand.registered().await, 0);
}

#[tokio::test]
async fn a_change_of_the_event_types_type_breaks_no_cached_plan() {
    let Some(stand) = Stand::new().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    for change in ["SELECT 1", "ALTER TABLE inbox ALTER event_type TYPE varchar(255)"] {
        stand.sql(change).await;
        let mut tx = inbox.begin().await.unwrap();
        tx.register_if_new(&message("m")).await.expect(change);
        tx.register_batch(&[message("m"), message("n")]).await.expect(change);
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn an_original_of_no_finite_time_is_named_and_not_taken_for_a_failure_of_the_server() {
    let Some(stand) = Stand::new().await else { return };
    stand.sql("INSERT INTO inbox VALUES ('loyalty', 'm', 't', NULL, 'infinity')").await;
    let (mut one, mut other) = (stand.pool.begin().await.unwrap(), stand.pool.begin().await.unwrap());
    let errors = [
        stand.inbox.register_if_new(&mut one, &message("m")).await.map(drop),
        stand.inbox.register_batch(&mut other, &[message("m")]).await.map(drop),
        stand.inbox.find(message("m").id()).await.map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("registered_at is infinite"), "{error}");
    }
}
