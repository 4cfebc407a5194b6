//! The worker's loop: claim, hand out, gather, and end.

use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::attempt::{Attempts, Settled, Turns, as_cause};
use super::handler::Work;
use super::leases::{Claimed, Leases};
use super::wake::Wake;
use super::{Worker, WorkerReport};
use crate::{
    BoxFuture, Claim, Count, Deferred, Error, ErrorKind, InboxStore, Incident, IncidentKind, Lease,
    LeaseToken, MessageRow, OrderingKey, State, StoredMessage, Waits,
};

/// How long a worker works.
pub(super) enum Until<'a> {
    /// Until this is ready.
    Told(BoxFuture<'a, ()>),
    /// Until nothing is pending any more.
    Drained,
}

/// Runs a worker: `batch` messages in one transaction, or one.
pub(super) async fn run<S: Deferred + Clone + 'static>(
    worker: &Worker<S>,
    batch: u32,
    until: Until<'_>,
    work: &dyn Work<S>,
) -> Result<WorkerReport, Error> {
    let leases = Leases::start(worker);
    let turns = Turns::new(has_one_writer(worker), worker.concurrency);
    let attempts = Attempts { worker, work, leases: &leases, turns: &turns };
    let mut run = Run {
        attempts,
        batch,
        drains: matches!(until, Until::Drained),
        in_hand: FuturesUnordered::new(),
        claiming: None,
        wake: Wake::start(worker),
        more: false,
        stop: None,
        failed: None,
        report: WorkerReport::default(),
    };
    run.work(until).await;
    run.end().await;
    match run.failed {
        Some(error) => Err(error),
        None => Ok(run.report),
    }
}

fn has_one_writer<S: Deferred>(worker: &Worker<S>) -> bool {
    InboxStore::<S::Tx>::capabilities(worker.inbox.store()).waits == Waits::WhenBeginning
}

struct Run<'w, S> {
    attempts: Attempts<'w, S>,
    batch: u32,
    /// Whether it stops once nothing is pending.
    drains: bool,
    in_hand: FuturesUnordered<BoxFuture<'w, Vec<Settled>>>,
    claiming: Option<Claiming>,
    wake: Wake,
    /// Whether the last claim got all that it asked for, so that more is likely.
    more: bool,
    /// Since it was told to stop: until when it waits for what is in hand.
    stop: Option<Instant>,
    failed: Option<Error>,
    report: WorkerReport,
}

/// A claim on its way, in a task of its own: what it leases is not forgotten where its answer is not awaited.
struct Claiming {
    token: LeaseToken,
    asked: u32,
    task: JoinHandle<Result<Vec<MessageRow>, Error>>,
}

impl<'w, S: Deferred + Clone + 'static> Run<'w, S> {
    async fn work(&mut self, mut until: Until<'_>) {
        loop {
            if self.is_over() {
                return;
            }
            let may_claim = self.stop.is_none() && self.claiming.is_none() && self.has_room();
            tokio::select! {
                () = told(&mut until), if self.stop.is_none() => self.stop_within_grace(),
                Some(settled) = self.in_hand.next() => self.gather(&settled),
                claimed = answer(&mut self.claiming) => {
                    self.take(claimed);
                    // Nothing is in hand then that would have to go on meanwhile.
                    if self.drains && self.in_hand.is_empty() && self.stop.is_none() && !self.more {
                        self.stop_if_drained().await;
                    }
                }
                () = self.wake.due(), if may_claim => self.start_claim(),
                () = passed(self.stop) => return,
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stop.is_some() && self.in_hand.is_empty() && self.claiming.is_none()
    }

    fn stop_within_grace(&mut self) {
        let now = Instant::now();
        let grace = self.attempts.worker.grace;
        // Longer than any clock is for ever, which is as long as the handlers run.
        self.stop =
            Some(now.checked_add(grace).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into())));
    }

    /// Whether there is room for more. Where there is one writer only once nothing is in hand: a claim that
    /// waits for the writer would come before the renewal of what is in hand, and take that.
    fn has_room(&self) -> bool {
        match self.attempts.turns.is_one() {
            true => self.in_hand.is_empty(),
            false => self.free() > 0,
        }
    }

    fn free(&self) -> usize {
        self.attempts.worker.concurrency.saturating_sub(self.in_hand.len())
    }

    fn start_claim(&mut self) {
        let worker = self.attempts.worker;
        let free = u32::try_from(self.free()).unwrap_or(u32::MAX);
        let asked = if self.batch > 1 { self.batch } else { free };
        let token = LeaseToken::random();
        let (store, consumer) = (worker.inbox.store().clone(), worker.inbox.consumer().clone());
        let (lease, max_attempts, order) = (worker.lease, worker.max_attempts, worker.order);
        let claim = async move {
            let claim =
                Claim { token, ..Claim::new(&consumer, lease, max_attempts).limit(asked).order(order) };
            store.claim(&claim).await
        };
        let task = tokio::spawn(claim.in_current_span());
        self.claiming = Some(Claiming { token, asked, task });
    }

    /// Takes a claim's answer: hands the messages out, and says when to claim next.
    fn take(&mut self, (token, asked, answer): Answer) {
        match answer {
            Ok(rows) => {
                self.more = rows.len() >= asked as usize;
                match rows.is_empty() {
                    true => self.wake.found_nothing(),
                    false => self.wake.found(self.more),
                }
                self.hand_out(token, rows);
            }
            // Another claim was faster, at a level that does not let both go on.
            Err(error) if error.kind() == ErrorKind::Retryable => {
                tracing::debug!(error = as_cause(&error), "the claim lost against another transaction");
                self.wake.lost_a_race();
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(error = as_cause(&error), "no claim possible now, waiting");
                self.wake.failed();
            }
            Err(error) => {
                self.failed = Some(error);
                self.stop_within_grace();
            }
        }
    }

    /// Hands out what can be handled, and sees to what is dead already or cannot be read. Waits for nothing:
    /// the handlers that run would wait too, perhaps with the one lock in hand that is waited for.
    fn hand_out(&mut self, token: LeaseToken, rows: Vec<MessageRow>) {
        let attempts = self.attempts;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            let lease = Lease { sequence: row.sequence, token };
            let key = key_of(&row);
            match StoredMessage::try_from(row) {
                Ok(message) if message.state == State::Dead => {
                    let attempts_spent = message.attempts;
                    tracing::warn!(message_id = %message.id(), attempts_spent, "kept message is dead");
                    self.report.dead += 1;
                    self.report.exhausted += 1;
                    self.in_hand.push(Box::pin(attempts.after_death(message.ordering_key)));
                }
                Ok(message) => {
                    self.report.taken_over += u64::from(was_abandoned(&message));
                    claimed.push(Claimed { lease, message });
                }
                Err(damaged) => self.in_hand.push(Box::pin(attempts.bury(lease, key, damaged))),
            }
        }
        if self.stop.is_some() && !claimed.is_empty() {
            let leases = claimed.iter().map(|one| one.lease).collect();
            return self.in_hand.push(Box::pin(attempts.release(leases)));
        }
        attempts.turns.leased_now();
        attempts.leases.take(&claimed);
        match self.batch {
            1 => self.in_hand.extend(claimed.into_iter().map(|one| attempts.attempt(vec![one]).boxed())),
            _ if claimed.is_empty() => {}
            _ => self.in_hand.push(attempts.attempt(claimed).boxed()),
        }
    }

    /// Counts what an attempt has settled, and sees to it that what it made room for is claimed.
    fn gather(&mut self, settled: &[Settled]) {
        for one in settled {
            match one {
                Settled::Done => self.report.done += 1,
                Settled::Retried(pause) => {
                    self.report.retried += 1;
                    self.wake.within(*pause);
                }
                Settled::Dead => self.report.dead += 1,
                Settled::Lost => self.report.lost += 1,
                Settled::TransactionLost => self.report.transaction_lost += 1,
                Settled::Released => self.report.released += 1,
                Settled::Unsettled => self.report.unsettled += 1,
            }
        }
        let half_is_free = self.free() >= self.attempts.worker.concurrency.div_ceil(2);
        match (self.more, half_is_free) {
            // So that a claim serves several slots; a single one soon.
            (true, true) => self.wake.within(Duration::ZERO),
            (true, false) => self.wake.shortly(),
            // The next message of a key may go on, and whoever drains wants to know whether that was all.
            (false, _) if self.attempts.worker.order.is_some() || self.drains => {
                self.wake.within(Duration::ZERO)
            }
            (false, _) => {}
        }
    }

    async fn stop_if_drained(&mut self) {
        let worker = self.attempts.worker;
        match worker.inbox.store().count(&Count::new(worker.inbox.consumer(), 1)).await {
            Ok(counts) => {
                let pending = counts.iter().any(|one| one.state == State::Pending && one.count > 0);
                if !pending {
                    self.stop_within_grace();
                }
            }
            Err(error) if error.is_retryable() => self.wake.failed(),
            Err(error) => {
                self.failed = Some(error);
                self.stop_within_grace();
            }
        }
    }

    /// Gives back or writes down what the grace did not suffice for.
    async fn end(&mut self) {
        // Rolls back.
        self.in_hand.clear();
        if self.claiming.is_some()
            && let (token, _, Ok(rows)) = answer(&mut self.claiming).await
        {
            let pending = rows.iter().filter(|row| row.state == State::Pending.as_str().as_bytes());
            let leases = pending.map(|row| Lease { sequence: row.sequence, token }).collect();
            self.release(leases).await;
        }
        let left = self.attempts.leases.take_all();
        let waiting = left.iter().filter(|one| !one.begun).map(|one| one.claimed.lease).collect();
        self.release(waiting).await;
        for (at, one) in left.iter().filter(|one| one.begun).enumerate() {
            let text = "the worker was shut down before the handler ended";
            let settled = self.attempts.fail(&one.claimed, text, false, Some(Duration::ZERO)).await;
            self.gather(&[settled]);
            if settled == Settled::Unsettled {
                // A database that is away would hold up the shutdown once for each.
                let begun = left.iter().filter(|one| one.begun).count();
                self.report.unsettled += (begun - at - 1) as u64;
                break;
            }
        }
    }

    async fn release(&mut self, leases: Vec<Lease>) {
        if !leases.is_empty() {
            let settled = self.attempts.release(leases).await;
            self.gather(&settled);
        }
    }
}

/// The key of a row that may be damaged.
fn key_of(row: &MessageRow) -> Option<OrderingKey> {
    let key = String::from_utf8(row.ordering_key.clone()?).ok()?;
    OrderingKey::new(key).ok()
}

/// Whether an earlier worker's lease had run out: the claim has just written that down.
fn was_abandoned(message: &StoredMessage) -> bool {
    let last = message.history.last();
    last.is_some_and(|Incident { kind, attempt, .. }| {
        *kind == IncidentKind::Abandoned && attempt.checked_add(1) == Some(message.attempts)
    })
}

async fn told(until: &mut Until<'_>) {
    match until {
        Until::Told(told) => told.await,
        Until::Drained => std::future::pending().await,
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

type Answer = (LeaseToken, u32, Result<Vec<MessageRow>, Error>);

/// The answer of the claim that is on its way, if one is.
async fn answer(claiming: &mut Option<Claiming>) -> Answer {
    let Some(Claiming { token, asked, task }) = claiming else { return std::future::pending().await };
    let answer = task.await.unwrap_or_else(|failed| {
        let error = Error::new(ErrorKind::Backend, "claim messages").with_source(failed);
        Err(error.with_detail("the claim panicked, or the runtime is shutting down"))
    });
    let answer = (*token, *asked, answer);
    *claiming = None;
    answer
}
