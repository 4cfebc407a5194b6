//! Workers of the deferred inbox on MariaDB and on MySQL, killed while they hold leases.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use inbox_core::HandlerError;
use inbox_mysql::MySqlStore;
use inbox_testkit::crash::{self, Effects, Engine};
use inbox_testkit::mysql::{self as blocks, MySqlTx};
use inbox_testkit::servers::{MySqlServer, MySqlWanted, skip_requested};

struct MySql;

impl Engine for MySql {
    type Store = MySqlStore;

    async fn open(database: &str) -> MySqlStore {
        MySqlStore::new(blocks::pool(database).await.unwrap()).unwrap()
    }

    async fn write_effect(tx: &mut MySqlTx, message: &str) -> Result<(), HandlerError> {
        let insert = sqlx::query("INSERT INTO effect (name) VALUES (?)").bind(message.as_bytes());
        insert.execute(&mut **tx).await?;
        Ok(())
    }

    async fn count_effects(store: &MySqlStore) -> Effects {
        let count = "SELECT count(*), count(DISTINCT name),
                            (SELECT count(*)
                               FROM (SELECT name FROM effect GROUP BY name HAVING count(*) > 1) AS doubled)
                       FROM effect";
        let (all, messages, doubled) = sqlx::query_as(count).fetch_one(store.pool()).await.unwrap();
        Effects { all, messages, doubled }
    }
}

/// `test` is the name of the test that calls it.
async fn survive_kills_on(wanted: MySqlWanted, test: &str) {
    if crash::work_as_told::<MySql>().await {
        return;
    }
    if skip_requested(wanted.stand()) {
        eprintln!("skipped, as INBOX_TEST_SKIP asks");
        return;
    }
    let server = MySqlServer::shared(wanted).await.unwrap();
    let database = server.fresh_database().await.unwrap();
    let store = MySql::open(database.url()).await;
    store.create_schema().await.unwrap();
    store.create_message_schema().await.unwrap();
    blocks::create_effects(store.pool()).await.unwrap();

    crash::survive_kills::<MySql>(test, database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_killed_workers_held_on_mariadb_is_taken_over_and_done_once() {
    let test = "what_killed_workers_held_on_mariadb_is_taken_over_and_done_once";
    survive_kills_on(MySqlWanted::MariaDb10_11, test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_killed_workers_held_on_mysql_is_taken_over_and_done_once() {
    let test = "what_killed_workers_held_on_mysql_is_taken_over_and_done_once";
    survive_kills_on(MySqlWanted::MySql, test).await;
}
