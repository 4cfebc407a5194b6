//! From a store that implements [`Deferred`] to the trait objects of [`keeper`](super::keeper).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    BatchReceived, Begin, BoxError, Claim, Deferred, Envelope, Error, Fail, Filter, GuardedTx, HandlerError,
    Inbox, Lease, Listing, OrderingKey, Received, Release, Renew, Renewal, StateCount, StoredMessage,
    Unblock, Worker, WorkerReport,
};

use super::keeper::{Claimed, Doing, Handling, KeeperSession, Setup, Take, TestKeeper, Told};

/// What a keeper needs of the stand and its probe.
#[async_trait]
pub(crate) trait Tools<S: Begin>: Send + Sync {
    async fn write_effect(&self, tx: &mut S::Tx, name: &str) -> Result<(), BoxError>;

    /// A transaction at the stage's level; `None` is the store's default.
    async fn begin_at_level(&self) -> Option<Result<S::Tx, Error>>;

    async fn execute(&self, tx: &mut S::Tx, sql: &str) -> Result<(), BoxError>;

    async fn session(&self, tx: &mut S::Tx) -> String;
}

pub(super) struct Keeper<'a, S: Begin> {
    pub(super) tools: &'a dyn Tools<S>,
    pub(super) inbox: Inbox<Arc<S>>,
}

impl<S: Deferred + 'static> Keeper<'_, S> {
    fn worker(&self, setup: &Setup) -> Worker<Arc<S>> {
        let worker = Worker::new(self.inbox.clone())
            .with_concurrency(setup.concurrency)
            .with_batch(setup.batch.unwrap_or(1))
            .with_lease(setup.lease)
            .with_max_attempts(setup.max_attempts)
            .with_backoff(setup.backoff)
            .with_poll_interval(Duration::from_millis(20))
            .with_grace(setup.grace);
        let worker = match setup.handler_timeout {
            Some(timeout) => worker.with_handler_timeout(timeout),
            None => worker,
        };
        let worker = match setup.retryable {
            true => worker.with_retryable(|_| true),
            false => worker,
        };
        match setup.order {
            Some(after_dead) => worker.with_order(after_dead),
            None => worker,
        }
    }

    async fn one(
        &self,
        tx: &mut S::Tx,
        message: &StoredMessage,
        script: &Handling,
    ) -> Result<(), HandlerError> {
        script.calls.fetch_add(1, Ordering::SeqCst);
        let name = message.id().as_str();
        script.note(name.to_owned());
        self.tools.write_effect(tx, name).await.map_err(HandlerError::new)?;
        match (script.step)(message) {
            Doing::Effect => {}
            Doing::EffectAt(gate) => gate.acquire().await.expect("the gate is never closed").forget(),
            Doing::SessionAt(gate) => {
                script.note(format!("session {}", self.tools.session(tx).await));
                gate.acquire().await.expect("the gate is never closed").forget();
            }
            Doing::Fail => return Err(HandlerError::new("the handler fails, as the case wants")),
            Doing::NeverRetry => return Err(HandlerError::never_retry("never again, as the case wants")),
            Doing::Panic => panic!("the handler panics, as the case wants"),
            Doing::Hang => std::future::pending().await,
            Doing::Restart => {
                self.tools.execute(tx, "COMMIT; BEGIN").await.map_err(HandlerError::new)?;
            }
        }
        script.note(format!("{name} ended"));
        Ok(())
    }

    async fn many(
        &self,
        tx: &mut S::Tx,
        messages: &[StoredMessage],
        script: &Handling,
    ) -> Result<(), HandlerError> {
        for message in messages {
            self.one(tx, message, script).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl<S: Deferred + 'static> TestKeeper for Keeper<'_, S> {
    async fn receive(&self, envelope: &Envelope) -> Result<Received, Error> {
        self.inbox.receive(envelope).await
    }

    async fn receive_batch(&self, envelopes: &[Envelope]) -> Result<Vec<BatchReceived>, Error> {
        self.inbox.receive_batch(envelopes).await
    }

    fn with_max_payload(&self, bytes: usize) -> Box<dyn TestKeeper + '_> {
        Box::new(Keeper { tools: self.tools, inbox: self.inbox.clone().with_max_payload(bytes) })
    }

    async fn begin(&self) -> Result<Box<dyn KeeperSession + '_>, Error> {
        let tx = match self.tools.begin_at_level().await {
            Some(tx) => self.inbox.guard(tx?).await?,
            None => self.inbox.begin().await?,
        };
        Ok(Box::new(OpenedSession { tools: self.tools, inbox: &self.inbox, tx }))
    }

    async fn claim(&self, take: &Take) -> Result<Vec<Claimed>, Error> {
        let request = Claim::new(self.inbox.consumer(), take.lease, take.max_attempts)
            .limit(take.limit)
            .order(take.order);
        let token = request.token;
        let rows = self.inbox.store().claim(&request).await?;
        let with_lease =
            |row: inbox_core::MessageRow| Claimed { lease: Lease { sequence: row.sequence, token }, row };
        Ok(rows.into_iter().map(with_lease).collect())
    }

    async fn renew(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Renewal>, Error> {
        self.inbox.store().renew(&Renew::new(self.inbox.consumer(), leases, lease)).await
    }

    async fn fail(&self, lease: Lease, retry_after: Option<Duration>, error_json: &str) -> Result<(), Error> {
        self.inbox.store().fail(&Fail::new(self.inbox.consumer(), lease, retry_after, error_json)).await
    }

    async fn release(&self, leases: &[Lease]) -> Result<u64, Error> {
        self.inbox.store().release(&Release::new(self.inbox.consumer(), leases)).await
    }

    async fn unblock(&self, keys: &[OrderingKey]) -> Result<(), Error> {
        self.inbox.store().unblock(&Unblock::new(self.inbox.consumer(), keys)).await
    }

    async fn replay(&self, filter: &Filter) -> Result<u64, Error> {
        self.inbox.replay(filter).await
    }

    async fn messages(&self, filter: &Filter) -> Result<Listing, Error> {
        self.inbox.messages(filter).await
    }

    async fn counts(&self, at_most: u32) -> Result<Vec<StateCount>, Error> {
        self.inbox.message_counts(at_most).await.map(|counts| counts.iter().copied().collect())
    }

    async fn work(&self, setup: &Setup, told: Told, script: &Handling) -> Result<WorkerReport, Error> {
        let worker = self.worker(setup);
        let one = async |tx: &mut S::Tx, message: &StoredMessage| self.one(tx, message, script).await;
        let many = async |tx: &mut S::Tx, messages: &[StoredMessage]| self.many(tx, messages, script).await;
        match (told, setup.batch) {
            (Some(told), None) => worker.run(told, one).await,
            (None, None) => worker.run_until_drained(one).await,
            (Some(told), Some(_)) => worker.run_batches(told, many).await,
            (None, Some(_)) => worker.run_batches_until_drained(many).await,
        }
    }
}

struct OpenedSession<'a, S: Begin> {
    tools: &'a dyn Tools<S>,
    inbox: &'a Inbox<Arc<S>>,
    tx: GuardedTx<'a, Arc<S>, S::Tx>,
}

#[async_trait]
impl<S: Deferred + 'static> KeeperSession for OpenedSession<'_, S> {
    async fn receive(&mut self, envelope: &Envelope) -> Result<Received, Error> {
        self.tx.receive(envelope).await
    }

    async fn receive_by_reference(&mut self, envelope: &Envelope) -> Result<Received, Error> {
        self.inbox.receive_in(&mut *self.tx, envelope).await
    }

    async fn complete(&mut self, leases: &[Lease]) -> Result<Vec<bool>, Error> {
        self.tx.complete(leases).await
    }

    async fn effect(&mut self, name: &str) -> Result<(), BoxError> {
        self.tools.write_effect(&mut self.tx, name).await
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        self.tools.execute(&mut self.tx, sql).await
    }

    async fn id(&mut self) -> String {
        self.tools.session(&mut self.tx).await
    }

    async fn commit(self: Box<Self>) -> Result<(), Error> {
        self.tx.commit().await
    }

    async fn rollback(self: Box<Self>) -> Result<(), Error> {
        self.tx.rollback().await
    }
}
