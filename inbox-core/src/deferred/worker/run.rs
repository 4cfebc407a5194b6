//! The worker's loop: claim, hand out, gather, and end.

use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::attempt::{Attempts, as_cause};
use super::handler::Work;
use super::leases::{Claimed, InHand, Leases, answered};
use super::report::{Report, Settled};
use super::turns::Turns;
use super::wake::{Wake, after};
use super::{Worker, WorkerReport};
use crate::{
    BoxFuture, Claim, Consumer, Count, Deferred, Error, ErrorKind, InboxStore, Incident, IncidentKind, Lease,
    LeaseToken, MessageRow, OrderingKey, Release, State, StoredMessage, Waits,
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
    let report = Report::default();
    let attempts = Attempts { worker, work, leases: &leases, turns: &turns, report: &report };
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
    };
    run.work(until).await;
    run.end().await;
    match run.failed {
        Some(error) => Err(error),
        None => Ok(report.so_far()),
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
}

/// A claim on its way, in a task of its own: what it leases is given back where nobody waits for it any more.
struct Claiming {
    token: LeaseToken,
    asked: u32,
    answer: oneshot::Receiver<Result<Vec<MessageRow>, Error>>,
}

/// How long the end of a run takes at most, after the grace.
const END: Duration = Duration::from_secs(5);

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
        self.stop = Some(after(self.attempts.worker.grace));
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
        let (tell, answer) = oneshot::channel();
        let claim = async move {
            let claim =
                Claim { token, ..Claim::new(&consumer, lease, max_attempts).limit(asked).order(order) };
            let claimed = answered(lease, &claim.doing(), store.claim(&claim)).await;
            if let Err(Ok(rows)) = tell.send(claimed) {
                give_back(&store, &consumer, token, &rows).await;
            }
        };
        tokio::spawn(claim.in_current_span());
        self.claiming = Some(Claiming { token, asked, answer });
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
            Err(error) => self.wait_out(error),
        }
    }

    /// Waits before the next claim; only a table that is not as it has to be is not waited for.
    fn wait_out(&mut self, error: Error) {
        match error.kind() {
            ErrorKind::Schema => {
                self.failed = Some(error);
                self.stop_within_grace();
            }
            // Another transaction was faster. A busy one was waited for long enough.
            ErrorKind::Retryable | ErrorKind::Busy => {
                tracing::debug!(error = as_cause(&error), "the claim lost against another transaction");
                self.wake.lost_a_race();
            }
            _ if error.is_retryable() => {
                tracing::warn!(error = as_cause(&error), "no claim possible now, waiting");
                self.wake.failed();
            }
            _ => {
                tracing::error!(error = as_cause(&error), "no claim possible, waiting");
                self.wake.failed();
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
                    attempts.report.count(Settled::Exhausted);
                    self.in_hand.push(Box::pin(attempts.after_death(message.ordering_key)));
                }
                Ok(message) => {
                    if was_abandoned(&message) {
                        attempts.report.count_takeover();
                    }
                    claimed.push(Claimed { lease, message });
                }
                Err(damaged) => self.in_hand.push(Box::pin(attempts.bury(lease, key, damaged))),
            }
        }
        attempts.turns.leased_now();
        attempts.leases.take(&claimed);
        if self.stop.is_some() {
            return; // The end gives them back.
        }
        match self.batch {
            1 => self.in_hand.extend(claimed.into_iter().map(|one| attempts.attempt(vec![one]).boxed())),
            _ if claimed.is_empty() => {}
            _ => self.in_hand.push(attempts.attempt(claimed).boxed()),
        }
    }

    /// Sees to it that what an attempt made room for is claimed, and what it has put off at its time.
    fn gather(&mut self, settled: &[Settled]) {
        for one in settled {
            if let Settled::Retried(pause) = one {
                self.wake.within(*pause);
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
            Err(error) => self.wait_out(error),
        }
    }

    /// Gives back or writes down what the grace did not suffice for, as far as that can be done at once.
    async fn end(&mut self) {
        // Rolls back; a claim on its way gives back what it gets.
        self.in_hand.clear();
        self.claiming = None;
        let left = self.attempts.leases.take_all();
        let mut open = left.len();
        if tokio::time::timeout(END, settle_at_end(self.attempts, &left, &mut open)).await.is_err() {
            tracing::warn!(messages = open, "the end took too long, the leases of what is left run out");
        }
        self.attempts.report.add(Settled::Unsettled, open);
    }
}

/// Counts down how many are still `open`.
async fn settle_at_end<S: Deferred + Clone + 'static>(
    attempts: Attempts<'_, S>,
    left: &[InHand],
    open: &mut usize,
) {
    let waiting: Vec<Lease> = left.iter().filter(|one| !one.begun).map(|one| one.claimed.lease).collect();
    if !waiting.is_empty() {
        attempts.release(&waiting).await;
        *open -= waiting.len();
    }
    for one in left.iter().filter(|one| one.begun) {
        let text = "the worker was shut down before the handler ended";
        let settled = attempts.fail(&one.claimed, text, false, Some(Duration::ZERO)).await;
        attempts.report.count(settled);
        *open -= 1;
    }
}

/// Gives back what was claimed for a worker that has gone meanwhile.
async fn give_back<S: Deferred>(store: &S, consumer: &Consumer, token: LeaseToken, rows: &[MessageRow]) {
    let pending = rows.iter().filter(|row| row.state == State::Pending.as_str().as_bytes());
    let leases: Vec<Lease> = pending.map(|row| Lease { sequence: row.sequence, token }).collect();
    if leases.is_empty() {
        return;
    }
    if let Err(error) = store.release(&Release::new(consumer, &leases)).await {
        tracing::warn!(error = as_cause(&error), "messages not given back, their leases run out");
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
    let Some(Claiming { token, asked, answer }) = claiming else { return std::future::pending().await };
    let answer = answer.await.unwrap_or_else(|gone| {
        let error = Error::new(ErrorKind::Backend, "claim messages").with_source(gone);
        Err(error.with_detail("the claim panicked, or the runtime is shutting down"))
    });
    let answer = (*token, *asked, answer);
    *claiming = None;
    answer
}
