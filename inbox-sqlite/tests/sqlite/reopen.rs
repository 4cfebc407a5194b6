//! A connection that is of no use any more is opened anew: its file is another one, or something of it leaked.

use std::fs;

use inbox_core::{Error, ErrorKind, Outcome, RetryPolicy};
use inbox_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::stand::{AppError, File, POINTS, credit, credits, inbox, is_registered, message};

/// Leaves a statement on the writer that reads for ever, then has another process write.
async fn leak_a_statement(file: &File, store: &SqliteStore) {
    let leaking = store.call(|conn| {
        let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
        let mut rows = statement.query([])?;
        rows.next()?;
        std::mem::forget(rows);
        std::mem::forget(statement);
        Ok::<_, rusqlite::Error>(())
    });
    leaking.await.unwrap();
    file.foreign().execute_batch("INSERT INTO points VALUES (10)").unwrap();
}

fn of_the_inbox(answer: Result<Outcome<()>, AppError>) -> Error {
    match answer.unwrap_err() {
        AppError::Inbox(error) => error,
        other => panic!("of the inbox: {other}"),
    }
}

#[tokio::test]
async fn a_leaked_statement_costs_one_attempt() {
    let (file, store) = File::new().await;
    leak_a_statement(&file, &store).await;
    let once = inbox(&store).with_retry(RetryPolicy::none());

    let error = of_the_inbox(once.process(&message("m"), async |tx| credit(tx).await).await);
    assert_eq!(error.kind(), ErrorKind::Retryable, "{error:?}");

    let again = once.process(&message("m"), async |tx| credit(tx).await).await.unwrap();
    assert_eq!(again, Outcome::Processed(()));
    assert_eq!(credits(&store).await, 2);
}

#[tokio::test]
async fn a_leaked_statement_on_the_only_connection_is_told() {
    let (file, store) = File::new().await;
    drop(store);
    let store = SqliteStore::from_connection(Connection::open(file.path()).unwrap()).unwrap();
    leak_a_statement(&file, &store).await;

    let error = of_the_inbox(inbox(&store).process(&message("m"), async |tx| credit(tx).await).await);

    assert_eq!(error.kind(), ErrorKind::Backend, "{error:?}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("statement that was never finished"), "{source}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_replaced_file_is_opened_anew() {
    let (file, store) = File::new().await;
    let inbox = inbox(&store);
    inbox.process(&message("a"), async |tx| credit(tx).await).await.unwrap();
    assert!(is_registered(&store, "a").await);
    let backup = File::empty();
    let restored = backup.store();
    restored.create_schema().await.unwrap();
    restored.call(|conn| conn.execute_batch(POINTS)).await.unwrap();
    drop(restored);

    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.path().display()));
    }
    fs::rename(backup.path(), file.path()).unwrap();

    assert!(!is_registered(&store, "a").await, "the reader reads the new file");
    inbox.process(&message("b"), async |tx| credit(tx).await).await.unwrap();
    let count = |sql| file.foreign().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM points"), 1);
    assert_eq!(count("SELECT count(*) FROM inbox WHERE message_id = 'b'"), 1);
    // Closing the old file has not taken the new one's log from the reader.
    assert!(is_registered(&store, "b").await);
}

#[cfg(unix)]
#[tokio::test]
async fn a_removed_file_is_unavailable_and_not_made_anew() {
    let (file, store) = File::new().await;
    let once = inbox(&store).with_retry(RetryPolicy::none());
    once.process(&message("a"), async |tx| credit(tx).await).await.unwrap();

    fs::remove_file(file.path()).unwrap();

    let error = of_the_inbox(once.process(&message("b"), async |tx| credit(tx).await).await);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(store.verify().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(!file.path().exists());
}
