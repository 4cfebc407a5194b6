//! [`KeepMessages`] and [`Deferred`] on sqlx.

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Claim, Complete, Consumer, Count, Deadline, Deferred, Error, ErrorKind, Fail, KeepMessages, KeepRequest,
    MessageRow, Release, Renew, Renewal, Replay, Select, StateCount, Unblock, Watch,
};
use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqliteConnection};

use super::super::errors::commit_error;
use super::super::in_transaction::InTransaction;
use super::super::store::SqlxSqliteStore;
use super::super::transaction::refuse_lost;
use crate::deferred::operate::Which;
use crate::deferred::settle::patience_of_renewal;
use crate::deferred::{claim, complete, keep, operate, settle};

/// Keeps in the transaction that is open on a connection.
async fn keep(
    store: &SqlxSqliteStore,
    conn: &mut SqliteConnection,
    request: &KeepRequest<'_>,
) -> Result<(), Error> {
    refuse_lost(conn, || request.doing()).await?;
    keep::keep(conn, store.sql(), request).await
}

#[async_trait]
impl<'c> KeepMessages<Transaction<'c, Sqlite>> for SqlxSqliteStore {
    async fn keep(&self, tx: &mut Transaction<'c, Sqlite>, request: &KeepRequest<'_>) -> Result<(), Error> {
        keep(self, tx, request).await
    }
}

#[async_trait]
impl<'c> KeepMessages<InTransaction<'c>> for SqlxSqliteStore {
    async fn keep(&self, tx: &mut InTransaction<'c>, request: &KeepRequest<'_>) -> Result<(), Error> {
        keep(self, tx, request).await
    }
}

/// Commits a transaction of the store's own. Nothing in it can have failed unseen, so the driver's own
/// commit will do.
async fn commit(tx: Transaction<'_, Sqlite>, doing: String) -> Result<(), Error> {
    tx.commit().await.map_err(|source| commit_error(doing, source))
}

#[async_trait]
impl Deferred for SqlxSqliteStore {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        let mut tx = self.begin_for(self.wait(), request.doing()).await?;
        let rows = claim::claim(&mut *tx, self.sql(), request).await?;
        commit(tx, request.doing()).await?;
        Ok(rows)
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        let wait = patience_of_renewal(request.lease).min(self.wait());
        let mut tx = match self.begin_for(wait, request.doing()).await {
            Err(busy) if busy.kind() == ErrorKind::Busy => return self.look_beside_the_writer(request).await,
            begun => begun?,
        };
        let renewals = settle::renew(&mut *tx, self.sql(), request).await?;
        commit(tx, request.doing()).await?;
        Ok(renewals)
    }

    async fn complete(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        request: &Complete<'_>,
    ) -> Result<Vec<bool>, Error> {
        refuse_lost(tx, || request.doing()).await?;
        complete::complete(&mut **tx, self.sql(), request).await
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        let mut tx = self.begin_for(self.wait(), request.doing()).await?;
        settle::fail(&mut *tx, self.sql(), request).await?;
        commit(tx, request.doing()).await
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        let mut tx = self.begin_for(self.wait(), request.doing()).await?;
        let released = settle::release(&mut *tx, self.sql(), request).await?;
        commit(tx, request.doing()).await?;
        Ok(released)
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        let mut tx = self.begin_for(self.wait(), request.doing()).await?;
        settle::unblock(&mut *tx, self.sql(), request).await?;
        commit(tx, request.doing()).await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        let which = Which::of(&request.which, &request.doing())?;
        let mut tx = self.begin_for(self.wait(), request.doing()).await?;
        let replayed =
            operate::replay(&mut *tx, self.sql(), request.consumer, &which, &request.doing()).await?;
        commit(tx, request.doing()).await?;
        Ok(replayed)
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        let doing = Select::doing(consumer);
        let which = Which::of(which, &doing)?;
        let mut conn = self.connection(Deadline::after(self.wait()), &doing).await?;
        operate::select(&mut *conn, self.sql(), consumer, &which).await
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        let mut conn = self.connection(Deadline::after(self.wait()), &request.doing()).await?;
        operate::count(&mut *conn, self.sql(), request).await
    }

    /// `None`: a worker looks at intervals.
    async fn watch(&self, _consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        Ok(None)
    }
}

impl SqlxSqliteStore {
    /// What became of leases that could not be renewed, since another transaction is the writer.
    async fn look_beside_the_writer(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        let mut conn = match self.connection(Deadline::after(Duration::ZERO), &request.doing()).await {
            // In memory the writer's connection is the only one.
            Err(busy) if busy.kind() == ErrorKind::Busy => {
                return Ok(vec![Renewal::Locked; request.leases.len()]);
            }
            connection => connection?,
        };
        settle::renewals_beside_a_writer(&mut *conn, self.sql(), request).await
    }
}
