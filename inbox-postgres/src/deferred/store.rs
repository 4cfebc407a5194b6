//! [`PostgresStore`] as a store that keeps messages.

use async_trait::async_trait;
use inbox_core::{
    Claim, Complete, Consumer, Count, Deferred, Error, Fail, KeepMessages, KeepRequest, MessageRow, Release,
    Renew, Renewal, Replay, Select, StateCount, Unblock, Watch,
};
use sqlx::{Postgres, Transaction};

use super::{claim, complete, keep, operate, settle, watch};
use crate::{InTransaction, PostgresStore};

#[async_trait]
impl<'c> KeepMessages<Transaction<'c, Postgres>> for PostgresStore {
    async fn keep(&self, tx: &mut Transaction<'c, Postgres>, request: &KeepRequest<'_>) -> Result<(), Error> {
        keep::keep(self, tx, request).await
    }
}

#[async_trait]
impl<'c> KeepMessages<InTransaction<'c>> for PostgresStore {
    async fn keep(&self, tx: &mut InTransaction<'c>, request: &KeepRequest<'_>) -> Result<(), Error> {
        keep::keep(self, tx, request).await
    }
}

#[async_trait]
impl Deferred for PostgresStore {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        claim::claim(self, request).await
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        settle::renew(self, request).await
    }

    async fn complete(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        request: &Complete<'_>,
    ) -> Result<Vec<bool>, Error> {
        complete::complete(self, tx, request).await
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        settle::fail(self, request).await
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        settle::release(self, request).await
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        settle::unblock(self, request).await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        operate::replay(self, request).await
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        operate::select(self, consumer, which).await
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        operate::count(self, request).await
    }

    async fn watch(&self, consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        watch::watch(self, consumer).await
    }
}
