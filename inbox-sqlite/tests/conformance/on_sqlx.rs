//! The stand of the store on sqlx.

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{BoxError, Error, duration_micros};
use inbox_sqlite::on_sqlx::SqlxSqliteStore;
use inbox_testkit::suite::{Damage, DeferredStand, Fresh, KeepsMessages, Need, Probe, Stand};
use sqlx::sqlite::{Sqlite, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, Transaction};

use crate::common;

pub(crate) struct SqlxStand {
    pub(crate) in_memory: bool,
}

#[async_trait]
impl Stand for SqlxStand {
    type Store = SqlxSqliteStore;

    fn name(&self) -> String {
        if self.in_memory { "sqlx_memory" } else { "sqlx_file" }.to_owned()
    }

    async fn fresh(&self) -> Result<Fresh<SqlxSqliteStore>, BoxError> {
        let folder = tempfile::tempdir()?;
        let pool = match self.in_memory {
            true => {
                SqlitePoolOptions::new()
                    .max_connections(1)
                    .idle_timeout(None)
                    .max_lifetime(None)
                    .connect("sqlite::memory:")
                    .await?
            }
            false => {
                let options = SqliteConnectOptions::new()
                    .filename(folder.path().join("inbox.db"))
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal);
                SqlitePoolOptions::new().connect_with(options).await?
            }
        };
        let store = SqlxSqliteStore::new(pool).with_test_clock();
        store.create_schema().await?;
        store.create_message_schema().await?;
        sqlx::raw_sql(common::EFFECT).execute(store.pool()).await?;
        sqlx::raw_sql(common::CLOCK).execute(store.pool()).await?;
        Ok(Fresh::new(store, folder))
    }

    async fn write_effect(&self, tx: &mut Transaction<'static, Sqlite>, name: &str) -> Result<(), BoxError> {
        sqlx::query(common::WRITE_EFFECT).bind(name).execute(&mut **tx).await?;
        Ok(())
    }

    async fn count_effects(&self, store: &SqlxSqliteStore, name: &str) -> Result<i64, BoxError> {
        Ok(sqlx::query_scalar(common::COUNT_EFFECTS).bind(name).fetch_one(store.pool()).await?)
    }

    fn probe(&self) -> Option<&dyn Probe<SqlxSqliteStore>> {
        Some(self)
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<SqlxSqliteStore>> {
        Some(&KeepsMessages)
    }
}

/// A connection that is not of the pool, and does not wait.
async fn beside(store: &SqlxSqliteStore) -> sqlx::Result<SqliteConnection> {
    let options = SqliteConnectOptions::clone(&store.pool().connect_options());
    options.busy_timeout(Duration::ZERO).connect().await
}

#[async_trait]
impl Probe<SqlxSqliteStore> for SqlxStand {
    fn offers(&self) -> Vec<Need> {
        let mut offers = common::OFFERS.to_vec();
        if !self.in_memory {
            offers.push(Need::OpenTransactions);
        }
        offers
    }

    async fn execute(&self, tx: &mut Transaction<'static, Sqlite>, sql: &str) -> Result<(), BoxError> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **tx).await?;
        Ok(())
    }

    async fn execute_beside(&self, store: &SqlxSqliteStore, sql: &str) -> Result<(), BoxError> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(store.pool()).await?;
        Ok(())
    }

    async fn advance_clock(&self, store: &SqlxSqliteStore, by: Duration) -> Result<(), BoxError> {
        sqlx::query(common::ADVANCE_CLOCK).bind(duration_micros(by)).execute(store.pool()).await?;
        Ok(())
    }

    async fn settings(&self, tx: &mut Transaction<'static, Sqlite>) -> Result<String, BoxError> {
        let mut values = Vec::new();
        for sql in common::SETTINGS {
            let row = sqlx::query(sql).fetch_one(&mut **tx).await?;
            values.push(row.try_get_unchecked::<String, _>(0)?);
        }
        Ok(format!("{values:?}"))
    }

    /// SQLite has one writer, so there is one if nobody else can become it.
    async fn open_transactions(&self, store: &SqlxSqliteStore) -> Result<u64, BoxError> {
        let mut conn = beside(store).await?;
        let open = match conn.begin_with("BEGIN IMMEDIATE").await {
            Ok(tx) => {
                tx.rollback().await?;
                0
            }
            Err(busy) if inbox_sqlite::on_sqlx::is_retryable(&busy) => 1,
            Err(error) => return Err(error.into()),
        };
        conn.close().await?;
        Ok(open)
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

    async fn create_schema(&self, store: &SqlxSqliteStore) -> Result<(), Error> {
        store.create_schema().await
    }

    async fn verify(&self, store: &SqlxSqliteStore) -> Result<(), Error> {
        store.verify().await.map(drop)
    }

    fn damages(&self) -> Vec<Damage> {
        common::damages()
    }
}
