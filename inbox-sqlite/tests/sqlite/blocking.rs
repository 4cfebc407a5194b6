//! The blocking API on connections of the caller.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use inbox_core::{Error, ErrorKind, Inbox, Outcome, Registration, RetryPolicy};
use inbox_sqlite::{Blocking, BlockingRegistered, BlockingTx, SqliteStore, create_schema_on, is_retryable};
use rusqlite::{Connection, DropBehavior, Transaction, TransactionBehavior};

use crate::stand::{AppError, File, POINTS, consumer, credit, inbox, message};

/// A file with the schema, and a connection to it in a write-ahead log.
fn set_up() -> (File, Connection, Inbox<SqliteStore>) {
    let file = File::empty();
    let conn = file.foreign();
    let store = file.store();
    conn.execute_batch(&format!("PRAGMA journal_mode = WAL; {POINTS}")).unwrap();
    create_schema_on(&conn, store.table()).unwrap();
    let inbox = inbox(&store);
    (file, conn, inbox)
}

fn begin(conn: &mut Connection) -> Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn add_points(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("INSERT INTO points VALUES (10)")
}

fn count(conn: &Connection, table: &str) -> i64 {
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn registered<'c>(inbox: &Inbox<SqliteStore>, conn: &'c mut Connection) -> BlockingTx<'c> {
    match inbox.blocking_register(begin(conn), &message("m")).unwrap() {
        BlockingRegistered::New(tx) => tx,
        BlockingRegistered::Duplicate(original) => panic!("{original:?}"),
    }
}

fn kind(result: Result<(), Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn new_then_duplicate() {
    let (_file, mut conn, inbox) = set_up();
    let tx = registered(&inbox, &mut conn);
    add_points(&tx).unwrap();
    tx.commit().unwrap();

    let again = inbox.blocking_register(begin(&mut conn), &message("m")).unwrap();
    assert!(matches!(again, BlockingRegistered::Duplicate(_)));
    drop(again);
    assert!(conn.is_autocommit());
    assert_eq!((count(&conn, "inbox"), count(&conn, "points")), (1, 1));
}

#[test]
fn r09_a_transaction_set_to_commit_when_dropped_is_rolled_back_all_the_same() {
    let (_file, mut conn, inbox) = set_up();
    registered(&inbox, &mut conn).commit().unwrap();

    let mut tx = begin(&mut conn);
    tx.set_drop_behavior(DropBehavior::Commit);
    add_points(&tx).unwrap();
    drop(inbox.blocking_register(tx, &message("m")).unwrap());

    assert_eq!(count(&conn, "points"), 0);
}

#[test]
fn r12_an_ended_transaction_is_noticed() {
    for ended in ["COMMIT", "COMMIT; BEGIN IMMEDIATE", "ROLLBACK"] {
        let (_file, mut conn, inbox) = set_up();
        let tx = registered(&inbox, &mut conn);
        tx.execute_batch(ended).unwrap();
        assert_eq!(kind(tx.commit()), Some(ErrorKind::TransactionLost), "{ended}");
        assert!(conn.is_autocommit());
    }
}

#[test]
fn r12_registering_after_an_end_does_not_autocommit() {
    let (_file, mut conn, inbox) = set_up();
    let mut tx = registered(&inbox, &mut conn);
    tx.execute_batch("ROLLBACK").unwrap();
    assert_eq!(tx.register_if_new(&message("n")).unwrap_err().kind(), ErrorKind::TransactionLost);
    drop(tx);
    let tx = begin(&mut conn);
    tx.execute_batch("ROLLBACK").unwrap();
    assert_eq!(inbox.blocking_register(tx, &message("n")).unwrap_err().kind(), ErrorKind::TransactionLost);
    assert_eq!(count(&conn, "inbox"), 0);
}

#[test]
fn r12_a_savepoint_that_undid_the_registration_is_noticed() {
    let (_file, mut conn, inbox) = set_up();
    let mut tx = inbox.blocking_guard(begin(&mut conn)).unwrap();
    tx.execute_batch("SAVEPOINT mine").unwrap();
    assert!(tx.register_if_new(&message("m")).unwrap().is_new());
    tx.execute_batch("ROLLBACK TO mine").unwrap();
    assert_eq!(kind(tx.commit()), Some(ErrorKind::TransactionLost));
}

#[test]
fn r09_after_an_error_only_a_rollback_is_left() {
    let (_file, mut conn, inbox) = set_up();
    let mut tx = inbox.blocking_guard(begin(&mut conn)).unwrap();
    assert!(tx.register_if_new(&message("m").with_payload(b"1")).unwrap().is_new());
    add_points(&tx).unwrap();
    let mismatch = tx.register_if_new(&message("m").with_payload(b"2")).unwrap_err();
    assert_eq!(mismatch.kind(), ErrorKind::Mismatch);
    assert_eq!(tx.register_if_new(&message("n")).unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(kind(tx.commit()), Some(ErrorKind::Aborted));
    assert_eq!((count(&conn, "inbox"), count(&conn, "points")), (0, 0));
}

#[test]
fn r10_a_batch_by_reference_answers_by_position() {
    let (_file, mut conn, inbox) = set_up();
    let mut tx = inbox.blocking_guard(begin(&mut conn)).unwrap();
    let answers = tx.register_batch(&["b", "a", "b"].map(message)).unwrap();
    assert!(matches!(answers[..], [Registration::New, Registration::New, Registration::Duplicate(_)]));
    tx.commit().unwrap();
    assert_eq!(count(&conn, "inbox"), 2);
}

/// Reads in a deferred transaction, lets `meanwhile` happen, then registers; the code in the source.
fn upgrade(meanwhile: impl FnOnce(&Connection)) -> (ErrorKind, i32) {
    let (file, mut conn, inbox) = set_up();
    conn.busy_timeout(Duration::from_secs(60)).unwrap();
    let tx = conn.transaction().unwrap();
    count(&tx, "inbox");
    let other = file.foreign();
    meanwhile(&other);

    let error = inbox.blocking_register(tx, &message("m")).unwrap_err();
    let source =
        std::error::Error::source(&error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
    let source = source.expect("rusqlite's error is the source");
    assert!(is_retryable(source) && error.is_retryable());
    let code = source.sqlite_error().unwrap().extended_code;

    other.execute_batch("ROLLBACK").unwrap_or(());
    assert!(conn.is_autocommit());
    let timeout: i64 = conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap();
    assert_eq!(timeout, 60_000, "R15: the caller's own setting");
    (error.kind(), code)
}

#[test]
fn b51_a_transaction_that_has_read_fails_at_once_and_5_and_517_stay_apart() {
    let started = std::time::Instant::now();
    let old_snapshot = upgrade(|other| other.execute_batch("INSERT INTO points VALUES (1)").unwrap());
    let locked = upgrade(|other| other.execute_batch("BEGIN IMMEDIATE").unwrap());
    assert_eq!(old_snapshot, (ErrorKind::Retryable, 517));
    assert_eq!(locked, (ErrorKind::Busy, 5));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn process_runs_the_handler_once_per_message() {
    let (_file, mut conn, inbox) = set_up();
    let mut process = || -> Result<Outcome<i64>, AppError> {
        inbox.blocking_process(&mut conn, &message("m"), |tx| {
            add_points(tx)?;
            Ok(count(tx, "points"))
        })
    };
    assert_eq!(process().unwrap(), Outcome::Processed(1));
    assert!(matches!(process().unwrap(), Outcome::Duplicate(_)));
    assert_eq!(count(&conn, "points"), 1);
}

#[test]
fn r18_an_error_and_a_panic_of_the_handler_roll_back() {
    let (_file, mut conn, inbox) = set_up();
    let failed = inbox.blocking_process(&mut conn, &message("m"), |tx| {
        add_points(tx)?;
        Err::<(), _>(AppError::Refused)
    });
    assert!(matches!(failed, Err(AppError::Refused)));

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        inbox.blocking_process(&mut conn, &message("m"), |tx| -> Result<(), AppError> {
            add_points(tx)?;
            panic!("in the handler")
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>().copied(), Some("in the handler"));
    assert!(conn.is_autocommit());
    assert_eq!((count(&conn, "inbox"), count(&conn, "points")), (0, 0));
}

/// Processes "m" with a handler that runs `sql` in one go, ignores its error, and fails.
fn fails_after(conn: &mut Connection, inbox: &Inbox<SqliteStore>, sql: &str) -> AppError {
    let failed = inbox.blocking_process(conn, &message("m"), |tx| {
        tx.execute_batch(sql).unwrap_or(());
        Err::<(), _>(AppError::Refused)
    });
    failed.unwrap_err()
}

#[test]
fn r12_a_handler_that_ends_the_transaction_and_fails_is_lost() {
    for ended in ["COMMIT", "COMMIT; BEGIN", "COMMIT; BEGIN IMMEDIATE"] {
        let (_file, mut conn, inbox) = set_up();
        let failed = fails_after(&mut conn, &inbox, ended);
        let AppError::Inbox(lost) = failed else { panic!("{ended}: {failed:?}") };
        assert_eq!(lost.kind(), ErrorKind::TransactionLost, "{ended}");
        assert!(conn.is_autocommit());
        assert_eq!(count(&conn, "inbox"), 1, "{ended}: a redelivery would be called a duplicate");
    }
}

#[test]
fn r12_a_failing_handler_whose_transaction_sqlite_rolled_back_keeps_its_error() {
    let (_file, mut conn, inbox) = set_up();
    let failed = fails_after(&mut conn, &inbox, "INSERT OR ROLLBACK INTO points VALUES (NULL)");
    assert!(matches!(failed, AppError::Refused), "{failed:?}");
    assert_eq!((count(&conn, "inbox"), count(&conn, "points")), (0, 0));
}

#[test]
fn r12_what_ran_on_after_a_rollback_of_sqlite_is_lost() {
    let (_file, mut conn, inbox) = set_up();
    let failed = inbox.blocking_process(&mut conn, &message("m"), |tx| {
        tx.execute_batch("INSERT OR ROLLBACK INTO points VALUES (NULL)").unwrap_err();
        add_points(tx).unwrap();
        Err::<(), _>(AppError::Refused)
    });
    let AppError::Inbox(lost) = failed.unwrap_err() else { panic!("of the inbox") };
    assert_eq!(lost.kind(), ErrorKind::TransactionLost);
    assert_eq!((count(&conn, "inbox"), count(&conn, "points")), (0, 1));
}

#[test]
fn r11_a_mismatch_never_reaches_the_handler() {
    let (_file, mut conn, inbox) = set_up();
    let mut process = |payload: &[u8]| {
        inbox.blocking_process(&mut conn, &message("m").with_payload(payload), |tx| Ok(add_points(tx)?))
    };
    let first: Result<_, AppError> = process(b"1");
    assert!(first.unwrap().is_processed());
    let AppError::Inbox(mismatch) = process(b"2").unwrap_err() else { panic!("of the inbox") };
    assert_eq!(mismatch.kind(), ErrorKind::Mismatch);
    assert_eq!(count(&conn, "points"), 1);
}

#[test]
fn r06_process_gives_up_within_its_bounds_and_restores_the_timeout() {
    let (file, mut conn, inbox) = set_up();
    let other = file.foreign();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let inbox =
        inbox.with_wait(Duration::from_millis(20)).with_retry(RetryPolicy::default().with_max_attempts(2));
    for own_timeout in [60_000, 0] {
        conn.busy_timeout(Duration::from_millis(own_timeout)).unwrap();
        let started = std::time::Instant::now();
        let busy: Result<Outcome<()>, Error> = inbox.blocking_process(&mut conn, &message("m"), |_| Ok(()));
        assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
        assert!(started.elapsed() >= Duration::from_millis(40), "two runs of 20 ms");
        assert!(started.elapsed() < Duration::from_secs(5));
        let timeout: u64 =
            conn.query_row("PRAGMA busy_timeout", [], |row| row.get::<_, u32>(0)).unwrap().into();
        assert_eq!(timeout, own_timeout);
    }
}

static HANDLER_ASKED: AtomicBool = AtomicBool::new(false);

fn own_busy_handler(_times: i32) -> bool {
    HANDLER_ASKED.store(true, Ordering::SeqCst);
    false
}

#[test]
fn r15_the_callers_busy_handler_is_still_there_afterwards() {
    let (file, mut conn, inbox) = set_up();
    conn.busy_handler(Some(own_busy_handler as fn(i32) -> bool)).unwrap();
    let done: Result<_, Error> = inbox.blocking_process(&mut conn, &message("m"), |_| Ok(()));
    assert!(done.unwrap().is_processed());

    let other = file.foreign();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(conn.execute_batch("BEGIN IMMEDIATE").is_err());
    assert!(HANDLER_ASKED.load(Ordering::SeqCst));
}

static REFUSALS: AtomicUsize = AtomicUsize::new(0);

fn count_refusal(_times: i32) -> bool {
    REFUSALS.fetch_add(1, Ordering::SeqCst);
    false
}

#[test]
fn process_waits_for_a_writer_that_ends() {
    let (file, mut conn, inbox) = set_up();
    let inbox = inbox.with_retry(RetryPolicy::none());
    conn.busy_handler(Some(count_refusal as fn(i32) -> bool)).unwrap();
    let other = file.foreign();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| inbox.blocking_process(&mut conn, &message("m"), |_| Ok::<_, Error>(())));
        // Two refusals and no answer yet: the first one was waited over.
        while REFUSALS.load(Ordering::SeqCst) < 2 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished());
        other.execute_batch("COMMIT").unwrap();
        assert!(waiting.join().unwrap().unwrap().is_processed());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn blocking_and_async_share_a_file() {
    let (file, store) = File::new().await;
    let messages: Vec<_> = (0..40).map(|n| message(&n.to_string())).collect();
    let blocking = tokio::task::spawn_blocking({
        let (mut conn, inbox, messages) =
            (file.foreign(), Inbox::new(file.store(), consumer()), messages.clone());
        move || {
            let mut run = |message| -> Result<bool, AppError> {
                let outcome =
                    inbox.blocking_process(&mut conn, message, |tx| Ok::<_, AppError>(add_points(tx)?))?;
                Ok(outcome.is_processed())
            };
            messages.iter().filter(|message| run(message).unwrap()).count()
        }
    });
    let mut processed = 0;
    for message in messages.iter().rev() {
        let outcome = inbox(&store).process(message, async |tx| credit(tx).await).await.unwrap();
        processed += usize::from(outcome.is_processed());
    }
    assert_eq!(processed + blocking.await.unwrap(), 40);
    assert_eq!(count(&file.foreign(), "points"), 40);
}
