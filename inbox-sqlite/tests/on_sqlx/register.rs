//! Registering in transactions that the caller began.

use std::error::Error as _;
use std::time::{Duration, Instant};

use inbox_core::{ErrorKind, Registered};
use inbox_sqlite::on_sqlx::{is_retryable, kind_of};

use crate::stand::{File, assert_sound, credit, inbox, message, sql};

/// Reads in a deferred transaction, lets `meanwhile` happen beside it, then registers; the kind and
/// the code of the error.
async fn upgrade(meanwhile: &str) -> (ErrorKind, String) {
    let (file, store) = File::new().await;
    let mut tx = store.pool().begin().await.unwrap();
    sql(&mut tx, "SELECT count(*) FROM inbox").await.unwrap();
    let mut other = file.foreign().await;
    sql(&mut other, meanwhile).await.unwrap();

    let error = inbox(&store).register(tx, &message("m")).await.unwrap_err();

    let source = error.source().and_then(|source| source.downcast_ref::<sqlx::Error>()).unwrap();
    assert!(error.is_retryable() && is_retryable(source));
    assert_eq!(kind_of(source), error.kind());
    let code = source.as_database_error().and_then(|error| error.code()).unwrap().into_owned();
    let _ = sql(&mut other, "ROLLBACK").await;

    // Run again from its begin, it is new.
    let again = store.pool().begin().await.unwrap();
    assert!(matches!(inbox(&store).register(again, &message("m")).await.unwrap(), Registered::New(_)));
    assert_sound(&store).await;
    (error.kind(), code)
}

#[tokio::test]
async fn b51_a_transaction_that_has_read_fails_at_once_and_5_and_517_stay_apart() {
    let started = Instant::now();
    let old_snapshot = upgrade("INSERT INTO points VALUES (1)").await;
    let locked = upgrade("BEGIN IMMEDIATE").await;
    assert_eq!(old_snapshot, (ErrorKind::Retryable, "517".to_owned()));
    assert_eq!(locked, (ErrorKind::Busy, "5".to_owned()));
    // The connection's own timeout is 5 s.
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_savepoint_inside_the_guard_is_the_callers() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut tx = inbox.guard(store.pool().begin().await.unwrap()).await.unwrap();
    sql(&mut tx, "SAVEPOINT mine").await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    sql(&mut tx, "RELEASE mine").await.unwrap();
    credit(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(crate::stand::is_registered(&store, "m").await);
}

/// Two drivers, one table: what one registers is the other's duplicate, with the same original.
#[cfg(feature = "rusqlite")]
#[tokio::test]
async fn what_one_driver_registered_is_a_duplicate_to_the_other() {
    use inbox_core::{Inbox, Outcome};
    use inbox_sqlite::SqliteStore;

    let (file, store) = File::new().await;
    let other =
        Inbox::new(SqliteStore::open(file.options().get_filename()).await.unwrap(), crate::stand::consumer());
    let of_sqlx = inbox(&store);
    let message = message("m").with_payload(b"1");
    let handler = async |_: &mut _| Ok::<_, inbox_core::Error>(());
    assert_eq!(of_sqlx.process(&message, handler).await.unwrap(), Outcome::Processed(()));

    let seen = other.process(&message, async |_| Ok::<_, inbox_core::Error>(())).await.unwrap();

    let Outcome::Duplicate(original) = seen else { panic!("{seen:?}") };
    assert_eq!(of_sqlx.find(message.id()).await.unwrap(), Some(original));
}
