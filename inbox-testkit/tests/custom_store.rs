//! The conformance suite on a store that is not ours, as its author would call it.
//!
//! [`ProcessedMessagesStand`] is all that the suite asks for. [`Probed`] is the same store with a
//! probe, so that levels, waits and kills are checked too.

#[path = "custom_store/store.rs"]
mod store;

use std::convert::Infallible;
use std::process::ExitCode;

use async_trait::async_trait;
use inbox_core::BoxError;
use inbox_testkit::postgres::{self as blocks, PgTx};
use inbox_testkit::servers::{PostgresServer, Wanted};
use inbox_testkit::suite::{Fresh, Level, Need, Probe, Stand, Suite};
use sqlx::PgPool;
use store::{ProcessedMessages, SCHEMA};

fn main() -> ExitCode {
    Suite::from_args()
        .stand("postgres", || Ok::<_, Infallible>(ProcessedMessagesStand))
        .stand("postgres", || Ok::<_, Infallible>(Probed(ProcessedMessagesStand)))
        .run()
}

/// With one stand that needs nothing to start, this is a whole test target.
#[allow(dead_code, reason = "shown to compile: it is another `main`")]
mod one_macro {
    inbox_testkit::conformance!(super::ProcessedMessagesStand);
}

// region: stand
struct ProcessedMessagesStand;

#[async_trait]
impl Stand for ProcessedMessagesStand {
    type Store = ProcessedMessages;

    fn name(&self) -> String {
        "processed_messages".to_owned()
    }

    async fn fresh(&self) -> Result<Fresh<ProcessedMessages>, BoxError> {
        let server = PostgresServer::shared(Wanted::Any).await?;
        let database = server.fresh_database().await?;
        let pool = PgPool::connect(database.url()).await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        sqlx::raw_sql("CREATE TABLE app.points (reason text)").execute(&pool).await?;
        Ok(Fresh::new(ProcessedMessages { pool }, database))
    }

    async fn write_effect(&self, tx: &mut PgTx, name: &str) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO app.points VALUES ($1)").bind(name).execute(&mut **tx).await?;
        Ok(())
    }

    async fn count_effects(&self, store: &ProcessedMessages, name: &str) -> Result<i64, BoxError> {
        let count = sqlx::query_scalar("SELECT count(*) FROM app.points WHERE reason = $1").bind(name);
        Ok(count.fetch_one(&store.pool).await?)
    }
}
// endregion: stand

/// The same stand with a probe: on PostgreSQL the testkit has its parts.
struct Probed(ProcessedMessagesStand);

#[async_trait]
impl Stand for Probed {
    type Store = ProcessedMessages;

    fn name(&self) -> String {
        "processed_messages_probed".to_owned()
    }

    async fn fresh(&self) -> Result<Fresh<ProcessedMessages>, BoxError> {
        self.0.fresh().await
    }

    async fn write_effect(&self, tx: &mut PgTx, name: &str) -> Result<(), BoxError> {
        self.0.write_effect(tx, name).await
    }

    async fn count_effects(&self, store: &ProcessedMessages, name: &str) -> Result<i64, BoxError> {
        self.0.count_effects(store, name).await
    }

    fn probe(&self) -> Option<&dyn Probe<ProcessedMessages>> {
        Some(self)
    }
}

/// A connection that is not the store's: asked through the pool it leaked into, an open transaction
/// would not be seen.
fn beside(store: &ProcessedMessages) -> PgPool {
    PgPool::connect_lazy_with((*store.pool.connect_options()).clone())
}

#[async_trait]
impl Probe<ProcessedMessages> for Probed {
    fn offers(&self) -> Vec<Need> {
        [&blocks::OFFERS[..], &[Need::SwallowedInserts, Need::ShadowTable]].concat()
    }

    fn levels(&self) -> Vec<Level> {
        blocks::LEVELS.to_vec()
    }

    async fn begin_at(&self, store: &ProcessedMessages, level: &Level) -> Result<PgTx, BoxError> {
        blocks::begin_at(&store.pool, level).await
    }

    async fn execute(&self, tx: &mut PgTx, sql: &str) -> Result<(), BoxError> {
        blocks::execute(tx, sql).await
    }

    async fn execute_beside(&self, store: &ProcessedMessages, sql: &str) -> Result<(), BoxError> {
        blocks::execute_beside(&beside(store), sql).await
    }

    async fn session(&self, tx: &mut PgTx) -> Result<String, BoxError> {
        blocks::session(tx).await
    }

    async fn is_waiting(&self, store: &ProcessedMessages, session: &str) -> Result<bool, BoxError> {
        blocks::is_waiting(&beside(store), session).await
    }

    async fn kill(&self, store: &ProcessedMessages, session: &str) -> Result<(), BoxError> {
        blocks::kill(&beside(store), session).await
    }

    async fn settings(&self, tx: &mut PgTx) -> Result<String, BoxError> {
        blocks::settings(tx).await
    }

    async fn open_transactions(&self, store: &ProcessedMessages) -> Result<u64, BoxError> {
        blocks::open_transactions(&beside(store)).await
    }

    fn table(&self) -> &'static str {
        "app.processed_messages"
    }

    fn aborting_sql(&self) -> &'static str {
        blocks::ABORTING_SQL
    }

    fn swallow_inserts(&self) -> Vec<String> {
        [
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER swallow BEFORE INSERT ON app.processed_messages
             FOR EACH ROW EXECUTE FUNCTION swallow()",
        ]
        .map(str::to_owned)
        .into()
    }

    fn shadow_table(&self) -> &'static str {
        "CREATE TEMPORARY TABLE processed_messages (LIKE app.processed_messages INCLUDING ALL)"
    }
}
