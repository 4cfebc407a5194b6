//! `MySqlStore` as the suite needs it, on one of the servers.

mod damages;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{BoxError, Error};
use inbox_mysql::MySqlStore;
use inbox_testkit::mysql::{self as blocks, MySqlTx};
use inbox_testkit::servers::{Flavour, MySqlDatabase, MySqlServer, MySqlWanted, ServerError};
use inbox_testkit::suite::{Damage, DeferredStand, Fresh, KeepsMessages, Level, Need, Probe, Stand};
use sqlx::MySqlPool;

/// A server.
pub(crate) struct MySqlStand {
    wanted: MySqlWanted,
    server: MySqlServer,
    /// By database: a pool of the probe's own. It must not be the store's: a leaked transaction would
    /// be asked about itself.
    beside: Mutex<HashMap<String, MySqlPool>>,
}

impl MySqlStand {
    /// Starts, or joins, a server, which must be the product that was asked for.
    pub(crate) fn start(wanted: MySqlWanted) -> Result<Self, ServerError> {
        let server = block_on(MySqlServer::shared(wanted))?;
        assert_eq!(server.flavour(), wanted.flavour(), "{wanted}: the server says {}", server.version());
        Ok(Self { wanted, server, beside: Mutex::default() })
    }

    pub(crate) async fn fresh_database(&self) -> Result<MySqlDatabase, ServerError> {
        self.server.fresh_database().await
    }

    /// A store over empty tables in a database.
    pub(crate) async fn store_in(&self, database: &MySqlDatabase) -> Result<MySqlStore, BoxError> {
        let beside = blocks::pool(database.url()).await?;
        blocks::execute_beside(
            &beside,
            "DROP TABLE IF EXISTS inbox, inbox_messages, inbox_test_clock, effect",
        )
        .await?;
        blocks::create_effects(&beside).await?;
        let owner = MySqlStore::new(beside.clone())?;
        owner.create_schema().await?;
        owner.create_message_schema().await?;
        blocks::create_test_clock(&beside).await?;
        // Reading it in a transaction must not keep others from moving it.
        blocks::execute_beside(&beside, "ALTER TABLE inbox_test_clock ENGINE = MEMORY").await?;
        self.store_beside(database, beside).await
    }

    /// A store over the tables of an earlier one, emptied: faster, where they were not altered.
    #[allow(dead_code, reason = "only the broken stores take it")]
    pub(crate) async fn store_over_emptied(&self, database: &MySqlDatabase) -> Result<MySqlStore, BoxError> {
        let beside = blocks::pool(database.url()).await?;
        blocks::execute_beside(&beside, "DELETE FROM inbox; DELETE FROM inbox_messages; DELETE FROM effect; UPDATE inbox_test_clock SET shift_micros = 0").await?;
        self.store_beside(database, beside).await
    }

    async fn store_beside(
        &self,
        database: &MySqlDatabase,
        beside: MySqlPool,
    ) -> Result<MySqlStore, BoxError> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner).insert(database.name().to_owned(), beside);
        Ok(MySqlStore::new(blocks::pool(database.url()).await?)?.with_test_clock())
    }

    fn beside(&self, store: &MySqlStore) -> MySqlPool {
        let database = store.table().schema().as_str();
        let pools = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(database).expect("fresh() made it").clone()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

#[async_trait]
impl Stand for MySqlStand {
    type Store = MySqlStore;

    fn name(&self) -> String {
        self.wanted.stand().to_owned()
    }

    async fn fresh(&self) -> Result<Fresh<MySqlStore>, BoxError> {
        let database = self.fresh_database().await?;
        let store = self.store_in(&database).await?;
        Ok(Fresh::new(store, database))
    }

    async fn write_effect(&self, tx: &mut MySqlTx, name: &str) -> Result<(), BoxError> {
        blocks::write_effect(tx, name).await
    }

    async fn count_effects(&self, store: &MySqlStore, name: &str) -> Result<i64, BoxError> {
        blocks::count_effects(&self.beside(store), name).await
    }

    fn probe(&self) -> Option<&dyn Probe<MySqlStore>> {
        Some(self)
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<MySqlStore>> {
        Some(&KeepsMessages)
    }
}

#[async_trait]
impl Probe<MySqlStore> for MySqlStand {
    fn offers(&self) -> Vec<Need> {
        let mut offers = blocks::OFFERS.to_vec();
        offers.extend([Need::Schema, Need::SwallowedInserts, Need::Clock]);
        // MariaDB's performance schema is off by default.
        if self.server.flavour() == Flavour::MySql {
            offers.push(Need::OpenTransactions);
        }
        offers
    }

    fn levels(&self) -> Vec<Level> {
        blocks::LEVELS.to_vec()
    }

    async fn begin_at(&self, store: &MySqlStore, level: &Level) -> Result<MySqlTx, BoxError> {
        blocks::begin_at(store.pool(), level).await
    }

    async fn execute(&self, tx: &mut MySqlTx, sql: &str) -> Result<(), BoxError> {
        blocks::execute(tx, sql).await
    }

    async fn execute_beside(&self, store: &MySqlStore, sql: &str) -> Result<(), BoxError> {
        blocks::execute_beside(&self.beside(store), sql).await
    }

    async fn session(&self, tx: &mut MySqlTx) -> Result<String, BoxError> {
        blocks::session(tx).await
    }

    async fn is_waiting(&self, store: &MySqlStore, session: &str) -> Result<bool, BoxError> {
        blocks::is_waiting(&self.beside(store), session).await
    }

    async fn kill(&self, store: &MySqlStore, session: &str) -> Result<(), BoxError> {
        blocks::kill(&self.beside(store), session).await
    }

    async fn settings(&self, tx: &mut MySqlTx) -> Result<String, BoxError> {
        blocks::settings(tx).await
    }

    async fn open_transactions(&self, store: &MySqlStore) -> Result<u64, BoxError> {
        blocks::open_transactions(&self.beside(store)).await
    }

    fn aborting_sql(&self) -> &'static str {
        blocks::ABORTING_SQL
    }

    /// A foreign key that nothing satisfies: IGNORE turns its error into a warning.
    fn swallow_inserts(&self) -> Vec<String> {
        [
            "CREATE TABLE consumers (name VARBINARY(100) PRIMARY KEY) ENGINE = InnoDB",
            "SET foreign_key_checks = 0; \
             ALTER TABLE inbox ADD FOREIGN KEY (consumer) REFERENCES consumers (name); \
             SET foreign_key_checks = 1",
        ]
        .map(str::to_owned)
        .into()
    }

    async fn create_schema(&self, store: &MySqlStore) -> Result<(), Error> {
        store.create_schema().await
    }

    async fn verify(&self, store: &MySqlStore) -> Result<(), Error> {
        store.verify().await.map(drop)
    }

    async fn advance_clock(&self, store: &MySqlStore, by: Duration) -> Result<(), BoxError> {
        blocks::advance_test_clock(&self.beside(store), by).await
    }

    fn damages(&self) -> Vec<Damage> {
        damages::damages()
    }
}
