//! Workers of the deferred inbox on one file, killed while they hold leases.

#![cfg(feature = "rusqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use inbox_core::HandlerError;
use inbox_sqlite::{SqliteStore, SqliteTx};
use inbox_testkit::crash::{self, Effects, Engine};

struct Sqlite;

impl Engine for Sqlite {
    type Store = SqliteStore;

    async fn open(database: &str) -> SqliteStore {
        SqliteStore::new(database).unwrap()
    }

    async fn write_effect(tx: &mut SqliteTx, message: &str) -> Result<(), HandlerError> {
        let message = message.to_owned();
        tx.call(move |conn| conn.execute("INSERT INTO effect (message) VALUES (?1)", [message])).await?;
        Ok(())
    }

    async fn count_effects(store: &SqliteStore) -> Effects {
        let count = "SELECT count(*), count(DISTINCT message),
                            (SELECT count(*)
                               FROM (SELECT message FROM effect GROUP BY message HAVING count(*) > 1))
                       FROM effect";
        let (all, messages, doubled) = store
            .call(|conn| conn.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))))
            .await
            .unwrap_or_else(|error: rusqlite::Error| panic!("{error}"));
        Effects { all, messages, doubled }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_killed_workers_held_is_taken_over_and_done_once() {
    if crash::work_as_told::<Sqlite>().await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.sqlite");
    let store = SqliteStore::new(&file).unwrap();
    store.create_schema().await.unwrap();
    store.create_message_schema().await.unwrap();
    let effect = "CREATE TABLE effect (message TEXT NOT NULL) STRICT";
    store.call(move |conn| conn.execute_batch(effect)).await.unwrap();
    drop(store);

    let test = "what_killed_workers_held_is_taken_over_and_done_once";
    crash::survive_kills::<Sqlite>(test, file.to_str().unwrap()).await;
}
