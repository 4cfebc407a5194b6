//! [`BrokenMySqlStore`] as a deferred inbox: one fault in claiming, settling or replaying, as its SQL is
//! easily written here.

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Claim, Complete, Consumer, Count, Deferred, Error, ErrorKind, Fail, KeepMessages, KeepRequest, Lease,
    MessageRow, Release, Renew, Renewal, Replay, Select, State, StateCount, Unblock, Watch,
};
use inbox_testkit::mysql::{self as blocks, LEVELS, MySqlTx};
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::broken::{BrokenMySqlStore, driver, raw};
use super::fault::Fault;

/// The time by which the healthy store tells what is due.
const NOW: &str = "(UTC_TIMESTAMP(6) + INTERVAL (SELECT shift_micros FROM inbox_test_clock) MICROSECOND)";

/// Long enough that whoever does the same at the same time looks as well.
const SLOW: Duration = Duration::from_millis(100);

/// Sequences as a list; never empty.
fn list(sequences: impl IntoIterator<Item = i64>) -> String {
    // No row's.
    sequences.into_iter().fold("0".to_owned(), |list, sequence| format!("{list}, {sequence}"))
}

fn sequences(leases: &[Lease]) -> String {
    list(leases.iter().map(|lease| lease.sequence))
}

async fn read(connection: &mut MySqlConnection, sql: String) -> Result<Vec<i64>, Error> {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(connection).await.map_err(driver)
}

impl BrokenMySqlStore {
    /// Runs SQL beside any transaction; says how many rows matched.
    async fn beside(&self, sql: &str) -> Result<u64, Error> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(self.inner.pool()).await;
        done.map(|done| done.rows_affected()).map_err(driver)
    }

    /// A SELECT, then an UPDATE.
    async fn claim_itself(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        let (order, lock) = match self.fault {
            Fault::ClaimLooksFirst => ("due_at, sequence", ""),
            Fault::ClaimWaitsForLocked => ("due_at, sequence", "FOR UPDATE"),
            _ => ("sequence", "FOR UPDATE SKIP LOCKED"),
        };
        let (consumer, limit) = (request.consumer, request.limit);
        let (lease, token) = (request.lease.as_secs(), hex(request.token.as_bytes()));
        let read_committed = &LEVELS[1];
        let tx = blocks::begin_at(self.inner.pool(), read_committed).await;
        let mut tx = tx.map_err(|error| Error::new(ErrorKind::Backend, "begin").with_source(error))?;
        raw(&mut tx, "SET innodb_lock_wait_timeout = 1").await?;
        let due = format!(
            "SELECT sequence FROM inbox_messages
              WHERE consumer = '{consumer}' AND state = 'pending' AND due_at <= {NOW}
              ORDER BY {order} LIMIT {limit} {lock}"
        );
        let due = read(&mut tx, due).await?;
        if self.fault == Fault::ClaimLooksFirst {
            tokio::time::sleep(SLOW).await;
        }
        let take = format!(
            "UPDATE inbox_messages
                SET lease_token = {token}, attempts = attempts + 1, due_at = {NOW} + INTERVAL {lease} SECOND
              WHERE sequence IN ({})",
            list(due.iter().copied()),
        );
        raw(&mut tx, &take).await?;
        tx.commit().await.map_err(driver)?;
        let pending = Select::InState {
            state: State::Pending,
            event_type: None,
            older_than: None,
            after: None,
            limit: 10_000,
            payloads: true,
        };
        let rows = self.inner.select(consumer, &pending).await?;
        Ok(rows.into_iter().filter(|row| due.contains(&row.sequence)).collect())
    }

    /// Looks which are dead or done, then writes by their sequences.
    async fn replay_looking_first(&self, request: &Replay<'_>) -> Result<u64, Error> {
        let meant = self.inner.select(request.consumer, &request.which).await?;
        let meant = list(meant.iter().filter(|row| row.state != b"pending").map(|row| row.sequence));
        tokio::time::sleep(SLOW).await;
        let replay = format!(
            "UPDATE inbox_messages
                SET state = 'pending', allowed = attempts + 1, due_at = {NOW}, not_before = {NOW}, state_since = {NOW}
              WHERE sequence IN ({meant})"
        );
        self.beside(&replay).await
    }
}

/// An SQL literal of bytes.
fn hex(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{hex}'")
}

#[async_trait]
impl KeepMessages<MySqlTx> for BrokenMySqlStore {
    async fn keep(&self, tx: &mut MySqlTx, request: &KeepRequest<'_>) -> Result<(), Error> {
        self.inner.keep(tx, request).await
    }
}

#[async_trait]
impl Deferred for BrokenMySqlStore {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        match self.fault {
            Fault::ClaimLooksFirst | Fault::ClaimWaitsForLocked | Fault::ClaimBySequence => {
                self.claim_itself(request).await
            }
            Fault::AbandonedForgotten => {
                // Takes expired leases off, so that the claim finds none.
                let expired = format!("UPDATE inbox_messages SET lease_token = NULL WHERE due_at <= {NOW}");
                self.beside(&expired).await?;
                self.inner.claim(request).await
            }
            _ => self.inner.claim(request).await,
        }
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        self.inner.renew(request).await
    }

    async fn complete(&self, tx: &mut MySqlTx, request: &Complete<'_>) -> Result<Vec<bool>, Error> {
        match self.fault {
            Fault::CompleteUnfenced => {
                let complete = format!(
                    "UPDATE inbox_messages SET state = 'done', lease_token = NULL, state_since = {NOW}
                      WHERE sequence IN ({})",
                    sequences(request.leases),
                );
                raw(tx, &complete).await?;
                Ok(vec![true; request.leases.len()])
            }
            _ => self.inner.complete(tx, request).await,
        }
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        match (self.fault, self.inner.fail(request).await) {
            (Fault::LostLeaseIsOk, Err(error)) if error.kind() == ErrorKind::LeaseLost => Ok(()),
            (_, answer) => answer,
        }
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        self.inner.release(request).await
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        self.inner.unblock(request).await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        match self.fault {
            Fault::ReplayLooksFirst => self.replay_looking_first(request).await,
            _ => self.inner.replay(request).await,
        }
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        self.inner.select(consumer, which).await
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        self.inner.count(request).await
    }

    async fn watch(&self, consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        self.inner.watch(consumer).await
    }
}
