//! Workers of the deferred inbox on PostgreSQL, killed while they hold leases.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use inbox_core::HandlerError;
use inbox_postgres::PostgresStore;
use inbox_testkit::crash::{self, Effects, Engine};
use inbox_testkit::postgres::{self as blocks, PgTx};
use inbox_testkit::servers::{PostgresServer, Wanted, skip_requested};

struct Postgres;

impl Engine for Postgres {
    type Store = PostgresStore;

    async fn open(database: &str) -> PostgresStore {
        PostgresStore::new(blocks::pool(database).await.unwrap())
    }

    async fn write_effect(tx: &mut PgTx, message: &str) -> Result<(), HandlerError> {
        sqlx::query("INSERT INTO effect (name) VALUES ($1)").bind(message).execute(&mut **tx).await?;
        Ok(())
    }

    async fn count_effects(store: &PostgresStore) -> Effects {
        let count = "SELECT count(*), count(DISTINCT name),
                            (SELECT count(*)
                               FROM (SELECT name FROM effect GROUP BY name HAVING count(*) > 1) AS doubled)
                       FROM effect";
        let (all, messages, doubled) = sqlx::query_as(count).fetch_one(store.pool()).await.unwrap();
        Effects { all, messages, doubled }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_killed_workers_held_is_taken_over_and_done_once() {
    if crash::work_as_told::<Postgres>().await {
        return;
    }
    if skip_requested(&Wanted::Any.stand()) {
        eprintln!("skipped, as INBOX_TEST_SKIP asks");
        return;
    }
    let server = PostgresServer::shared(Wanted::Any).await.unwrap();
    let database = server.fresh_database().await.unwrap();
    let store = Postgres::open(database.url()).await;
    store.create_schema().await.unwrap();
    store.create_message_schema().await.unwrap();
    blocks::create_effects(store.pool()).await.unwrap();

    let test = "what_killed_workers_held_is_taken_over_and_done_once";
    crash::survive_kills::<Postgres>(test, database.url()).await;
}
