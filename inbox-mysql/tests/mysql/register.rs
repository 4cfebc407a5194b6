//! One message: answers, proof, and whom a call keeps waiting.

use std::time::{Duration, SystemTime};

use inbox_core::{ErrorKind, Inbox, Message, MessageId, Registered, Registration};
use inbox_mysql::InTransaction;
use sqlx::{AssertSqlSafe, Connection};

use crate::stand::{
    Stand, consumer, effect, kind, message, on_each_server, run, session, source_number, try_run,
};

on_each_server![
    r02_a_duplicate_carries_the_original_with_its_type_and_time_in_any_time_zone,
    r03_r04_a_registration_counts_in_its_transaction_and_not_after_a_rollback,
    r07_b05_ids_are_compared_byte_for_byte,
    r07_ids_are_the_same_in_every_mode_and_character_set_of_the_session,
    r07_b01_an_id_over_the_limit_is_refused_without_a_connection,
    r08_b01_an_id_that_a_narrow_column_cuts_is_never_a_duplicate,
    r08_b02_a_swallowed_insert_is_unconfirmed_and_condemns_the_transaction,
    b04_new_is_followed_by_duplicate_though_the_driver_counts_found_rows,
    r11_another_fingerprint_is_a_mismatch,
    a_damaged_original_is_a_fault_of_the_table,
    b30_a_duplicate_leaves_the_transaction_usable,
    r05_b08_of_three_copies_of_which_the_first_rolls_back_one_is_new,
    r05_b26_an_id_newer_than_the_snapshot_is_a_duplicate_or_retryable,
    b19_unrelated_ids_do_not_wait_for_each_other,
    b19_a_batch_locks_no_rows_but_its_own,
    b18_a_registration_that_was_found_cannot_be_purged_before_the_transaction_ends,
    a_connection_is_taken_for_a_transaction_only_if_one_is_open,
    r17_a_cancelled_call_registers_nothing,
    an_operator_finds_and_forgets_a_registration,
];

const LEVELS: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn r02_a_duplicate_carries_the_original_with_its_type_and_time_in_any_time_zone(stand: Stand) {
    let Registered::New(tx) =
        stand.inbox.register(stand.pool.begin().await.unwrap(), &message("m")).await.unwrap()
    else {
        panic!("not new")
    };
    tx.commit().await.unwrap();
    let micros: i64 =
        stand.ask("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', registered_at) FROM inbox").await;
    let registered_at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs());
    let age = SystemTime::now().duration_since(registered_at).unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");

    let again = Message::new(message("m").id().clone(), "Another").unwrap();
    for zone in ["+00:00", "-11:30", "+13:00"] {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, &format!("SET time_zone = '{zone}'")).await;
        let answer = stand.inbox.register(tx, &again).await.unwrap();
        let Registered::Duplicate(original) = answer else { panic!("not a duplicate") };
        assert_eq!((&*original.event_type, original.registered_at), ("PaymentConfirmed", registered_at));
    }
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SET time_zone = '+13:00'").await;
    stand.inbox.register_if_new(&mut tx, &message("elsewhere")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        stand.ask("SELECT count(*) FROM inbox WHERE registered_at > UTC_TIMESTAMP() + INTERVAL 1 HOUR").await,
        0
    );
}

async fn r03_r04_a_registration_counts_in_its_transaction_and_not_after_a_rollback(stand: Stand) {
    let mut tx = stand.pool.begin().await.unwrap();
    assert!(stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    let again = stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap();
    assert!(matches!(again, Registration::Duplicate(_)));
    tx.rollback().await.unwrap();
    assert_eq!(stand.registered().await, 0);
}

const IDS: [&str; 29] = [
    "evt_4qD3",
    "evt_4qd3",
    "a",
    "A",
    "a ",
    "a\t",
    " a",
    "ａ",
    "ä",
    "a\u{308}",
    "á",
    "ß",
    "ss",
    "0",
    "00",
    "０",
    "１",
    "1",
    "a\u{200d}",
    "😀",
    "😁",
    "🍣",
    "🍺",
    "a%",
    "a\\",
    "a\\\\",
    "a'",
    "a''",
    "a\"`; -- #/*",
];

async fn r07_b05_ids_are_compared_byte_for_byte(stand: Stand) {
    let mut tx = stand.pool.begin().await.unwrap();
    for id in IDS {
        assert!(stand.inbox.register_if_new(&mut tx, &message(id)).await.unwrap().is_new(), "{id:?}");
    }
    tx.commit().await.unwrap();

    let batch = IDS.map(message);
    let mut tx = stand.pool.begin().await.unwrap();
    let again = stand.inbox.register_batch(&mut tx, &batch).await.unwrap();
    assert!(again.iter().all(|answer| matches!(answer, Registration::Duplicate(_))));
}

async fn r07_ids_are_the_same_in_every_mode_and_character_set_of_the_session(stand: Stand) {
    // The last byte of the second is a backslash's in Shift JIS.
    let odd = ["\u{1}\u{7f}\u{1a}", "\u{8868}\u{5c}", "\r\n\\'\"`%_\u{0}"].map(|id| id.replace('\0', ""));
    let ids: Vec<Message> = IDS.iter().copied().chain(odd.iter().map(String::as_str)).map(message).collect();
    let mut sessions: Vec<String> =
        ["latin1", "sjis", "cp932", "utf8mb3", "binary"].map(|names| format!("SET NAMES {names}")).into();
    for mode in [
        "",
        "ANSI_QUOTES",
        "NO_BACKSLASH_ESCAPES",
        "ANSI",
        "TRADITIONAL",
        "IGNORE_SPACE",
        "STRICT_ALL_TABLES",
    ] {
        sessions.push(format!("SET sql_mode = '{mode}'"));
    }
    for (n, setting) in sessions.iter().enumerate() {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, setting).await;
        let (first, others) = ids.split_first().unwrap();
        let single = stand.inbox.register_if_new(&mut tx, first).await.unwrap();
        let batch = stand.inbox.register_batch(&mut tx, others).await.unwrap();
        for answer in batch.iter().chain([&single]) {
            assert_eq!(answer.is_new(), n == 0, "{setting}: {answer:?}");
            if let Registration::Duplicate(original) = answer {
                assert_eq!(original.event_type, "PaymentConfirmed", "{setting}");
            }
        }
        tx.commit().await.unwrap();
    }
}

async fn r07_b01_an_id_over_the_limit_is_refused_without_a_connection(stand: Stand) {
    stand.pool.close().await;
    for id in ["x".repeat(256), "ä".repeat(128)] {
        assert_eq!(kind(MessageId::new(id)), ErrorKind::InvalidMessage);
    }
}

/// `verify` refuses such a table. Where nobody asked it, IGNORE cuts the id.
async fn r08_b01_an_id_that_a_narrow_column_cuts_is_never_a_duplicate(stand: Stand) {
    stand.sql("ALTER TABLE inbox MODIFY message_id VARBINARY(8) NOT NULL").await;
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("order-0001")).await.unwrap().is_new());
    tx.commit().await.unwrap();

    for id in ["order-0001", "order-0002"] {
        let mut tx = stand.inbox.begin().await.unwrap();
        assert_eq!(kind(tx.register_if_new(&message(id)).await), ErrorKind::Unconfirmed, "{id}");
        let mut tx = stand.inbox.begin().await.unwrap();
        let batch = [message("short"), message(id)];
        assert_eq!(kind(tx.register_batch(&batch).await), ErrorKind::Unconfirmed, "{id}");
    }
}

async fn r08_b02_a_swallowed_insert_is_unconfirmed_and_condemns_the_transaction(stand: Stand) {
    stand
        .sql(
            "CREATE TABLE consumers (name VARBINARY(100) PRIMARY KEY) ENGINE = InnoDB;
             ALTER TABLE inbox ADD FOREIGN KEY (consumer) REFERENCES consumers (name)",
        )
        .await;
    swallowed(&stand).await;

    let create = inbox_mysql::ddl(stand.store.table());
    stand
        .sql(&format!(
            "DROP TABLE inbox; {create}
             ALTER TABLE inbox PARTITION BY RANGE COLUMNS (message_id) (PARTITION p VALUES LESS THAN ('a'))"
        ))
        .await;
    swallowed(&stand).await;
}

/// The server answers that nothing was inserted, and that nothing is there.
async fn swallowed(stand: &Stand) {
    let batch = [message("m"), message("n")];
    for by_batch in [false, true] {
        let mut tx = stand.pool.begin().await.unwrap();
        let session = session(&mut tx).await;
        effect(&mut tx).await;
        let answer = match by_batch {
            false => stand.inbox.register_if_new(&mut tx, &message("m")).await.map(drop),
            true => stand.inbox.register_batch(&mut tx, &batch).await.map(drop),
        };
        assert_eq!(kind(answer), ErrorKind::Unconfirmed);
        try_run(&mut tx, "INSERT INTO effect VALUES ('after')").await.unwrap_err();
        tx.commit().await.unwrap_err();
        stand.until_gone(session).await;

        let mut tx = stand.inbox.begin().await.unwrap();
        effect(&mut tx).await;
        let answer = match by_batch {
            false => tx.register_if_new(&message("m")).await.map(drop),
            true => tx.register_batch(&batch).await.map(drop),
        };
        assert_eq!(kind(answer), ErrorKind::Unconfirmed);
        assert_eq!(kind(tx.commit().await), ErrorKind::Aborted);
        assert_eq!(stand.committed().await, (0, 0));
    }
}

async fn b04_new_is_followed_by_duplicate_though_the_driver_counts_found_rows(stand: Stand) {
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "INSERT INTO inbox (consumer, message_id, event_type) VALUES ('c', 'm', 't')").await;
    let upsert = "INSERT INTO inbox (consumer, message_id, event_type) VALUES ('c', 'm', 't')
                  ON DUPLICATE KEY UPDATE consumer = consumer";
    let counted = sqlx::query(upsert).execute(&mut *tx).await.unwrap().rows_affected();
    assert_eq!(counted, 1, "with this flag an upsert that changes nothing counts as an insert does");
    drop(tx);

    for answer in ["new", "duplicate", "duplicate"] {
        let mut tx = stand.pool.begin().await.unwrap();
        let is_new = stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new();
        tx.commit().await.unwrap();
        assert_eq!(is_new, answer == "new");
    }
}

async fn r11_another_fingerprint_is_a_mismatch(stand: Stand) {
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m").with_payload(b"one")).await.unwrap().is_new());
    tx.commit().await.unwrap();

    let mut tx = stand.pool.begin().await.unwrap();
    for same in [message("m").with_payload(b"one"), message("m")] {
        let answer = stand.inbox.register_if_new(&mut tx, &same).await.unwrap();
        assert!(matches!(answer, Registration::Duplicate(_)));
    }
    let other = stand.inbox.register_if_new(&mut tx, &message("m").with_payload(b"two")).await;
    assert_eq!(kind(other), ErrorKind::Mismatch);
    try_run(&mut tx, "SELECT 1").await.unwrap_err();
}

async fn a_damaged_original_is_a_fault_of_the_table(stand: Stand) {
    stand
        .sql(
            "ALTER TABLE inbox MODIFY fingerprint VARBINARY(16) NULL;
             SET @mode = @@sql_mode, sql_mode = '';
             INSERT INTO inbox (consumer, message_id, event_type, fingerprint, registered_at) VALUES
                 ('loyalty', 'fingerprint', 't', 'abc', UTC_TIMESTAMP()),
                 ('loyalty', 'type', x'ff', NULL, UTC_TIMESTAMP()),
                 ('loyalty', 'time', 't', NULL, '0000-00-00');
             SET sql_mode = @mode",
        )
        .await;
    for (id, text) in [("fingerprint", "16 bytes"), ("type", "not UTF-8"), ("time", "registered_at")] {
        let (mut one, mut other) = (stand.pool.begin().await.unwrap(), stand.pool.begin().await.unwrap());
        let errors = [
            stand.inbox.register_if_new(&mut one, &message(id)).await.map(drop),
            stand.inbox.register_batch(&mut other, &[message(id)]).await.map(drop),
            stand.inbox.find(message(id).id()).await.map(drop),
        ];
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}

async fn b30_a_duplicate_leaves_the_transaction_usable(stand: Stand) {
    stand.insert("m").await;
    let mut tx = stand.pool.begin().await.unwrap();
    effect(&mut tx).await;
    assert!(!stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    effect(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(stand.effects().await, 2);
}

/// The engine makes one of the waiters a deadlock's victim, since both hold what the other wants.
async fn r05_b08_of_three_copies_of_which_the_first_rolls_back_one_is_new(stand: Stand) {
    for level in LEVELS {
        let mut first = stand.inbox.begin().await.unwrap();
        assert!(first.register_if_new(&message(level)).await.unwrap().is_new());
        let mut waiters = Vec::new();
        for _ in 0..2 {
            let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
            let mut tx = stand.pool.begin_with(AssertSqlSafe(begin)).await.unwrap();
            let (session, inbox) = (session(&mut tx).await, stand.inbox.clone());
            waiters.push(tokio::spawn(async move {
                let Registered::New(mut tx) = inbox.register(tx, &message(level)).await? else {
                    return Ok(false);
                };
                effect(&mut tx).await;
                tx.commit().await.map(|()| true)
            }));
            stand.until_waiting(session).await;
        }
        first.rollback().await.unwrap();

        let mut new = 0;
        for waiter in waiters {
            match waiter.await.unwrap() {
                Ok(is_new) => new += usize::from(is_new),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Retryable, "{level}: {error}");
                    let number = source_number(&error);
                    assert!(matches!(number, Some(1213 | 1020)), "{level}: {number:?}");
                    let again =
                        stand.inbox.register(stand.pool.begin().await.unwrap(), &message(level)).await;
                    assert!(matches!(again.unwrap(), Registered::Duplicate(_)), "{level}");
                }
            }
        }
        assert_eq!(new, 1, "{level}");
    }
    assert_eq!(stand.committed().await, (4, 4));
}

async fn r05_b26_an_id_newer_than_the_snapshot_is_a_duplicate_or_retryable(stand: Stand) {
    for batch in [false, true] {
        let id = format!("batch: {batch}");
        let mut old = stand.inbox.guard(stand.pool.begin().await.unwrap()).await.unwrap();
        run(&mut old, "SELECT count(*) FROM effect").await;
        effect(&mut old).await;
        stand.insert(&id).await;
        let answer = match batch {
            false => old.register_if_new(&message(&id)).await,
            true => old.register_batch(&[message(&id)]).await.map(|mut answers| answers.remove(0)),
        };
        if stand.isolates_snapshots() {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Retryable, Some(1020)));
            assert_eq!(show_effects(&mut old).await, 0, "the server has rolled the transaction back");
            assert_eq!(kind(old.commit().await), ErrorKind::Aborted);
            assert_eq!(stand.effects().await, 0);
        } else {
            assert!(matches!(answer.unwrap(), Registration::Duplicate(_)));
            old.rollback().await.unwrap();
        }
        let fresh = stand.inbox.register(stand.pool.begin().await.unwrap(), &message(&id)).await.unwrap();
        assert!(matches!(fresh, Registered::Duplicate(_)));
    }
}

async fn show_effects(conn: &mut sqlx::MySqlConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effect").fetch_one(conn).await.unwrap()
}

/// Each new id is between known ones, so that gap locks would show. A wait fails the test: the bound
/// is the shortest there is, and both transactions are driven from here.
async fn b19_unrelated_ids_do_not_wait_for_each_other(stand: Stand) {
    for id in ["b", "d", "f"] {
        stand.insert(id).await;
    }
    let inbox = stand.inbox.clone().with_wait(Duration::ZERO);
    for level in LEVELS {
        let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
        let mut one = stand.pool.begin_with(AssertSqlSafe(begin.clone())).await.unwrap();
        let mut other = stand.pool.begin_with(AssertSqlSafe(begin)).await.unwrap();
        for (first, second) in [("c1", "c2"), ("c4", "c3"), ("a1", "a2"), ("g2", "g1")] {
            let answer = inbox.register_if_new(&mut one, &message(first)).await;
            assert!(answer.expect(level).is_new(), "{level}: {first}");
            let answer = inbox.register_if_new(&mut other, &message(second)).await;
            assert!(answer.expect(level).is_new(), "{level}: {second}");
        }
        // A duplicate that is open does not block its neighbours, nor the same duplicate elsewhere.
        for known in ["b", "d", "f"] {
            assert!(!inbox.register_if_new(&mut one, &message(known)).await.expect(level).is_new());
        }
        let batch = ["a", "b", "b0", "c", "d", "d0", "e", "f", "f0", "h"].map(message);
        let answers = inbox.register_batch(&mut other, &batch).await.expect(level);
        assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), 7, "{level}");
        // And after a batch with duplicates.
        let batch = ["a9", "b9", "c9", "d", "d9", "e9", "f9", "h9"].map(message);
        let answers = inbox.register_batch(&mut one, &batch).await.expect(level);
        assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), 7, "{level}");
        one.rollback().await.unwrap();
        other.rollback().await.unwrap();
    }
}

/// A read of a thousand ids must stay a look at a thousand keys, whatever the optimizer makes of a long list.
async fn b19_a_batch_locks_no_rows_but_its_own(stand: Stand) {
    let mut tx = stand.inbox.begin().await.unwrap();
    let known: Vec<Message> = (0..3_000).map(|n| message(&format!("{n:0>5}"))).collect();
    tx.register_batch(&known).await.unwrap();
    tx.commit().await.unwrap();
    stand.sql("ANALYZE TABLE inbox").await;

    for level in LEVELS {
        let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
        let mut tx = stand.pool.begin_with(AssertSqlSafe(begin)).await.unwrap();
        // Every third, so that a scan of the consumer's ids looks cheap.
        let batch: Vec<Message> = (0..3_000).step_by(3).map(|n| message(&format!("{n:0>5}"))).collect();
        let answers = stand.inbox.register_batch(&mut tx, &batch).await.unwrap();
        assert!(!answers.iter().any(Registration::is_new));

        let mut other = stand.pool.begin().await.unwrap();
        let lock = "SELECT count(*) FROM inbox WHERE consumer = 'loyalty' AND message_id = '01501' FOR UPDATE NOWAIT";
        run(&mut other, lock).await;
        let lock = lock.replace("01501", "01500");
        assert!(try_run(&mut other, &lock).await.is_err(), "{level}: the batch's own row is not locked");
        let new = stand.inbox.clone().with_wait(Duration::ZERO);
        assert!(new.register_if_new(&mut other, &message("01501x")).await.expect(level).is_new());
        other.rollback().await.unwrap();
        tx.rollback().await.unwrap();
    }
}

/// So between the insert that met a row and the look at it, only its own transaction can delete it.
async fn b18_a_registration_that_was_found_cannot_be_purged_before_the_transaction_ends(stand: Stand) {
    stand.insert("m").await;
    for level in ["READ UNCOMMITTED", "REPEATABLE READ"] {
        let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
        let mut tx = stand.pool.begin_with(AssertSqlSafe(begin)).await.unwrap();
        run(
            &mut tx,
            "INSERT IGNORE INTO inbox (consumer, message_id, event_type) VALUES ('loyalty', 'm', 't')",
        )
        .await;
        let impatient = Inbox::new(stand.store.clone().with_wait(Duration::ZERO), consumer());
        assert_eq!(kind(impatient.forget(message("m").id()).await), ErrorKind::Busy, "{level}");
        assert!(!stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
    }
}

async fn a_connection_is_taken_for_a_transaction_only_if_one_is_open(stand: Stand) {
    let mut conn = stand.connection().await;
    assert_eq!(kind(InTransaction::new(&mut conn)), ErrorKind::TransactionLost);

    let mut tx = conn.begin().await.unwrap();
    let mut inside = InTransaction::new(&mut tx).unwrap();
    assert!(stand.inbox.register_if_new(&mut inside, &message("m")).await.unwrap().is_new());
    assert!(stand.inbox.register_batch(&mut inside, &[message("n")]).await.unwrap()[0].is_new());
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 2);
}

/// By value the transaction is gone with the call.
async fn r17_a_cancelled_call_registers_nothing(stand: Stand) {
    use std::future::{Future, poll_fn};
    use std::task::Poll;

    let inbox = stand.inbox_on_one("DO 0").await;
    for steps in 0..25 {
        for batch in [false, true] {
            let mut tx = inbox.begin().await.unwrap();
            let (letter, letters) = (message("m"), [message("m"), message("n")]);
            let mut call: std::pin::Pin<Box<dyn Future<Output = bool> + Send>> = match batch {
                false => Box::pin(async { tx.register_if_new(&letter).await.is_ok() }),
                true => Box::pin(async { tx.register_batch(&letters).await.is_ok() }),
            };
            let mut answered = false;
            for _ in 0..steps {
                answered = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await.is_ready();
                if answered {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(call);
            if !answered && steps > 0 {
                assert_eq!(kind(tx.register_if_new(&letter).await), ErrorKind::Aborted);
                assert_eq!(kind(tx.commit().await), ErrorKind::Aborted, "{steps} steps, batch: {batch}");
            } else {
                drop(tx);
            }
            // The next use of the pool's one connection comes after the rollback.
            effect(&mut inbox.store().pool().acquire().await.unwrap()).await;
            assert_eq!(stand.registered().await, 0, "{steps} steps, batch: {batch}");
        }
    }
    assert_eq!(stand.effects().await, 50);
}

async fn an_operator_finds_and_forgets_a_registration(stand: Stand) {
    let id = message("m").id().clone();
    assert_eq!(stand.inbox.find(&id).await.unwrap(), None);
    assert!(!stand.inbox.forget(&id).await.unwrap());
    stand.insert("m").await;
    assert_eq!(stand.inbox.find(&id).await.unwrap().unwrap().event_type, "t");

    let mut holder = stand.pool.begin().await.unwrap();
    run(&mut holder, "SELECT 1 FROM inbox FOR UPDATE").await;
    assert!(stand.inbox.find(&id).await.unwrap().is_some(), "a look waits for nobody");
    let impatient = Inbox::new(stand.store.clone().with_wait(Duration::from_millis(50)), consumer());
    assert_eq!(kind(impatient.forget(&id).await), ErrorKind::Busy);
    drop(holder);

    assert!(stand.inbox.forget(&id).await.unwrap());
    assert_eq!(stand.registered().await, 0);
}
