//! What the cases see of a deferred inbox: a store behind trait objects.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    AfterDead, Backoff, BatchReceived, BoxError, Envelope, Error, Filter, Lease, Listing, MessageRow,
    OrderingKey, Received, Renewal, StateCount, StoredMessage, WorkerReport,
};
use tokio::sync::Semaphore;

/// One consumer's deferred inbox on the stage.
#[async_trait]
pub(crate) trait TestKeeper: Send + Sync {
    async fn receive(&self, envelope: &Envelope) -> Result<Received, Error>;

    async fn receive_batch(&self, envelopes: &[Envelope]) -> Result<Vec<BatchReceived>, Error>;

    /// The same inbox with another limit on payloads.
    fn with_max_payload(&self, bytes: usize) -> Box<dyn TestKeeper + '_>;

    /// At the stage's level.
    async fn begin(&self) -> Result<Box<dyn KeeperSession + '_>, Error>;

    async fn claim(&self, take: &Take) -> Result<Vec<Claimed>, Error>;

    async fn renew(&self, leases: &[Lease], lease: Duration) -> Result<Vec<Renewal>, Error>;

    async fn fail(&self, lease: Lease, retry_after: Option<Duration>, error_json: &str) -> Result<(), Error>;

    async fn release(&self, leases: &[Lease]) -> Result<u64, Error>;

    async fn unblock(&self, keys: &[OrderingKey]) -> Result<(), Error>;

    async fn replay(&self, filter: &Filter) -> Result<u64, Error>;

    async fn messages(&self, filter: &Filter) -> Result<Listing, Error>;

    async fn counts(&self, at_most: u32) -> Result<Vec<StateCount>, Error>;

    /// A worker until `told`, or until nothing is pending.
    async fn work(&self, setup: &Setup, told: Told, script: &Handling) -> Result<WorkerReport, Error>;
}

/// An open transaction with the inbox's guard on it.
#[async_trait]
pub(crate) trait KeeperSession: Send {
    async fn receive(&mut self, envelope: &Envelope) -> Result<Received, Error>;

    /// On the transaction inside the guard, as nested code does.
    async fn receive_by_reference(&mut self, envelope: &Envelope) -> Result<Received, Error>;

    async fn complete(&mut self, leases: &[Lease]) -> Result<Vec<bool>, Error>;

    async fn effect(&mut self, name: &str) -> Result<(), BoxError>;

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError>;

    async fn id(&mut self) -> String;

    async fn commit(self: Box<Self>) -> Result<(), Error>;

    async fn rollback(self: Box<Self>) -> Result<(), Error>;
}

/// How to claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) order: Option<AfterDead>,
}

/// A row that was claimed, or found dead by a claim, and the lease.
#[derive(Debug, Clone)]
pub(crate) struct Claimed {
    pub(crate) lease: Lease,
    pub(crate) row: MessageRow,
}

impl Claimed {
    pub(crate) fn id(&self) -> String {
        String::from_utf8_lossy(&self.row.message_id).into_owned()
    }

    pub(crate) fn state(&self) -> String {
        String::from_utf8_lossy(&self.row.state).into_owned()
    }
}

/// How a worker is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) concurrency: usize,
    /// So many messages in one transaction.
    pub(crate) batch: Option<u32>,
    pub(crate) lease: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) order: Option<AfterDead>,
    pub(crate) handler_timeout: Option<Duration>,
    /// Whether the handler's errors say nothing about the message.
    pub(crate) retryable: bool,
    pub(crate) grace: Duration,
}

impl Default for Setup {
    /// Nothing waits long, and failed messages are due at once.
    fn default() -> Self {
        Self {
            concurrency: 4,
            batch: None,
            lease: Duration::from_secs(30),
            max_attempts: 3,
            backoff: Backoff::new(Duration::ZERO, Duration::ZERO),
            order: None,
            handler_timeout: None,
            retryable: false,
            grace: Duration::from_secs(30),
        }
    }
}

/// When a worker stops: when this is ready, or when nothing is pending.
pub(crate) type Told = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// What a worker's handler does, and what was seen of it.
pub(crate) struct Handling {
    pub(crate) step: Box<dyn Fn(&StoredMessage) -> Doing + Send + Sync>,
    pub(crate) calls: AtomicUsize,
    seen: Mutex<Vec<String>>,
}

impl Handling {
    pub(crate) fn new(step: impl Fn(&StoredMessage) -> Doing + Send + Sync + 'static) -> Self {
        Self { step: Box::new(step), calls: AtomicUsize::new(0), seen: Mutex::default() }
    }

    pub(crate) fn effect() -> Self {
        Self::new(|_| Doing::Effect)
    }

    /// The first call fails, as that of a batch; the second waits at the gate.
    pub(crate) fn first_fails_then_waits_at(gate: &Arc<Semaphore>) -> Self {
        let (calls, gate) = (AtomicUsize::new(0), Arc::clone(gate));
        Self::new(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Doing::Fail,
            1 => Doing::EffectAt(Arc::clone(&gate)),
            _ => Doing::Effect,
        })
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// What the handlers noted, in order: `m-1` when one begins, `m-1 ended` when it returns.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note(&self, text: String) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

/// What a handler does with one message; the effect's name is the message's id.
#[derive(Debug, Clone)]
pub(crate) enum Doing {
    /// Write the effect.
    Effect,
    /// Write the effect, then wait for a permit.
    EffectAt(Arc<Semaphore>),
    /// Write the effect, note `session …` for the case to end it, then wait for a permit.
    SessionAt(Arc<Semaphore>),
    /// Write the effect, then fail.
    Fail,
    /// Write the effect, then fail for good.
    NeverRetry,
    /// Write the effect, then panic.
    Panic,
    /// Write the effect, then never return.
    Hang,
    /// Write the effect, end the transaction by a raw COMMIT and begin another, succeed.
    Restart,
}
