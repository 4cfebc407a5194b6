//! [`Stand`]: what a store's author writes.

use std::any::Any;
use std::fmt;

use async_trait::async_trait;
use inbox_core::{Administer, Begin, BoxError};

use super::{DeferredStand, Probe};

/// A store on a server, as the suite needs it: about thirty lines.
#[async_trait]
pub trait Stand: Send + Sync + 'static {
    /// The store under test.
    type Store: Begin + Administer;

    /// The first part of the tests' names; say the server's version in it (`postgres_15`).
    fn name(&self) -> String;

    /// A fresh store over empty tables in a database of its own, and what removes that database.
    ///
    /// Called for each case, each on a runtime of its own that ends with the case: make the pool here,
    /// and keep none in the stand.
    async fn fresh(&self) -> Result<Fresh<Self::Store>, BoxError>;

    /// Writes one more effect under `name` (a row of a table of yours) through the transaction.
    async fn write_effect(&self, tx: &mut <Self::Store as Begin>::Tx, name: &str) -> Result<(), BoxError>;

    /// How many effects under `name` are committed, read outside of any transaction of the suite.
    async fn count_effects(&self, store: &Self::Store, name: &str) -> Result<i64, BoxError>;

    /// Opens the cases on isolation levels, waits, kills and damaged schemas.
    fn probe(&self) -> Option<&dyn Probe<Self::Store>> {
        None
    }

    /// Opens the cases of the deferred inbox. Where the store implements [`Deferred`](inbox_core::Deferred),
    /// answer `Some(&KeepsMessages)` ([`KeepsMessages`](super::KeepsMessages)).
    fn deferred(&self) -> Option<&dyn DeferredStand<Self::Store>> {
        None
    }
}

/// A fresh store, and a guard whose drop removes what belongs to it.
pub struct Fresh<S> {
    /// The store.
    pub store: S,
    /// Dropped after the case: a temporary folder, a database handle.
    pub guard: Box<dyn Any + Send + Sync>,
}

impl<S> Fresh<S> {
    /// A store with its guard; pass `()` where nothing needs to be removed.
    pub fn new(store: S, guard: impl Any + Send + Sync) -> Self {
        Self { store, guard: Box::new(guard) }
    }
}

impl<S> fmt::Debug for Fresh<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").finish_non_exhaustive()
    }
}
