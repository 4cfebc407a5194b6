//! The traits for `Arc<S>`, so that one store can serve many inboxes, and so can an
//! `Arc<dyn Transactional<Tx>>`. `Begin` names its transaction's type and so is not dyn-compatible.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Administer, Begin, BoxFuture, Capabilities, Consumer, End, Error, InboxStore, MessageId, Original,
    Register, RegisterBatch, Registration, Transactional,
};

#[async_trait]
impl<Tx: Send, S: InboxStore<Tx> + ?Sized> InboxStore<Tx> for Arc<S> {
    async fn register_if_new(&self, tx: &mut Tx, request: &Register<'_>) -> Result<Registration, Error> {
        (**self).register_if_new(tx, request).await
    }

    async fn register_batch(
        &self,
        tx: &mut Tx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        (**self).register_batch(tx, request).await
    }

    async fn condemn(&self, tx: &mut Tx) {
        (**self).condemn(tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
}

impl<Tx: Send, S: Transactional<Tx> + ?Sized> Transactional<Tx> for Arc<S> {
    fn guard<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), Error>> {
        (**self).guard(tx)
    }

    fn commit<'a>(&'a self, tx: Tx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        Tx: 'a,
    {
        (**self).commit(tx, request)
    }

    fn rollback<'a>(&'a self, tx: Tx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        Tx: 'a,
    {
        (**self).rollback(tx, request)
    }
}

#[async_trait]
impl<S: Begin + ?Sized> Begin for Arc<S> {
    type Tx = S::Tx;

    async fn begin(&self, wait: Option<Duration>) -> Result<S::Tx, Error> {
        (**self).begin(wait).await
    }
}

#[async_trait]
impl<S: Administer + ?Sized> Administer for Arc<S> {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        (**self).find(consumer, id).await
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        (**self).forget(consumer, id).await
    }
}
