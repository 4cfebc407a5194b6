//! Two transactions and one id: who waits, for how long, what comes of it, and what is left of the
//! bound in the session.

use std::time::{Duration, Instant};

use inbox_core::{DEFAULT_WAIT, ErrorKind, InboxStore, Register, RegisterBatch, Registration};
use sqlx::{MySql, Transaction};
use tokio::task::JoinHandle;

use crate::stand::{
    Guarded, Stand, consumer, effect, eventually, kind, message, on_each_server, run, session, show,
    source_number, try_run,
};

on_each_server![
    r05_who_waited_for_a_commit_gets_a_duplicate,
    r05_who_waited_for_a_rollback_or_a_dead_session_is_new,
    r06_b28_a_wait_is_bounded_and_past_it_the_call_is_busy,
    r06_b29_without_a_wait_an_id_in_flight_is_busy_and_new_once_its_holder_rolls_back,
    r06_a_session_with_limits_of_its_own_waits_as_long_as_the_call_says,
    r06_the_bound_is_for_all_waits_of_a_batch_together,
    r06_a_table_that_is_being_altered_is_waited_for,
    r15_a_call_leaves_no_setting_behind,
    r15_what_a_call_left_that_was_given_up_the_next_call_restores,
];

/// Registers in a task of its own, and returns once that waits for a lock.
async fn waiter(stand: &Stand, ids: &'static [&'static str]) -> JoinHandle<Vec<Registration>> {
    let inbox = stand.inbox.clone();
    let mut tx = stand.pool.begin().await.unwrap();
    let session = session(&mut tx).await;
    let task = tokio::spawn(async move {
        let answers = match ids {
            [id] => vec![inbox.register_if_new(&mut tx, &message(id)).await.unwrap()],
            _ => inbox
                .register_batch(&mut tx, &ids.iter().copied().map(message).collect::<Vec<_>>())
                .await
                .unwrap(),
        };
        tx.commit().await.unwrap();
        answers
    });
    stand.until_waiting(session).await;
    task
}

async fn holder<'i>(stand: &'i Stand, id: &str) -> Guarded<'i> {
    let mut holder = stand.inbox.begin().await.unwrap();
    assert!(holder.register_if_new(&message(id)).await.unwrap().is_new());
    holder
}

async fn r05_who_waited_for_a_commit_gets_a_duplicate(stand: Stand) {
    let holder = holder(&stand, "m").await;
    let single = waiter(&stand, &["m"]).await;
    let batch = waiter(&stand, &["a", "m"]).await;
    holder.commit().await.unwrap();
    assert!(matches!(single.await.unwrap()[..], [Registration::Duplicate(_)]));
    assert!(matches!(batch.await.unwrap()[..], [Registration::New, Registration::Duplicate(_)]));
}

async fn r05_who_waited_for_a_rollback_or_a_dead_session_is_new(stand: Stand) {
    let first = holder(&stand, "m").await;
    let waiting = waiter(&stand, &["m"]).await;
    first.rollback().await.unwrap();
    assert!(waiting.await.unwrap()[0].is_new());

    let mut second = holder(&stand, "n").await;
    let waiting = waiter(&stand, &["n"]).await;
    let session = session(&mut second).await;
    stand.kill(session).await;
    assert!(waiting.await.unwrap()[0].is_new());
}

/// MariaDB's bound is one on the statement, MySQL's one on the wait, in whole seconds.
async fn r06_b28_a_wait_is_bounded_and_past_it_the_call_is_busy(stand: Stand) {
    let _holder = holder(&stand, "m").await;
    let (bound, number) = match stand.is_mysql() {
        true => (Duration::from_secs(1), 1205),
        false => (Duration::from_millis(300), 1969),
    };
    let inbox = stand.inbox.clone().with_wait(bound);
    for batch in [false, true] {
        let mut tx = inbox.begin().await.unwrap();
        effect(&mut tx).await;
        let started = Instant::now();
        let answer = match batch {
            false => tx.register_if_new(&message("m")).await.map(drop),
            true => tx.register_batch(&[message("m")]).await.map(drop),
        };
        let waited = started.elapsed();
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Busy, Some(number)));
        assert!(error.to_string().contains(&format!("{bound:?}")), "{error}");
        assert!((bound..DEFAULT_WAIT).contains(&waited), "{waited:?}");
        assert_eq!(kind(tx.commit().await), ErrorKind::Aborted);
    }
    assert_eq!(stand.effects().await, 0);
}

async fn r06_b29_without_a_wait_an_id_in_flight_is_busy_and_new_once_its_holder_rolls_back(stand: Stand) {
    let holder = holder(&stand, "m").await;
    let inbox = stand.inbox.clone().with_wait(Duration::ZERO);
    let mut tx = stand.pool.begin().await.unwrap();
    let error = inbox.register_if_new(&mut tx, &message("m")).await.unwrap_err();
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Busy, Some(1205)));
    drop(tx);
    holder.rollback().await.unwrap();
    let mut tx = stand.pool.begin().await.unwrap();
    assert!(inbox.register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
}

async fn r06_a_session_with_limits_of_its_own_waits_as_long_as_the_call_says(stand: Stand) {
    let first = holder(&stand, "m").await;
    let inbox = stand.inbox.clone();
    let mut tx = stand.pool.begin().await.unwrap();
    let session = session(&mut tx).await;
    run(&mut tx, "SET innodb_lock_wait_timeout = 1").await;
    if !stand.is_mysql() {
        run(&mut tx, "SET max_statement_time = 0.2").await;
    }
    let waiting = tokio::spawn(async move {
        let answer = inbox.register_if_new(&mut tx, &message("m")).await;
        (answer, show(&mut tx, "@@innodb_lock_wait_timeout").await)
    });
    stand.until_waiting(session).await;
    if stand.is_mysql() {
        let setting: String = sqlx::query_scalar(
            "SELECT CAST(variable_value AS CHAR)
               FROM performance_schema.variables_by_thread
               JOIN performance_schema.threads USING (thread_id)
              WHERE processlist_id = ? AND variable_name = 'innodb_lock_wait_timeout'",
        )
        .bind(session)
        .fetch_one(&stand.pool)
        .await
        .unwrap();
        assert_eq!(setting, "10", "while it waits");
    } else {
        tokio::time::sleep(Duration::from_millis(300)).await; // longer than the session's own limit
    }
    first.rollback().await.unwrap();
    let (answer, setting) = waiting.await.unwrap();
    assert!(answer.unwrap().is_new());
    assert_eq!(setting, "1", "afterwards");
}

/// The first wait takes 0.6 of the bound. A second one of a whole bound would end at 1.6. On MySQL it
/// does, without a side pool.
async fn r06_the_bound_is_for_all_waits_of_a_batch_together(stand: Stand) {
    if stand.is_mysql() {
        return; // see side.rs
    }
    let (first, second) = (holder(&stand, "a").await, holder(&stand, "b").await);
    let bound = Duration::from_secs(2);
    let inbox = stand.inbox.clone().with_wait(bound);
    let mut tx = inbox.begin().await.unwrap();
    let session = session(&mut tx).await;
    let batch = [message("b"), message("a")];
    let started = Instant::now();
    let (answer, ()) = tokio::join!(tx.register_batch(&batch), async {
        stand.until_waiting(session).await;
        tokio::time::sleep(bound.mul_f64(0.6).saturating_sub(started.elapsed())).await;
        first.rollback().await.unwrap();
    });
    let waited = started.elapsed();
    assert_eq!(kind(answer), ErrorKind::Busy);
    assert!(waited >= bound, "{waited:?}");
    assert!(waited < bound.mul_f64(1.5), "the second wait got the whole bound again: {waited:?}");
    second.rollback().await.unwrap();
}

/// MySQL has no bound for it but the session's own.
async fn r06_a_table_that_is_being_altered_is_waited_for(stand: Stand) {
    let first = holder(&stand, "m").await;
    let mut altering = stand.connection().await;
    let altering_session = session(&mut altering).await;
    let alter =
        tokio::spawn(async move { try_run(&mut altering, "ALTER TABLE inbox ADD further INT").await });
    eventually("the table is being altered", async || {
        let state: Option<String> =
            sqlx::query_scalar("SELECT CAST(state AS CHAR) FROM information_schema.processlist WHERE id = ?")
                .bind(altering_session)
                .fetch_one(&stand.pool)
                .await
                .unwrap();
        state.is_some_and(|state| state.contains("table metadata lock"))
    })
    .await;

    let waits = match stand.is_mysql() {
        // The session's own bound, long before the call's.
        true => vec![(DEFAULT_WAIT, "SET lock_wait_timeout = 1", 1205)],
        false => vec![
            (Duration::from_millis(200), "SET lock_wait_timeout = 60", 1969),
            (Duration::ZERO, "SET lock_wait_timeout = 60", 1205),
        ],
    };
    for (bound, setting, number) in waits {
        let inbox = stand.inbox.clone().with_wait(bound);
        let mut tx = inbox.begin().await.unwrap();
        run(&mut tx, setting).await;
        effect(&mut tx).await;
        let started = Instant::now();
        let error = tx.register_if_new(&message("n")).await.unwrap_err();
        assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Busy, Some(number)), "{error}");
        assert!(started.elapsed() < DEFAULT_WAIT.mul_f64(0.7), "{:?}", started.elapsed());
    }
    first.commit().await.unwrap();
    alter.await.unwrap().unwrap();
    assert_eq!(stand.committed().await, (1, 0));
}

/// What a call might touch, and what nobody but the library sets.
async fn settings(tx: &mut Transaction<'static, MySql>, stand: &Stand) -> String {
    let settings = inbox_testkit::mysql::settings(tx).await.unwrap();
    match stand.is_mysql() {
        true => settings,
        false => format!("{settings}, {}", show(tx, "@@max_statement_time").await),
    }
}

async fn own_settings(tx: &mut Transaction<'static, MySql>, stand: &Stand) -> String {
    run(tx, "SET innodb_lock_wait_timeout = 7, lock_wait_timeout = 8").await;
    if !stand.is_mysql() {
        run(tx, "SET max_statement_time = 9").await;
    }
    settings(tx, stand).await
}

/// At the store, since the inbox ends the session of a transaction by reference after an error.
async fn r15_a_call_leaves_no_setting_behind(stand: Stand) {
    let _holder = holder(&stand, "held").await;
    let consumer = consumer();
    let mut tx = stand.pool.begin().await.unwrap();
    let before = own_settings(&mut tx, &stand).await;
    for (id, expected) in
        [("m", "new"), ("m", "duplicate"), ("held", "busy"), ("m", "duplicate"), ("n", "new")]
    {
        let message = message(id);
        let request = Register::new(&consumer, &message).wait(Duration::ZERO);
        let answer = match stand.store.register_if_new(&mut tx, &request).await {
            Ok(Registration::New) => "new",
            Ok(_) => "duplicate",
            Err(error) if error.kind() == ErrorKind::Busy => "busy",
            Err(error) => panic!("{error}"),
        };
        assert_eq!(answer, expected);
        assert_eq!(settings(&mut tx, &stand).await, before, "after {answer}");
    }
    for ids in [["x", "y"], ["y", "z"], ["held", "z"]] {
        let messages = ids.map(message);
        let request = RegisterBatch::new(&consumer, &messages).wait(Duration::ZERO);
        let answers = stand.store.register_batch(&mut tx, &request).await;
        assert_eq!(answers.is_err(), ids[0] == "held");
        assert_eq!(settings(&mut tx, &stand).await, before, "after the batch {ids:?}");
    }
    // An error of another kind.
    run(&mut tx, "DO 0").await;
    stand.sql("CREATE TABLE elsewhere LIKE inbox; ALTER TABLE elsewhere DROP COLUMN event_type").await;
    let table = inbox_core::TableName::new(stand.database.name(), "elsewhere").unwrap();
    let store = stand.store.clone().with_table(table);
    let copy = message("m");
    assert_eq!(
        kind(store.register_if_new(&mut tx, &Register::new(&consumer, &copy)).await),
        ErrorKind::Schema
    );
    assert_eq!(settings(&mut tx, &stand).await, before, "after an error");
    tx.rollback().await.unwrap();
}

/// On MySQL the server runs the whole script, also for a client that has gone; only after an error the
/// rest is skipped. MariaDB's bound is one of the statement.
async fn r15_what_a_call_left_that_was_given_up_the_next_call_restores(stand: Stand) {
    let consumer = consumer();
    for ends_in_time in [true, false] {
        let id = format!("{ends_in_time}");
        let first = holder(&stand, &id).await;
        let mut tx = stand.pool.begin().await.unwrap();
        let session = session(&mut tx).await;
        let before = own_settings(&mut tx, &stand).await;
        let message = message(&id);
        let request = Register::new(&consumer, &message).wait(Duration::from_secs(1));
        tokio::select! {
            answer = stand.store.register_if_new(&mut tx, &request) => panic!("{answer:?}"),
            () = stand.until_waiting(session) => {}
        }
        let first = match ends_in_time {
            true => {
                first.rollback().await.unwrap();
                None
            }
            false => Some(first),
        };
        // Reads what came of the statement, an error too.
        let late = try_run(&mut tx, "DO 0").await;
        assert_eq!(late.is_ok(), ends_in_time, "{late:?}");
        let left = settings(&mut tx, &stand).await;
        assert_eq!(left == before, ends_in_time || !stand.is_mysql(), "{left}");

        let other = crate::stand::message("other");
        let request = Register::new(&consumer, &other);
        assert!(stand.store.register_if_new(&mut tx, &request).await.unwrap().is_new());
        assert_eq!(settings(&mut tx, &stand).await, before);
        tx.rollback().await.unwrap();
        drop(first);
    }
}
