//! The stand of the store on rusqlite.

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{BoxError, Error, duration_micros};
use inbox_sqlite::{SqliteStore, SqliteTx};
use inbox_testkit::suite::{Damage, DeferredStand, Fresh, KeepsMessages, Need, Probe, Stand};
use rusqlite::types::Value;

use crate::common;

pub(crate) struct SqliteStand {
    pub(crate) in_memory: bool,
}

#[async_trait]
impl Stand for SqliteStand {
    type Store = SqliteStore;

    fn name(&self) -> String {
        if self.in_memory { "sqlite_memory" } else { "sqlite_file" }.to_owned()
    }

    async fn fresh(&self) -> Result<Fresh<SqliteStore>, BoxError> {
        let folder = tempfile::tempdir()?;
        let store = match self.in_memory {
            true => SqliteStore::in_memory()?,
            false => SqliteStore::new(folder.path().join("inbox.db"))?,
        };
        let store = store.with_test_clock();
        store.create_schema().await?;
        store.create_message_schema().await?;
        store.call(|conn| conn.execute_batch(common::EFFECT)).await?;
        store.call(|conn| conn.execute_batch(common::CLOCK)).await?;
        Ok(Fresh::new(store, folder))
    }

    async fn write_effect(&self, tx: &mut SqliteTx, name: &str) -> Result<(), BoxError> {
        let name = name.to_owned();
        Ok(tx.call(move |conn| conn.execute(common::WRITE_EFFECT, [name]).map(drop)).await?)
    }

    async fn count_effects(&self, store: &SqliteStore, name: &str) -> Result<i64, BoxError> {
        let name = name.to_owned();
        Ok(store.call(move |conn| conn.query_row(common::COUNT_EFFECTS, [name], |row| row.get(0))).await?)
    }

    fn probe(&self) -> Option<&dyn Probe<SqliteStore>> {
        Some(self)
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<SqliteStore>> {
        Some(&KeepsMessages)
    }
}

#[async_trait]
impl Probe<SqliteStore> for SqliteStand {
    fn offers(&self) -> Vec<Need> {
        common::OFFERS.to_vec()
    }

    async fn execute(&self, tx: &mut SqliteTx, sql: &str) -> Result<(), BoxError> {
        let sql = sql.to_owned();
        Ok(tx.call(move |conn| conn.execute_batch(&sql)).await?)
    }

    async fn execute_beside(&self, store: &SqliteStore, sql: &str) -> Result<(), BoxError> {
        let sql = sql.to_owned();
        Ok(store.call(move |conn| conn.execute_batch(&sql)).await?)
    }

    async fn advance_clock(&self, store: &SqliteStore, by: Duration) -> Result<(), BoxError> {
        let micros = duration_micros(by);
        Ok(store.call(move |conn| conn.execute(common::ADVANCE_CLOCK, [micros]).map(drop)).await?)
    }

    async fn settings(&self, tx: &mut SqliteTx) -> Result<String, BoxError> {
        let read = |conn: &rusqlite::Connection| -> rusqlite::Result<String> {
            let values = common::SETTINGS.map(|sql| conn.query_row(sql, [], |row| row.get::<_, Value>(0)));
            Ok(format!("{:?}", values.into_iter().collect::<Result<Vec<_>, _>>()?))
        };
        Ok(tx.call(read).await?)
    }

    fn aborting_sql(&self) -> &'static str {
        common::ABORTING_SQL
    }

    fn swallow_inserts(&self) -> Vec<String> {
        vec![common::SWALLOW_INSERTS.to_owned()]
    }

    fn shadow_table(&self) -> &'static str {
        common::SHADOW_TABLE
    }

    fn table(&self) -> &'static str {
        common::TABLE
    }

    async fn create_schema(&self, store: &SqliteStore) -> Result<(), Error> {
        store.create_schema().await
    }

    async fn verify(&self, store: &SqliteStore) -> Result<(), Error> {
        store.verify().await.map(drop)
    }

    fn damages(&self) -> Vec<Damage> {
        common::damages()
    }
}
