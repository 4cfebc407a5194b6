//! The commit answers `Ok` only for a certain commit with every registration in it (R12).

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use inbox_core::{Error, ErrorKind, Message, Outcome, Registered};
use inbox_mysql::is_retryable;
use sqlx::{Connection, MySqlConnection};
use tokio::sync::Barrier;

use crate::stand::{
    Guarded, Stand, effect, give_up, kind, message, number, on_each_server, run, session, try_run,
};

on_each_server![
    a_commit_commits_the_registration_and_the_effect,
    r12_b14_a_transaction_that_was_ended_by_sql_is_lost,
    r12_b14_a_rollback_of_a_transaction_that_was_committed_by_sql_is_lost,
    r12_a_rollback_of_a_transaction_that_was_rolled_back_by_sql_has_nothing_to_say,
    r12_b14_a_handler_that_commits_and_fails_is_not_run_again,
    r12_b11_a_swallowed_deadlock_is_a_lost_transaction,
    r12_b11_a_rollback_after_a_deadlock_is_one,
    r12_a_rollback_does_not_take_another_ones_registration_for_its_own,
    r12_b11_a_handler_that_met_a_deadlock_is_run_again_and_is_effective_once,
    r12_a_swallowed_error_that_undid_its_statement_only_is_no_obstacle,
    r12_a_nested_begin_that_was_dropped_loses_the_transaction,
    r12_a_nested_begin_that_failed_loses_the_transaction,
    r12_a_nested_begin_that_was_dropped_and_begun_again_is_lost_as_well,
    r12_a_transaction_begun_by_a_dropped_begin_is_not_left_to_the_next_message,
    r12_a_late_error_does_not_hide_a_lost_transaction,
    r12_a_late_error_that_undid_its_statement_only_is_no_obstacle,
    r12_a_late_deadlock_is_a_lost_transaction,
    r12_a_late_error_in_a_nested_transaction_is_no_obstacle,
    r12_a_commit_after_a_statement_that_was_given_up_is_certain,
    r12_a_prepared_statement_that_was_given_up_leads_to_no_false_commit,
    r12_b33_a_registration_undone_by_a_savepoint_is_lost,
    r12_b33_another_ones_registration_of_what_was_undone_is_no_proof,
    r12_b33_a_session_that_selects_no_rows_proves_all_the_same,
    r12_b33_a_guard_undone_by_a_savepoint_is_lost,
    r12_a_guard_released_with_an_older_savepoint_is_taken_for_lost,
    r12_a_registration_deleted_by_the_handler_is_lost,
    r12_a_registration_undone_among_thousands_is_lost,
    r12_a_registration_repeated_after_its_savepoint_was_undone_is_kept,
    r12_a_transaction_that_saw_only_duplicates_commits,
    a_nested_transaction_is_released_and_the_outer_one_goes_on,
    r12_a_nested_transaction_whose_registration_was_undone_is_lost,
    r12_a_nested_transaction_that_was_committed_by_sql_is_lost,
    r12_a_connection_lost_at_commit_is_an_unknown_outcome,
    r12_the_sessions_completion_type_and_autocommit_change_nothing,
    a_connection_of_the_callers_is_not_left_idle_in_a_transaction,
];

/// A transaction with one registration and one effect.
async fn handled<'i>(stand: &'i Stand, id: &str) -> Guarded<'i> {
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message(id)).await.unwrap().is_new());
    effect(&mut tx).await;
    tx
}

/// Rows for handlers to lock.
async fn create_stock(stand: &Stand) {
    stand
        .sql(
            "CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0) ENGINE = InnoDB;
             INSERT INTO stock (id) VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12)",
        )
        .await;
}

async fn take(conn: &mut MySqlConnection, id: u8) -> Result<(), sqlx::Error> {
    try_run(conn, &format!("UPDATE stock SET n = n + 1 WHERE id = {id}")).await
}

/// Brings a transaction so far that [`take`] of 1 makes it a deadlock's victim: the other one, who
/// waits for it, has written more. That one is rolled back when it gets what it waits for.
async fn before_a_deadlock(stand: &Stand, victim: &mut MySqlConnection) -> tokio::task::JoinHandle<()> {
    let mut other = stand.pool.begin().await.unwrap();
    run(&mut other, "UPDATE stock SET n = n + 1 WHERE id > 2").await;
    take(&mut other, 1).await.unwrap();
    take(victim, 2).await.unwrap();
    let session = session(&mut other).await;
    let waiting = tokio::spawn(async move {
        take(&mut other, 2).await.unwrap();
        other.rollback().await.unwrap();
    });
    stand.until_waiting(session).await;
    waiting
}

/// A real deadlock, whose error the handler swallows.
async fn deadlock(stand: &Stand, victim: &mut MySqlConnection) {
    let other = before_a_deadlock(stand, victim).await;
    assert_eq!(number(&take(victim, 1).await.unwrap_err()), Some(1213));
    other.await.unwrap();
}

/// Gives up a statement that fails later, so that its error comes with the next.
async fn give_up_a_statement_that_fails(conn: &mut MySqlConnection) {
    give_up(conn, "DO SLEEP(0.1); SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'late'").await;
}

/// What a timeout around `begin` does. Now and then the answer is faster; then nothing is lost yet.
async fn drop_a_nested_begin(conn: &mut MySqlConnection) {
    while conn.is_in_transaction() {
        let mut begin = Box::pin(conn.begin());
        let _ = poll_fn(|cx| Poll::Ready(begin.as_mut().poll(cx))).await;
    }
}

async fn a_commit_commits_the_registration_and_the_effect(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    assert!(tx.register_batch(&[message("n"), message("o"), message("m")]).await.unwrap()[0].is_new());
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (3, 1));
}

/// What commits, or rolls back, behind everybody's back.
const COMMITS: [&str; 7] = [
    "COMMIT",
    "COMMIT; BEGIN",
    "COMMIT AND CHAIN",
    "START TRANSACTION",
    "CREATE TABLE ddl (id INT); DROP TABLE ddl",
    "TRUNCATE nothing",
    "LOCK TABLES effect WRITE, inbox WRITE; UNLOCK TABLES",
];
const ROLLBACKS: [&str; 2] = ["ROLLBACK", "ROLLBACK; BEGIN"];

async fn r12_b14_a_transaction_that_was_ended_by_sql_is_lost(stand: Stand) {
    stand.sql("CREATE TABLE nothing (id INT)").await;
    for end in COMMITS.into_iter().chain(ROLLBACKS) {
        let mut tx = handled(&stand, end).await;
        run(&mut tx, end).await;
        assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost, "{end}");
    }
    assert_eq!(stand.registered().await, COMMITS.len() as i64, "committed behind our back");

    // Also where there was nothing to register.
    let mut tx = stand.inbox.begin().await.unwrap();
    run(&mut tx, "COMMIT").await;
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
}

async fn r12_b14_a_rollback_of_a_transaction_that_was_committed_by_sql_is_lost(stand: Stand) {
    stand.sql("CREATE TABLE nothing (id INT)").await;
    for end in COMMITS {
        let mut tx = handled(&stand, end).await;
        let session = session(&mut tx).await;
        run(&mut tx, end).await;
        effect(&mut tx).await;
        assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost, "{end}");
        assert!(!stand.has_open_transaction(session).await, "{end}");
    }
    assert_eq!(stand.registered().await, COMMITS.len() as i64);

    // However many registrations there were.
    let mut tx = stand.inbox.begin().await.unwrap();
    let batch: Vec<Message> = (0..2_500).map(|n| message(&format!("{n}"))).collect();
    tx.register_batch(&batch).await.unwrap();
    run(&mut tx, "COMMIT; DELETE FROM inbox WHERE message_id <> '999'").await;
    assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost);
}

/// A deadlock looks the same. What was written after it is not undone: nobody can tell any more.
async fn r12_a_rollback_of_a_transaction_that_was_rolled_back_by_sql_has_nothing_to_say(stand: Stand) {
    for end in ROLLBACKS {
        let mut tx = handled(&stand, end).await;
        run(&mut tx, end).await;
        effect(&mut tx).await;
        tx.rollback().await.unwrap();
    }
    assert_eq!(stand.committed().await, (0, 1), "the effect after a ROLLBACK alone");
}

async fn r12_b14_a_handler_that_commits_and_fails_is_not_run_again(stand: Stand) {
    for end in ["COMMIT; BEGIN", "CREATE TABLE IF NOT EXISTS ddl (id INT)"] {
        let runs = AtomicUsize::new(0);
        let (counted, letter) = (&runs, message(end));
        let answer = stand.inbox.process_retrying(
            &letter,
            |_: &Error| true,
            async |tx| {
                counted.fetch_add(1, Ordering::Relaxed);
                effect(tx).await;
                run(tx, end).await;
                Err::<(), _>(Error::new(ErrorKind::Backend, "handle"))
            },
        );
        assert_eq!(kind(answer.await), ErrorKind::TransactionLost, "{end}");
        assert_eq!(runs.into_inner(), 1, "{end}");
    }
}

async fn r12_b11_a_swallowed_deadlock_is_a_lost_transaction(stand: Stand) {
    create_stock(&stand).await;
    let mut tx = handled(&stand, "m").await;
    deadlock(&stand, &mut tx).await;
    run(&mut tx, "INSERT INTO effect VALUES ('after')").await;
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
    assert_eq!(stand.registered().await, 0);
    let before = stand.ask("SELECT count(*) FROM effect WHERE id = 'e'").await;
    assert_eq!(
        (before, stand.effects().await),
        (0, 1),
        "what was written after it is left: it was committed alone"
    );
}

async fn r12_b11_a_rollback_after_a_deadlock_is_one(stand: Stand) {
    create_stock(&stand).await;
    let mut tx = handled(&stand, "m").await;
    let batch: Vec<Message> = (0..2_500).map(|n| message(&format!("{n}"))).collect();
    tx.register_batch(&batch).await.unwrap();
    // The other one has to have written more.
    let mut other = stand.pool.begin().await.unwrap();
    let numbers: Vec<String> = (1_000..6_000).map(|n| format!("({n})")).collect();
    run(&mut other, &format!("INSERT INTO stock (id) VALUES {}", numbers.join(", "))).await;
    take(&mut other, 1).await.unwrap();
    take(&mut tx, 2).await.unwrap();
    let waiter = session(&mut other).await;
    let waiting = tokio::spawn(async move {
        take(&mut other, 2).await.unwrap();
        other.rollback().await.unwrap();
    });
    stand.until_waiting(waiter).await;
    assert_eq!(number(&take(&mut tx, 1).await.unwrap_err()), Some(1213));
    waiting.await.unwrap();

    let session = session(&mut tx).await;
    tx.rollback().await.unwrap();
    assert_eq!(stand.committed().await, (0, 0));
    assert!(!stand.has_open_transaction(session).await);
}

async fn r12_a_rollback_does_not_take_another_ones_registration_for_its_own(stand: Stand) {
    create_stock(&stand).await;
    let mut tx = handled(&stand, "m").await;
    deadlock(&stand, &mut tx).await;
    handled(&stand, "m").await.commit().await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(stand.committed().await, (1, 1));
}

async fn r12_b11_a_handler_that_met_a_deadlock_is_run_again_and_is_effective_once(stand: Stand) {
    create_stock(&stand).await;
    let (barrier, runs) = (Barrier::new(2), AtomicUsize::new(0));
    let (barrier, counted) = (&barrier, &runs);
    let inbox = &stand.inbox;
    let process = async |id: &'static str, first: u8, second: u8| {
        let letter = message(id);
        let outcome: Result<Outcome<()>, HandlerError> = inbox
            .process_retrying(&letter, HandlerError::is_retryable, async |tx| {
                effect(tx).await;
                take(tx, first).await?;
                // Each has its first one, in the first run. In a further one, who met the deadlock is alone.
                if counted.fetch_add(1, Ordering::Relaxed) < 2 {
                    barrier.wait().await;
                }
                take(tx, second).await?;
                Ok(())
            })
            .await;
        assert!(outcome.unwrap().is_processed(), "{id}");
    };
    tokio::join!(process("one", 1, 2), process("other", 2, 1));
    assert_eq!(runs.into_inner(), 3);
    assert_eq!(stand.committed().await, (2, 2));
    assert_eq!(stand.ask("SELECT CAST(sum(n) AS SIGNED) FROM stock WHERE id IN (1, 2)").await, 4);
}

#[derive(Debug)]
enum HandlerError {
    Inbox(Error),
    Sql(sqlx::Error),
}

impl HandlerError {
    fn is_retryable(&self) -> bool {
        matches!(self, Self::Sql(error) if is_retryable(error))
    }
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        Self::Inbox(error)
    }
}

impl From<sqlx::Error> for HandlerError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl std::fmt::Display for HandlerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inbox(error) => error.fmt(f),
            Self::Sql(error) => error.fmt(f),
        }
    }
}

async fn r12_a_swallowed_error_that_undid_its_statement_only_is_no_obstacle(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    try_run(&mut tx, "INSERT INTO effect VALUES ('e'), (NULL)").await.unwrap_err();
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (1, 1));
}

async fn r12_a_nested_begin_that_was_dropped_loses_the_transaction(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    drop_a_nested_begin(&mut tx).await;
    assert_eq!(kind(stand.inbox.register_if_new(&mut *tx, &message("n")).await), ErrorKind::TransactionLost);
    assert_eq!(kind(stand.inbox.register_batch(&mut *tx, &[message("n")]).await), ErrorKind::TransactionLost);
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
    assert_eq!(stand.committed().await, (0, 0));

    let mut tx = handled(&stand, "m").await;
    drop_a_nested_begin(&mut tx).await;
    effect(&mut tx).await;
    assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost);
    assert_eq!(stand.committed().await, (0, 1), "what the driver wrote after it lost the transaction");
}

async fn r12_a_nested_begin_that_failed_loses_the_transaction(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    give_up_a_statement_that_fails(&mut tx).await;
    assert_eq!(number(&tx.begin().await.unwrap_err()), Some(1644), "the late error is the savepoint's");
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
    assert_eq!(stand.committed().await, (0, 0));
}

async fn r12_a_nested_begin_that_was_dropped_and_begun_again_is_lost_as_well(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    drop_a_nested_begin(&mut tx).await;
    std::mem::forget(tx.begin().await.unwrap());
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
    assert_eq!(stand.committed().await, (0, 0));
}

async fn r12_a_transaction_begun_by_a_dropped_begin_is_not_left_to_the_next_message(stand: Stand) {
    for fails in [true, false] {
        let inbox = stand.inbox_on_one("DO 0").await;
        let session = session(&mut inbox.store().pool().acquire().await.unwrap()).await;
        let letter = message("m");
        let answer: Result<Outcome<()>, Error> = inbox
            .process(&letter, async |tx| {
                drop_a_nested_begin(tx).await;
                // What a second begin sends before it is dropped, now that the driver counts no transaction.
                run(tx, "BEGIN").await;
                effect(tx).await;
                if fails { Err(Error::new(ErrorKind::Backend, "handle")) } else { Ok(()) }
            })
            .await;
        assert_eq!(kind(answer), ErrorKind::TransactionLost);
        assert!(!stand.has_open_transaction(session).await);
        let next = message(&format!("next {fails}"));
        let answer: Result<Outcome<()>, Error> = inbox.process(&next, async |_| Ok(())).await;
        assert!(answer.unwrap().is_processed());
        assert_eq!(stand.effects().await, 0);
    }
}

async fn r12_a_late_error_does_not_hide_a_lost_transaction(stand: Stand) {
    for fails in [true, false] {
        let handled = || if fails { Err(Error::new(ErrorKind::Busy, "handle")) } else { Ok(()) };
        let letter = message(&format!("{fails}"));
        let answer: Result<Outcome<()>, Error> = stand
            .inbox
            .process(&letter, async |tx| {
                run(tx, "COMMIT").await;
                give_up_a_statement_that_fails(tx).await;
                handled()
            })
            .await;
        assert_eq!(kind(answer), ErrorKind::TransactionLost, "fails: {fails}");

        let letters = [message(&format!("{fails} a")), message(&format!("{fails} b"))];
        let answer: Result<_, Error> = stand
            .inbox
            .process_batch(&letters, async |tx, _| {
                run(tx, "COMMIT").await;
                give_up_a_statement_that_fails(tx).await;
                handled()
            })
            .await;
        let kind = answer.map(|_| ()).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::TransactionLost, "batch, fails: {fails}");
    }
}

/// As if the handler had waited for it and swallowed it.
async fn r12_a_late_error_that_undid_its_statement_only_is_no_obstacle(stand: Stand) {
    let mut tx = handled(&stand, "committed").await;
    give_up_a_statement_that_fails(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (1, 1));

    // Where the commit takes several round trips as well.
    let mut tx = handled(&stand, "batch").await;
    let batch: Vec<Message> = (0..1_500).map(|n| message(&format!("{n}"))).collect();
    tx.register_batch(&batch).await.unwrap();
    give_up_a_statement_that_fails(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (1_502, 2));

    let mut tx = handled(&stand, "rolled back").await;
    give_up_a_statement_that_fails(&mut tx).await;
    tx.rollback().await.unwrap();
    assert_eq!(stand.committed().await, (1_502, 2));
}

async fn r12_a_late_deadlock_is_a_lost_transaction(stand: Stand) {
    create_stock(&stand).await;
    for nested in [false, true] {
        let mut tx = handled(&stand, "m").await;
        let other = match nested {
            false => {
                let other = before_a_deadlock(&stand, &mut tx).await;
                give_up(&mut tx, "DO SLEEP(0.1); UPDATE stock SET n = n + 1 WHERE id = 1").await;
                other
            }
            true => {
                // Dropping it sends a ROLLBACK TO, which fails as well.
                let mut nested = tx.begin().await.unwrap();
                let other = before_a_deadlock(&stand, &mut nested).await;
                give_up(&mut nested, "DO SLEEP(0.1); UPDATE stock SET n = n + 1 WHERE id = 1").await;
                other
            }
        };
        other.await.unwrap();
        assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost, "nested: {nested}");
        assert_eq!(stand.committed().await, (0, 0), "nested: {nested}");
    }
}

async fn r12_a_late_error_in_a_nested_transaction_is_no_obstacle(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    let mut nested = tx.begin().await.unwrap();
    effect(&mut nested).await;
    give_up_a_statement_that_fails(&mut nested).await;
    drop(nested);
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (1, 1));
}

/// Dropped at each point at which it can be. Text, since a prepared statement that is dropped while it
/// is prepared leaves sqlx 0.9 out of step with the server.
async fn r12_a_commit_after_a_statement_that_was_given_up_is_certain(stand: Stand) {
    for sql in ["INSERT INTO effect VALUES ('e')", "SELECT id FROM stock; INSERT INTO effect VALUES ('e')"] {
        create_stock(&stand).await;
        for steps in 0..10 {
            let mut tx = stand.inbox.begin().await.unwrap();
            tx.register_if_new(&message(sql)).await.unwrap();
            let mut statement = Box::pin(try_run(&mut tx, sql));
            for _ in 0..steps {
                if poll_fn(|cx| Poll::Ready(statement.as_mut().poll(cx))).await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(statement);
            tx.commit().await.unwrap();
            let (registered, effects) = stand.committed().await;
            assert_eq!((registered, effects), (1, i64::from(steps > 0)), "{sql}, {steps} steps");
            stand.sql("DELETE FROM inbox; DELETE FROM effect").await;
        }
        stand.sql("DROP TABLE stock").await;
    }
}

/// Dropped while it is prepared, it leaves sqlx 0.9 out of step with the server: what comes next then
/// panics in it, or waits for an answer that never comes. Such a commit has happened or it has not, and
/// an `Ok` has.
async fn r12_a_prepared_statement_that_was_given_up_leads_to_no_false_commit(stand: Stand) {
    for sql in ["INSERT INTO effect VALUES ('e')", "SELECT id, id AS again FROM effect"] {
        let mut given_up = 0;
        for tries in 0.. {
            assert!(tries < 40, "{sql}: no commit was `Ok`, even after an answer");
            let polls = given_up;
            let commit = commit_after_polls(&stand, sql, polls).await;
            let (registered, effects) = stand.committed().await;
            assert_eq!(registered > 0, effects > 0, "{sql}, {polls} polls: {commit:?}, half of it was kept");
            if let Some((_, Ok(()))) = commit {
                assert_eq!(registered, 1, "{sql}, {polls} polls: `Ok` of nothing");
            }
            stand.sql("DELETE FROM inbox; DELETE FROM effect").await;
            match commit {
                Some((true, committed)) => {
                    committed.unwrap();
                    // Now and then the answer is there at the first poll; then nothing was given up yet.
                    if given_up > 0 {
                        break;
                    }
                }
                _ => given_up += 1,
            }
        }
        assert!(given_up > 0, "{sql}: it was answered at once, so that nothing was given up");
    }
}

/// Handles `m` with a statement that is polled so often and then dropped, and commits: whether the
/// statement had been answered, and what the commit answered; None if that panicked or hung. Unless it
/// was `Ok` the session is over, so that what it left can be counted.
async fn commit_after_polls(
    stand: &Stand,
    sql: &'static str,
    polls: usize,
) -> Option<(bool, Result<(), Error>)> {
    let inbox = stand.inbox_on_one("DO 0").await;
    let mut tx = inbox.begin().await.unwrap();
    let session = session(&mut tx).await;
    drop(tx);
    let commit = tokio::spawn(tokio::time::timeout(Duration::from_secs(2), async move {
        let mut tx = inbox.begin().await.unwrap();
        assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
        effect(&mut tx).await;
        let mut left = polls;
        let mut statement = Box::pin(sqlx::query(sql).execute(&mut **tx));
        let answered = poll_fn(|cx| match statement.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        })
        .await;
        drop(statement);
        (answered, tx.commit().await)
    }));
    let ended = commit.await.ok().and_then(Result::ok);
    if !matches!(ended, Some((_, Ok(())))) {
        // It may have gone by itself.
        let _ = try_run(&mut stand.connection().await, &format!("KILL {session}")).await;
        stand.until_gone(session).await;
    }
    ended
}

async fn r12_b33_a_registration_undone_by_a_savepoint_is_lost(stand: Stand) {
    for mode in ["", "ANSI", "TRADITIONAL", "NO_UNSIGNED_SUBTRACTION", "STRICT_TRANS_TABLES"] {
        let mut tx = stand.inbox.begin().await.unwrap();
        run(&mut tx, &format!("SET sql_mode = '{mode}'")).await;
        tx.register_if_new(&message("kept")).await.unwrap();
        run(&mut tx, "SAVEPOINT s").await;
        tx.register_if_new(&message("undone")).await.unwrap();
        run(&mut tx, "ROLLBACK TO s").await;
        effect(&mut tx).await;
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TransactionLost, "{mode}");
        assert!(error.to_string().contains("a registration made in it is gone"), "{mode}: {error}");
        assert_eq!(stand.committed().await, (0, 0), "{mode}");
    }
    // Rolling back what is undone anyway is no loss.
    let mut tx = handled(&stand, "kept").await;
    run(&mut tx, "SAVEPOINT s").await;
    tx.register_if_new(&message("undone")).await.unwrap();
    run(&mut tx, "ROLLBACK TO s").await;
    tx.rollback().await.unwrap();
    assert_eq!(stand.committed().await, (0, 0));
}

/// Else both copies would have had their effect.
async fn r12_b33_another_ones_registration_of_what_was_undone_is_no_proof(stand: Stand) {
    for batch in [false, true] {
        let id = format!("batch: {batch}");
        let mut tx = stand.inbox.begin().await.unwrap();
        run(&mut tx, "SAVEPOINT s").await;
        match batch {
            false => assert!(tx.register_if_new(&message(&id)).await.unwrap().is_new()),
            true => assert!(tx.register_batch(&[message(&id)]).await.unwrap()[0].is_new()),
        }
        run(&mut tx, "ROLLBACK TO s").await;
        run(&mut tx, "INSERT INTO effect VALUES ('twice')").await;
        handled(&stand, &id).await.commit().await.unwrap();
        assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost, "{id}");
    }
    assert_eq!(stand.committed().await, (2, 2));
}

async fn r12_b33_a_session_that_selects_no_rows_proves_all_the_same(stand: Stand) {
    let mut tx = stand.inbox.begin().await.unwrap();
    run(&mut tx, "SET sql_select_limit = 0; SAVEPOINT s").await;
    tx.register_if_new(&message("undone")).await.unwrap();
    assert!(!tx.register_if_new(&message("undone")).await.unwrap().is_new());
    run(&mut tx, "ROLLBACK TO s").await;
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
}

async fn r12_b33_a_guard_undone_by_a_savepoint_is_lost(stand: Stand) {
    for commit in [true, false] {
        let mut tx = stand.pool.begin().await.unwrap();
        run(&mut tx, "SAVEPOINT s").await;
        let Registered::New(mut tx) = stand.inbox.register(tx, &message("m")).await.unwrap() else {
            panic!("not new")
        };
        run(&mut tx, "ROLLBACK TO s").await;
        effect(&mut tx).await;
        match commit {
            true => assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost),
            false => tx.rollback().await.unwrap(),
        }
        assert_eq!(stand.committed().await, (0, 0));
    }
}

/// A false alarm: all is in the transaction, but nobody can tell. Set savepoints after the guard.
async fn r12_a_guard_released_with_an_older_savepoint_is_taken_for_lost(stand: Stand) {
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SAVEPOINT s").await;
    let mut tx = stand.inbox.guard(tx).await.unwrap();
    tx.register_if_new(&message("m")).await.unwrap();
    run(&mut tx, "RELEASE SAVEPOINT s").await;
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
    assert_eq!(stand.registered().await, 0);

    // One that is younger than the guard does not matter, released or undone.
    let mut tx = handled(&stand, "m").await;
    run(&mut tx, "SAVEPOINT s; INSERT INTO effect VALUES ('e'); RELEASE SAVEPOINT s").await;
    run(&mut tx, "SAVEPOINT s; INSERT INTO effect VALUES ('e'); ROLLBACK TO s").await;
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (1, 2));
}

async fn r12_a_registration_deleted_by_the_handler_is_lost(stand: Stand) {
    let mut tx = stand.inbox.begin().await.unwrap();
    effect(&mut tx).await;
    tx.register_if_new(&message("m")).await.unwrap();
    run(&mut tx, "DELETE FROM inbox WHERE message_id = 'm'").await;
    assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost);
    assert_eq!(stand.committed().await, (0, 0));
}

/// The proof takes a statement for each 999.
async fn r12_a_registration_undone_among_thousands_is_lost(stand: Stand) {
    let batch: Vec<Message> = (0..2_600).map(|n| message(&format!("{n:0>5}"))).collect();
    for undone in ["0", "01500x", "z"] {
        let mut tx = stand.inbox.begin().await.unwrap();
        effect(&mut tx).await;
        tx.register_batch(&batch).await.unwrap();
        run(&mut tx, "SAVEPOINT s").await;
        tx.register_if_new(&message(undone)).await.unwrap();
        run(&mut tx, "ROLLBACK TO s").await;
        assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost, "{undone}");
        assert_eq!(stand.committed().await, (0, 0), "{undone}");
    }
    let mut tx = stand.inbox.begin().await.unwrap();
    effect(&mut tx).await;
    tx.register_batch(&batch).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(stand.committed().await, (2_600, 1));
}

async fn r12_a_registration_repeated_after_its_savepoint_was_undone_is_kept(stand: Stand) {
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SAVEPOINT s").await;
    stand.inbox.register_if_new(&mut tx, &message("m")).await.unwrap();
    run(&mut tx, "ROLLBACK TO s").await;
    let Registered::New(tx) = stand.inbox.register(tx, &message("m")).await.unwrap() else {
        panic!("not new")
    };
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 1);
}

async fn r12_a_transaction_that_saw_only_duplicates_commits(stand: Stand) {
    handled(&stand, "m").await.commit().await.unwrap();
    let mut tx = stand.inbox.begin().await.unwrap();
    assert!(!tx.register_if_new(&message("m")).await.unwrap().is_new());
    assert!(!tx.register_batch(&[message("m")]).await.unwrap()[0].is_new());
    effect(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(stand.effects().await, 2);
}

async fn a_nested_transaction_is_released_and_the_outer_one_goes_on(stand: Stand) {
    let mut outer = handled(&stand, "outer").await;
    for (id, kept) in [("one", true), ("two", false), ("three", true)] {
        let nested = outer.begin().await.unwrap();
        let Registered::New(mut nested) = stand.inbox.register(nested, &message(id)).await.unwrap() else {
            panic!("not new")
        };
        effect(&mut nested).await;
        match kept {
            true => nested.commit().await.unwrap(),
            false => nested.rollback().await.unwrap(),
        }
    }
    assert_eq!(stand.committed().await, (0, 0), "nothing is committed yet");
    outer.commit().await.unwrap();
    assert_eq!(stand.committed().await, (3, 3));
}

async fn r12_a_nested_transaction_whose_registration_was_undone_is_lost(stand: Stand) {
    let mut outer = stand.pool.begin().await.unwrap();
    for undone in [false, true] {
        let id = format!("{undone}");
        let mut nested = stand.inbox.guard(outer.begin().await.unwrap()).await.unwrap();
        run(&mut nested, "SAVEPOINT s").await;
        nested.register_if_new(&message(&id)).await.unwrap();
        if undone {
            run(&mut nested, "ROLLBACK TO s").await;
        }
        let answer = nested.commit().await;
        assert_eq!(answer.map_err(|error| error.kind()).err(), undone.then_some(ErrorKind::TransactionLost));
    }
    outer.commit().await.unwrap();
    assert_eq!(stand.registered().await, 1);
}

async fn r12_a_nested_transaction_that_was_committed_by_sql_is_lost(stand: Stand) {
    for commit in [true, false] {
        let mut outer = handled(&stand, &format!("outer {commit}")).await;
        let nested = outer.begin().await.unwrap();
        let id = format!("nested {commit}");
        let Registered::New(mut nested) = stand.inbox.register(nested, &message(&id)).await.unwrap() else {
            panic!("not new")
        };
        run(&mut nested, "COMMIT; BEGIN").await;
        match commit {
            true => assert_eq!(kind(nested.commit().await), ErrorKind::TransactionLost),
            false => assert_eq!(kind(nested.rollback().await), ErrorKind::TransactionLost),
        }
        assert_eq!(kind(outer.commit().await), ErrorKind::TransactionLost);
    }
}

async fn r12_a_connection_lost_at_commit_is_an_unknown_outcome(stand: Stand) {
    let mut tx = handled(&stand, "m").await;
    let session = session(&mut tx).await;
    stand.kill(session).await;
    assert_eq!(kind(tx.commit().await), ErrorKind::UnknownOutcome);
    assert_eq!(stand.committed().await, (0, 0));
}

/// CHAIN would leave a transaction open, RELEASE would end the session.
async fn r12_the_sessions_completion_type_and_autocommit_change_nothing(stand: Stand) {
    for setting in ["SET completion_type = 1", "SET completion_type = 2", "SET autocommit = 0"] {
        let inbox = stand.inbox_on_one(setting).await;
        let at_first = session(&mut inbox.store().pool().acquire().await.unwrap()).await;
        for number in 0..3 {
            let letter = message(&format!("{setting} {number}"));
            let answer: Result<Outcome<()>, Error> = inbox
                .process(&letter, async |tx| {
                    effect(tx).await;
                    Ok(())
                })
                .await;
            assert!(answer.unwrap().is_processed(), "{setting}");
            let mut undone = inbox.begin().await.unwrap();
            undone.register_if_new(&message("undone")).await.unwrap();
            effect(&mut undone).await;
            undone.rollback().await.unwrap();
            assert_eq!(inbox.find(letter.id()).await.unwrap().map(|it| it.event_type.len()), Some(16));
            assert!(!stand.has_open_transaction(at_first).await, "{setting}");
        }
    }
    assert_eq!(stand.committed().await, (9, 9));
}

async fn a_connection_of_the_callers_is_not_left_idle_in_a_transaction(stand: Stand) {
    let mut conn = stand.connection().await;
    let session = session(&mut conn).await;
    let tx = conn.begin().await.unwrap();
    let Registered::New(tx) = stand.inbox.register(tx, &message("m")).await.unwrap() else {
        panic!("not new")
    };
    assert!(stand.has_open_transaction(session).await);
    tx.commit().await.unwrap();
    assert!(!stand.has_open_transaction(session).await); // without another use of the connection
    assert!(!conn.is_in_transaction());
    effect(&mut conn).await;
    assert_eq!(stand.committed().await, (1, 1));
}
