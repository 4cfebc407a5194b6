//! [`BrokenStand`]: a healthy stand with a broken store on it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Administer, Begin, BoxError, Error};
use inbox_testkit::suite::{Damage, DeferredStand, Fresh, Level, Need, Probe, Stand};

use crate::expected::Expected;

/// An engine's healthy stand, its broken store, and the fault in it.
#[async_trait]
pub(crate) trait Engine: Send + Sync + 'static {
    type Tx: Send + 'static;
    type Inner: Begin<Tx = Self::Tx> + Administer + 'static;
    type Healthy: Stand<Store = Self::Inner> + Probe<Self::Inner>;
    type Broken: Begin<Tx = Self::Tx> + Administer + AsRef<Self::Inner> + 'static;

    fn healthy(&self) -> &Self::Healthy;

    fn fault(&self) -> String;

    /// The server's name, as a table's lines have it.
    fn server(&self) -> &'static str;

    fn expected(&self) -> Expected;

    /// What the broken store answers of its deferred inbox, where the engine has one with faults.
    fn deferred(&self) -> Option<&dyn DeferredStand<Self::Broken>> {
        None
    }

    /// Whether a case runs: one that the fault cannot concern only takes time.
    fn runs(&self, case: &str) -> bool;

    /// How long a case may take: one of a broken store may wait for ever.
    fn limit(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn verifies_anything(&self) -> bool;

    /// The cases run one after the other in one database, emptied before each, which is faster than
    /// a database each.
    async fn emptied(&self) -> Result<Self::Broken, BoxError>;

    async fn execute_beside(&self, store: &Self::Broken, sql: &str) -> Result<(), BoxError> {
        self.healthy().execute_beside(store.as_ref(), sql).await
    }

    async fn create_schema(&self, store: &Self::Broken) -> Result<(), Error> {
        self.healthy().create_schema(store.as_ref()).await
    }

    async fn verify(&self, store: &Self::Broken) -> Result<(), Error> {
        self.healthy().verify(store.as_ref()).await
    }
}

pub(crate) struct BrokenStand<E> {
    pub(crate) engine: E,
}

impl<E: Engine> BrokenStand<E> {
    pub(crate) fn new(engine: E) -> Arc<Self> {
        Arc::new(Self { engine })
    }
}

#[async_trait]
impl<E: Engine> Stand for BrokenStand<E> {
    type Store = E::Broken;

    fn name(&self) -> String {
        self.engine.fault()
    }

    async fn fresh(&self) -> Result<Fresh<E::Broken>, BoxError> {
        Ok(Fresh::new(self.engine.emptied().await?, ()))
    }

    async fn write_effect(&self, tx: &mut E::Tx, name: &str) -> Result<(), BoxError> {
        self.engine.healthy().write_effect(tx, name).await
    }

    async fn count_effects(&self, store: &E::Broken, name: &str) -> Result<i64, BoxError> {
        self.engine.healthy().count_effects(store.as_ref(), name).await
    }

    fn probe(&self) -> Option<&dyn Probe<E::Broken>> {
        Some(self)
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<E::Broken>> {
        self.engine.deferred()
    }
}

#[async_trait]
impl<E: Engine> Probe<E::Broken> for BrokenStand<E> {
    fn offers(&self) -> Vec<Need> {
        self.engine.healthy().offers()
    }

    fn levels(&self) -> Vec<Level> {
        self.engine.healthy().levels()
    }

    async fn begin_at(&self, store: &E::Broken, level: &Level) -> Result<E::Tx, BoxError> {
        self.engine.healthy().begin_at(store.as_ref(), level).await
    }

    async fn execute(&self, tx: &mut E::Tx, sql: &str) -> Result<(), BoxError> {
        self.engine.healthy().execute(tx, sql).await
    }

    async fn execute_beside(&self, store: &E::Broken, sql: &str) -> Result<(), BoxError> {
        self.engine.execute_beside(store, sql).await
    }

    async fn session(&self, tx: &mut E::Tx) -> Result<String, BoxError> {
        self.engine.healthy().session(tx).await
    }

    async fn is_waiting(&self, store: &E::Broken, session: &str) -> Result<bool, BoxError> {
        self.engine.healthy().is_waiting(store.as_ref(), session).await
    }

    async fn kill(&self, store: &E::Broken, session: &str) -> Result<(), BoxError> {
        self.engine.healthy().kill(store.as_ref(), session).await
    }

    async fn settings(&self, tx: &mut E::Tx) -> Result<String, BoxError> {
        self.engine.healthy().settings(tx).await
    }

    async fn open_transactions(&self, store: &E::Broken) -> Result<u64, BoxError> {
        self.engine.healthy().open_transactions(store.as_ref()).await
    }

    fn aborting_sql(&self) -> &'static str {
        self.engine.healthy().aborting_sql()
    }

    fn swallow_inserts(&self) -> Vec<String> {
        self.engine.healthy().swallow_inserts()
    }

    fn shadow_table(&self) -> &'static str {
        self.engine.healthy().shadow_table()
    }

    async fn create_schema(&self, store: &E::Broken) -> Result<(), Error> {
        self.engine.create_schema(store).await
    }

    async fn verify(&self, store: &E::Broken) -> Result<(), Error> {
        self.engine.verify(store).await
    }

    fn messages_table(&self) -> &'static str {
        self.engine.healthy().messages_table()
    }

    async fn advance_clock(&self, store: &E::Broken, by: Duration) -> Result<(), BoxError> {
        self.engine.healthy().advance_clock(store.as_ref(), by).await
    }

    fn damages(&self) -> Vec<Damage> {
        self.engine.healthy().damages()
    }
}
