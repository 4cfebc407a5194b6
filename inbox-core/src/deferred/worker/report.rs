//! [`Report`]: the numbers of a run, counted as they come about, whatever ends the attempt that they are of.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::WorkerReport;

/// What became of one claimed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Done,
    /// It waits so long for its next attempt.
    Retried(Duration),
    Dead,
    /// It had spent its attempts before this worker claimed it.
    Exhausted,
    Lost,
    /// Half an effect may be committed; what became of the message is counted beside.
    TransactionLost,
    /// It was given back.
    Released,
    /// The outcome could not be written down.
    Unsettled,
}

#[derive(Default)]
pub(super) struct Report(Mutex<WorkerReport>);

impl Report {
    pub(super) fn count(&self, settled: Settled) {
        self.add(settled, 1);
    }

    pub(super) fn add(&self, settled: Settled, messages: usize) {
        let messages = messages as u64;
        self.change(|report| match settled {
            Settled::Done => report.done += messages,
            Settled::Retried(_) => report.retried += messages,
            Settled::Dead => report.dead += messages,
            Settled::Exhausted => {
                report.dead += messages;
                report.exhausted += messages;
            }
            Settled::Lost => report.lost += messages,
            Settled::TransactionLost => report.transaction_lost += messages,
            Settled::Released => report.released += messages,
            Settled::Unsettled => report.unsettled += messages,
        });
    }

    pub(super) fn count_takeover(&self) {
        self.change(|report| report.taken_over += 1);
    }

    pub(super) fn so_far(&self) -> WorkerReport {
        let mut so_far = WorkerReport::default();
        self.change(|report| so_far = *report);
        so_far
    }

    fn change(&self, change: impl FnOnce(&mut WorkerReport)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
