//! [`Attempts`]: one attempt at one or more messages, from the fence to the commit, and what follows a failure.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::Worker;
use super::handler::Work;
use super::leases::{Claimed, Leases};
use super::report::{Report, Settled};
use super::turns::Turns;
use crate::deferred::history::error_json;
use crate::process::{Failure, roll_back_after, run_again};
use crate::{
    AfterDead, Deferred, Error, ErrorKind, Fail, GuardedTx, HandlerError, Lease, OrderingKey, Release, Renew,
    StoredMessage, Unblock,
};

/// What an attempt needs; it is copied into each.
pub(super) struct Attempts<'w, S> {
    pub(super) worker: &'w Worker<S>,
    pub(super) work: &'w dyn Work<S>,
    pub(super) leases: &'w Leases,
    pub(super) turns: &'w Turns,
    pub(super) report: &'w Report,
}

impl<S> Clone for Attempts<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Attempts<'_, S> {}

/// Why an attempt failed.
type Failed = Failure<HandlerError>;

impl<S: Deferred + Clone + 'static> Attempts<'_, S> {
    /// Handles some messages in one transaction; if that fails, each in one of its own (R18).
    pub(super) async fn attempt(self, batch: Vec<Claimed>) -> Vec<Settled> {
        // Until what follows a failure is written down too.
        let _turn = self.turns.take().await;
        self.renew_what_waits().await;
        match self.until_settled(&batch).await {
            Ok(settled) => settled,
            Err(failed) if batch.len() > 1 && may_be_of_one_message(&failed) => self.one_by_one(&batch).await,
            Err(failed) => self.after_failure(&batch, &failed).await,
        }
    }

    /// Where a handler is the one writer, no renewal gets through: so one does before the next handler, if
    /// it is time.
    async fn renew_what_waits(self) {
        let lease = self.worker.lease;
        if self.turns.leased_since().is_none_or(|since| since < lease / 3) {
            return;
        }
        let leases = self.leases.all();
        let request = Renew::new(self.worker.inbox.consumer(), &leases, lease);
        match self.worker.inbox.store().renew(&request).await {
            Ok(_) => self.turns.leased_now(),
            Err(error) => tracing::warn!(error = as_cause(&error), "leases not renewed, trying again"),
        }
    }

    async fn one_by_one(self, batch: &[Claimed]) -> Vec<Settled> {
        tracing::info!("the batch failed, handling its messages one by one");
        self.leases.wait(batch);
        let mut all = Vec::with_capacity(batch.len());
        for one in batch {
            self.renew_what_waits().await;
            let one = std::slice::from_ref(one);
            all.extend(match self.until_settled(one).await {
                Ok(settled) => settled,
                Err(failed) => self.after_failure(one, &failed).await,
            });
        }
        all
    }

    /// Runs the transaction, again and again while the error says nothing about the messages: that is no new
    /// attempt, since the lease is the same.
    async fn until_settled(self, batch: &[Claimed]) -> Result<Vec<Settled>, Failed> {
        let mut runs = self.worker.inbox.retry().start();
        loop {
            match self.once(batch).await {
                Ok(held) => return Ok(self.done(batch, &held).await),
                Err(failed) => {
                    let again = failed.is_retryable(&|error| self.is_retryable(error));
                    run_again(&mut runs, failed, again).await?;
                }
            }
        }
    }

    fn is_retryable(self, error: &HandlerError) -> bool {
        !error.is_never_retry() && self.worker.retryable.as_ref().is_some_and(|is| is(error))
    }

    /// One transaction: the fence and the completion, the handler, the commit. Answers whose lease held.
    async fn once(self, batch: &[Claimed]) -> Result<Vec<bool>, Failed> {
        let leases: Vec<Lease> = batch.iter().map(|one| one.lease).collect();
        let mut tx = self.worker.inbox.begin().await?;
        let held = tx.complete(&leases).await?;
        let messages: Vec<StoredMessage> =
            batch.iter().zip(&held).filter(|(_, held)| **held).map(|(one, _)| one.message.clone()).collect();
        if messages.is_empty() {
            return Ok(held);
        }
        self.leases.begin(&leases);
        match self.handle(&mut tx, &messages).await {
            Ok(()) => tx.commit().await.map(|()| held).map_err(Failure::Inbox),
            Err(error) => Err(roll_back_after(error, tx).await),
        }
    }

    /// Calls the handler; a panic and a timeout are failures like others.
    async fn handle(
        self,
        tx: &mut GuardedTx<'_, S, S::Tx>,
        messages: &[StoredMessage],
    ) -> Result<(), HandlerError> {
        let handled = AssertUnwindSafe(async { self.work.handle(&mut *tx, messages).await }).catch_unwind();
        let handled = match self.worker.handler_timeout {
            None => handled.await,
            Some(limit) => tokio::time::timeout(limit, handled).await.unwrap_or_else(|_| {
                Ok(Err(HandlerError::new(format!("the handler did not end within {limit:?}"))))
            }),
        };
        handled.unwrap_or_else(|panic| {
            Err(HandlerError::new(format!("the handler panicked: {}", panic_text(&*panic))))
        })
    }

    async fn done(self, batch: &[Claimed], held: &[bool]) -> Vec<Settled> {
        let mut settled = Vec::with_capacity(batch.len());
        for (one, held) in batch.iter().zip(held) {
            self.leases.settle(one.lease);
            settled.push(self.count(if *held { Settled::Done } else { Settled::Lost }));
            let id = one.message.id();
            match held {
                true => tracing::debug!(message_id = %id, "kept message done"),
                false => tracing::info!(message_id = %id, "the lease was lost, nothing was done"),
            }
        }
        // Of those lost too: a commit of ours whose answer was lost may have settled them.
        let keys: Vec<OrderingKey> =
            batch.iter().filter_map(|one| one.message.ordering_key.clone()).collect();
        self.unblock(&keys).await;
        settled
    }

    fn count(self, settled: Settled) -> Settled {
        self.report.count(settled);
        settled
    }

    /// Writes down that an attempt failed, for each of its messages.
    async fn after_failure(self, batch: &[Claimed], failed: &Failed) -> Vec<Settled> {
        let (text, never_retry) = match failed {
            Failure::Handler(error) => (error.text(), error.is_never_retry()),
            // Half an effect may be committed, and another attempt would double it.
            Failure::Inbox(error) => {
                (HandlerError::text_of(error), error.kind() == ErrorKind::TransactionLost)
            }
        };
        let mut all = Vec::with_capacity(batch.len());
        for one in batch {
            if let Failure::Inbox(error) = failed {
                tracing::error!(message_id = %one.message.id(), error = as_cause(error), "the attempt's transaction failed");
                if error.kind() == ErrorKind::TransactionLost {
                    self.report.count(Settled::TransactionLost);
                }
            }
            // What could not be written down for one cannot be for the others: that would take its time
            // for each, and their leases run out all the same.
            let settled = match all.contains(&Settled::Unsettled) {
                true => Settled::Unsettled,
                false => self.fail(one, &text, never_retry, None).await,
            };
            self.leases.settle(one.lease);
            all.push(self.count(settled));
        }
        all
    }

    /// A row that cannot be read is a dead letter at once: no attempt could read it (D6).
    pub(super) async fn bury(self, lease: Lease, key: Option<OrderingKey>, damaged: Error) -> Vec<Settled> {
        let error_json = error_json(&HandlerError::text_of(&damaged));
        let request = Fail::new(self.worker.inbox.consumer(), lease, None, &error_json);
        tracing::warn!(error = as_cause(&damaged), "kept message cannot be read, it is dead");
        let settled = match self.write(Write::Failure(request)).await {
            Ok(()) => {
                self.after_death(key).await;
                Settled::Dead
            }
            Err(lost) if lost.kind() == ErrorKind::LeaseLost => Settled::Lost,
            Err(_) => Settled::Unsettled,
        };
        vec![self.count(settled)]
    }

    /// Gives messages back that nobody has begun to handle.
    pub(super) async fn release(self, leases: &[Lease]) {
        let request = Release::new(self.worker.inbox.consumer(), leases);
        match self.worker.inbox.store().release(&request).await {
            Ok(released) => {
                let released = usize::try_from(released).unwrap_or(leases.len()).min(leases.len());
                self.report.add(Settled::Released, released);
                self.report.add(Settled::Lost, leases.len() - released);
            }
            Err(error) => {
                tracing::warn!(error = as_cause(&error), "messages not given back, their leases run out");
                self.report.add(Settled::Unsettled, leases.len());
            }
        }
    }

    /// Writes down a failed attempt: another one is due after `pause` or the backoff's, or the message is dead.
    pub(super) async fn fail(
        self,
        one: &Claimed,
        text: &str,
        never_retry: bool,
        pause: Option<Duration>,
    ) -> Settled {
        let allowed = one.message.allowed.unwrap_or(self.worker.max_attempts);
        let dead = never_retry || one.message.attempts >= allowed;
        let pause = (!dead).then(|| pause.unwrap_or_else(|| self.worker.backoff.pause(one.message.attempts)));
        let (id, attempt) = (one.message.id(), one.message.attempts);
        let error_json = error_json(text);
        let request = Fail::new(self.worker.inbox.consumer(), one.lease, pause, &error_json);
        match self.write(Write::Failure(request)).await {
            Ok(()) => match pause {
                Some(pause) => {
                    tracing::info!(message_id = %id, attempt, ?pause, error = text, "attempt failed, trying again");
                    Settled::Retried(pause)
                }
                None => {
                    tracing::warn!(message_id = %id, attempt, error = text, "kept message is dead");
                    self.after_death(one.message.ordering_key.clone()).await;
                    Settled::Dead
                }
            },
            Err(lost) if lost.kind() == ErrorKind::LeaseLost => {
                tracing::info!(message_id = %id, attempt, error = text, "attempt failed after its lease was lost");
                Settled::Lost
            }
            Err(error) => {
                let error = as_cause(&error);
                tracing::warn!(message_id = %id, attempt, error, "failed attempt not written down, its lease runs out");
                Settled::Unsettled
            }
        }
    }

    /// Where a dead message lets its successors pass, the next one may go on.
    pub(super) async fn after_death(self, key: Option<OrderingKey>) -> Vec<Settled> {
        if self.worker.order == Some(AfterDead::Pass) {
            self.unblock(key.as_slice()).await;
        }
        Vec::new()
    }

    /// After the commit, so that whoever looks sees what was settled. What fails here costs the next
    /// message of the key as long as a lease.
    async fn unblock(self, keys: &[OrderingKey]) {
        if self.worker.order.is_none() || keys.is_empty() {
            return;
        }
        let request = Unblock::new(self.worker.inbox.consumer(), keys);
        if let Err(error) = self.write(Write::Unblock(request)).await {
            tracing::warn!(
                error = as_cause(&error),
                "keys not unblocked, their next messages wait a lease longer"
            );
        }
    }

    /// Makes a call of the store's own, again while its errors are retryable.
    async fn write(self, write: Write<'_>) -> Result<(), Error> {
        let store = self.worker.inbox.store();
        let mut runs = self.worker.inbox.retry().start();
        loop {
            let answer = match &write {
                Write::Failure(request) => store.fail(request).await,
                Write::Unblock(request) => store.unblock(request).await,
            };
            match answer {
                Err(error) if error.is_retryable() => match runs.next_pause() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
                answer => return answer,
            }
        }
    }
}

/// What is written down outside of an attempt's transaction.
enum Write<'a> {
    Failure(Fail<'a>),
    Unblock(Unblock<'a>),
}

/// Whether it is worth a try to handle the messages of a failed batch one by one: not where the database
/// could not serve, nor where half an effect may be committed.
fn may_be_of_one_message(failed: &Failed) -> bool {
    match failed {
        Failure::Handler(_) => true,
        Failure::Inbox(error) => !error.is_retryable() && error.kind() != ErrorKind::TransactionLost,
    }
}

pub(super) fn as_cause(error: &Error) -> &(dyn std::error::Error + 'static) {
    error
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}
