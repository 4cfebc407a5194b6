//! The deferred inbox's traits for `Arc<S>`, so that one store can serve many inboxes.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Claim, Complete, Consumer, Count, Deferred, Error, Fail, KeepMessages, KeepRequest, MessageRow, Release,
    Renew, Renewal, Replay, Select, StateCount, Unblock, Watch,
};

#[async_trait]
impl<Tx: Send, S: KeepMessages<Tx> + ?Sized> KeepMessages<Tx> for Arc<S> {
    async fn keep(&self, tx: &mut Tx, request: &KeepRequest<'_>) -> Result<(), Error> {
        (**self).keep(tx, request).await
    }
}

#[async_trait]
impl<S: Deferred + ?Sized> Deferred for Arc<S> {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        (**self).claim(request).await
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        (**self).renew(request).await
    }

    async fn complete(&self, tx: &mut Self::Tx, request: &Complete<'_>) -> Result<Vec<bool>, Error> {
        (**self).complete(tx, request).await
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        (**self).fail(request).await
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        (**self).release(request).await
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        (**self).unblock(request).await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        (**self).replay(request).await
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        (**self).select(consumer, which).await
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        (**self).count(request).await
    }

    async fn watch(&self, consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        (**self).watch(consumer).await
    }
}
