//! `PostgresStore` as the suite needs it, directly and behind PgBouncer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{BoxError, Error};
use inbox_postgres::PostgresStore;
use inbox_testkit::postgres::{self as blocks, PgTx};
use inbox_testkit::servers::{Database, PgBouncer, PgBouncerOptions, PostgresServer, ServerError, Wanted};
use inbox_testkit::suite::{Damage, DeferredStand, Fresh, KeepsMessages, Level, Need, Probe, Stand};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// A server, and a pooler in front of it if wanted.
pub(crate) struct PostgresStand {
    server: PostgresServer,
    pooler: Option<PgBouncer>,
    /// By database: a pool of the probe's own. It goes straight to the server, and must not be the
    /// store's: a leaked transaction would be asked about itself.
    beside: Mutex<HashMap<String, PgPool>>,
}

impl PostgresStand {
    /// Starts, or joins, the server of a version.
    pub(crate) fn start(wanted: Wanted) -> Result<Self, ServerError> {
        Ok(Self { server: block_on(PostgresServer::shared(wanted))?, pooler: None, beside: Mutex::default() })
    }

    /// Starts PgBouncer in transaction mode. Four server connections serve ten clients: the largest
    /// case has three transactions open at once.
    pub(crate) fn start_behind_pgbouncer() -> Result<Self, ServerError> {
        let options = PgBouncerOptions::new().setting("default_pool_size", "4");
        let mut stand = Self::start(Wanted::Any)?;
        stand.pooler = Some(block_on(PgBouncer::start(&stand.server, options))?);
        Ok(stand)
    }

    pub(crate) async fn fresh_database(&self) -> Result<Database, ServerError> {
        self.server.fresh_database().await
    }

    /// A store over empty tables in a database, whatever stood there before.
    pub(crate) async fn store_in(&self, database: &Database) -> Result<PostgresStore, BoxError> {
        let beside = blocks::pool(database.url()).await?;
        blocks::execute_beside(&beside, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await?;
        blocks::create_effects(&beside).await?;
        let owner = PostgresStore::new(beside.clone());
        owner.create_schema().await?;
        owner.create_message_schema().await?;
        blocks::create_test_clock(&beside).await?;
        self.store_beside(database, beside).await
    }

    /// A store over the tables of an earlier one, emptied: faster, where they were not altered.
    #[allow(dead_code, reason = "only the broken stores take it")]
    pub(crate) async fn store_over_emptied(&self, database: &Database) -> Result<PostgresStore, BoxError> {
        let beside = blocks::pool(database.url()).await?;
        blocks::execute_beside(&beside, "DELETE FROM inbox; DELETE FROM inbox_messages; DELETE FROM effect; UPDATE inbox_test_clock SET shift_micros = 0").await?;
        self.store_beside(database, beside).await
    }

    async fn store_beside(&self, database: &Database, beside: PgPool) -> Result<PostgresStore, BoxError> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner).insert(database.name().to_owned(), beside);
        let store = match &self.pooler {
            None => PostgresStore::new(blocks::pool(database.url()).await?),
            Some(pooler) => {
                let options: PgConnectOptions = pooler.url_of(database).parse()?;
                let pool = PgPoolOptions::new().max_connections(10);
                PostgresStore::new(pool.connect_with(options.statement_cache_capacity(0)).await?).unprepared()
            }
        };
        Ok(store.with_test_clock())
    }

    fn beside(&self, store: &PostgresStore) -> PgPool {
        let database = store.pool().connect_options().get_database().unwrap_or_default().to_owned();
        let pools = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(&database).expect("fresh() made it").clone()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

#[async_trait]
impl Stand for PostgresStand {
    type Store = PostgresStore;

    fn name(&self) -> String {
        match self.pooler {
            Some(_) => "pgbouncer".to_owned(),
            None => format!("postgres_{}", self.server.major()),
        }
    }

    async fn fresh(&self) -> Result<Fresh<PostgresStore>, BoxError> {
        let database = self.fresh_database().await?;
        let store = self.store_in(&database).await?;
        Ok(Fresh::new(store, database))
    }

    async fn write_effect(&self, tx: &mut PgTx, name: &str) -> Result<(), BoxError> {
        blocks::write_effect(tx, name).await
    }

    async fn count_effects(&self, store: &PostgresStore, name: &str) -> Result<i64, BoxError> {
        blocks::count_effects(&self.beside(store), name).await
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<PostgresStore>> {
        Some(&KeepsMessages)
    }

    fn probe(&self) -> Option<&dyn Probe<PostgresStore>> {
        Some(self)
    }
}

#[async_trait]
impl Probe<PostgresStore> for PostgresStand {
    fn offers(&self) -> Vec<Need> {
        let mut offers = blocks::OFFERS.to_vec();
        offers.extend([Need::Schema, Need::SwallowedInserts, Need::Clock]);
        // Behind a pooler a session is somebody else's next: its temporary tables, its kill and its
        // settings are not this client's.
        match self.pooler {
            Some(_) => offers.retain(|need| *need != Need::OpenTransactions),
            None => offers.push(Need::ShadowTable),
        }
        offers
    }

    fn levels(&self) -> Vec<Level> {
        blocks::LEVELS.to_vec()
    }

    async fn begin_at(&self, store: &PostgresStore, level: &Level) -> Result<PgTx, BoxError> {
        blocks::begin_at(store.pool(), level).await
    }

    async fn execute(&self, tx: &mut PgTx, sql: &str) -> Result<(), BoxError> {
        blocks::execute(tx, sql).await
    }

    async fn execute_beside(&self, store: &PostgresStore, sql: &str) -> Result<(), BoxError> {
        blocks::execute_beside(&self.beside(store), sql).await
    }

    async fn session(&self, tx: &mut PgTx) -> Result<String, BoxError> {
        blocks::session(tx).await
    }

    async fn is_waiting(&self, store: &PostgresStore, session: &str) -> Result<bool, BoxError> {
        blocks::is_waiting(&self.beside(store), session).await
    }

    async fn kill(&self, store: &PostgresStore, session: &str) -> Result<(), BoxError> {
        blocks::kill(&self.beside(store), session).await
    }

    async fn settings(&self, tx: &mut PgTx) -> Result<String, BoxError> {
        blocks::settings(tx).await
    }

    async fn open_transactions(&self, store: &PostgresStore) -> Result<u64, BoxError> {
        blocks::open_transactions(&self.beside(store)).await
    }

    async fn advance_clock(&self, store: &PostgresStore, by: Duration) -> Result<(), BoxError> {
        blocks::advance_test_clock(&self.beside(store), by).await
    }

    fn aborting_sql(&self) -> &'static str {
        blocks::ABORTING_SQL
    }

    fn swallow_inserts(&self) -> Vec<String> {
        [
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER swallow BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION swallow()",
        ]
        .map(str::to_owned)
        .into()
    }

    fn shadow_table(&self) -> &'static str {
        "CREATE TEMPORARY TABLE inbox (LIKE public.inbox INCLUDING ALL)"
    }

    async fn create_schema(&self, store: &PostgresStore) -> Result<(), Error> {
        store.create_schema().await
    }

    async fn verify(&self, store: &PostgresStore) -> Result<(), Error> {
        store.verify().await.map(drop)
    }

    fn damages(&self) -> Vec<Damage> {
        damages()
    }
}

/// Tables that were altered to be wrong, each in one way.
fn damages() -> Vec<Damage> {
    const DROP_KEY: &str = "ALTER TABLE inbox DROP CONSTRAINT inbox_pkey";
    vec![
        Damage::new("missing_unique_key", [DROP_KEY]),
        Damage::new(
            "wider_unique_key",
            [DROP_KEY, "ALTER TABLE inbox ADD PRIMARY KEY (consumer, message_id, registered_at)"],
        ),
        Damage::new("narrower_unique_key", [DROP_KEY, "ALTER TABLE inbox ADD PRIMARY KEY (message_id)"]),
        Damage::new(
            "partial_unique_key",
            [
                DROP_KEY,
                "CREATE UNIQUE INDEX partial_key ON inbox (consumer, message_id) WHERE event_type <> 'x'",
            ],
        ),
        Damage::new(
            "deferrable_unique_key",
            [DROP_KEY, "ALTER TABLE inbox ADD PRIMARY KEY (consumer, message_id) DEFERRABLE"],
        ),
        Damage::new(
            "unique_expression",
            [DROP_KEY, "CREATE UNIQUE INDEX folded ON inbox (consumer, lower(message_id))"],
        ),
        Damage::new("further_unique_index", ["CREATE UNIQUE INDEX extra ON inbox (message_id)"]),
        Damage::new("nullable_column", ["ALTER TABLE inbox ALTER event_type DROP NOT NULL"]),
        Damage::new("narrow_column", ["ALTER TABLE inbox ALTER message_id TYPE varchar(64)"]),
        Damage::new("padded_column", ["ALTER TABLE inbox ALTER message_id TYPE char(255)"]),
        Damage::new(
            "folding_collation",
            [
                "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
                "ALTER TABLE inbox ALTER message_id TYPE text COLLATE folded",
            ],
        ),
        Damage::new("missing_column", ["ALTER TABLE inbox DROP COLUMN fingerprint"]),
        Damage::new("wrong_type", ["ALTER TABLE inbox ALTER registered_at TYPE timestamp"]),
        Damage::new("missing_default", ["ALTER TABLE inbox ALTER registered_at DROP DEFAULT"]),
        Damage::new("required_extra_column", ["ALTER TABLE inbox ADD COLUMN tenant text NOT NULL"]),
        Damage::new("check_constraint", ["ALTER TABLE inbox ADD CHECK (event_type <> 'x')"]),
        Damage::new(
            "foreign_key",
            [
                "CREATE TABLE consumers (name text COLLATE \"C\" PRIMARY KEY)",
                "ALTER TABLE inbox ADD FOREIGN KEY (consumer) REFERENCES consumers (name)",
            ],
        ),
        Damage::new(
            "trigger",
            [
                "CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
                "CREATE TRIGGER pass BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION pass()",
            ],
        ),
        Damage::new("rule", ["CREATE RULE nothing AS ON INSERT TO inbox DO INSTEAD NOTHING"]),
        Damage::new("row_security", ["ALTER TABLE inbox ENABLE ROW LEVEL SECURITY"]),
        Damage::new("unlogged_table", ["ALTER TABLE inbox SET UNLOGGED"]),
        Damage::new(
            "view",
            ["ALTER TABLE inbox RENAME TO hidden", "CREATE VIEW inbox AS SELECT * FROM hidden"],
        ),
        Damage::new(
            "partitioned_table",
            [
                "ALTER TABLE inbox RENAME TO old",
                "CREATE TABLE inbox (LIKE old INCLUDING DEFAULTS, PRIMARY KEY (consumer, message_id)) \
                 PARTITION BY HASH (message_id)",
            ],
        ),
        Damage::new("inherited_table", ["CREATE TABLE child () INHERITS (inbox)"]),
    ]
}
