//! What `verify` says of a pool; what it says of a table is in the conformance suite and the tests of
//! the other driver (R16).

use inbox_core::ErrorKind;
use inbox_sqlite::on_sqlx::SqlxSqliteStore;
use sqlx::sqlite::{SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::stand::{File, in_memory, inbox, kind, message};

#[tokio::test]
async fn r16_a_missing_table_is_refused_by_name() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let error = SqlxSqliteStore::open(pool.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("there is no table main.inbox: run create_schema"), "{error}");

    let store = SqlxSqliteStore::new(pool);
    let found = inbox(&store).find(message("m").id()).await;
    assert_eq!(kind(found), Some(ErrorKind::Schema));
    assert_eq!(kind(inbox(&store).forget(message("m").id()).await), Some(ErrorKind::Schema));
}

#[tokio::test]
async fn b56_a_database_in_memory_of_many_connections_is_refused() {
    let pool = SqlitePoolOptions::new().max_connections(2).connect("sqlite::memory:").await.unwrap();
    let store = SqlxSqliteStore::new(pool);
    store.create_schema().await.unwrap();
    let error = store.verify().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("max_connections(1)"), "{error}");
}

#[tokio::test]
async fn b56_a_pool_that_may_close_a_database_in_memory_is_warned_of() {
    assert!(in_memory().await.verify().await.unwrap().findings().is_empty());
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let store = SqlxSqliteStore::new(pool);
    store.create_schema().await.unwrap();
    let report = store.verify().await.unwrap();
    assert!(report.warnings().any(|warning| warning.contains("idle_timeout(None)")), "{report:?}");
}

#[tokio::test]
async fn r16_what_weakens_durability_or_sharing_is_a_warning() {
    let (file, store) = File::new().await;
    assert!(store.verify().await.unwrap().findings().is_empty());
    store.pool().close().await;
    for (options, expected) in [
        (file.options().synchronous(SqliteSynchronous::Normal), "synchronous is below FULL"),
        (file.options().journal_mode(SqliteJournalMode::Delete), "journal_mode is DELETE"),
    ] {
        let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
        let report = SqlxSqliteStore::new(pool.clone()).verify().await.unwrap();
        pool.close().await;
        assert!(report.warnings().any(|warning| warning.contains(expected)), "{expected}: {report:?}");
    }
}

#[tokio::test]
async fn r16_a_read_only_pool_is_refused() {
    let (file, _store) = File::new().await;
    let pool = SqlitePoolOptions::new().connect_with(file.options().read_only(true)).await.unwrap();
    let error = SqlxSqliteStore::new(pool).verify().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test]
async fn a_missing_file_is_unavailable() {
    let (file, _store) = File::new().await;
    let missing = file.options().get_filename().with_extension("missing");
    let options = file.options().filename(missing);
    let store = SqlxSqliteStore::new(SqlitePoolOptions::new().connect_lazy_with(options));
    assert_eq!(kind(store.verify().await), Some(ErrorKind::Unavailable));
}
