//! [`BrokenStore`] as a deferred inbox: one fault in keeping, claiming, settling or replaying.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use inbox_core::{
    AfterDead, Begin, Claim, Complete, Consumer, Count, Deferred, Envelope, Error, ErrorKind, Fail, Headers,
    KeepMessages, KeepRequest, Lease, Message, MessageRow, NotBefore, Release, Renew, Renewal, Replay,
    Select, State, StateCount, StoredMessage, Unblock, Watch,
};
use inbox_testkit::postgres::PgTx;
use sqlx::AssertSqlSafe;

use super::broken::BrokenStore;
use super::fault::Fault;

/// The time by which the healthy store tells what is due.
const NOW: &str =
    "(clock_timestamp() + (SELECT shift_micros FROM public.inbox_test_clock) * interval '1 microsecond')";

/// Longer than any case asks for, and shorter than what the cases of extreme times do.
const LONG: Duration = Duration::from_secs(3_000_000_000);

fn backend(doing: &str) -> Error {
    Error::new(ErrorKind::Backend, doing)
}

/// An SQL literal of bytes.
fn bytes(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{hex}'::bytea")
}

fn sequences(leases: &[Lease]) -> String {
    let sequences: Vec<String> = leases.iter().map(|lease| lease.sequence.to_string()).collect();
    format!("ARRAY[{}]::bigint[]", sequences.join(", "))
}

impl BrokenStore {
    /// Runs SQL beside any transaction.
    async fn beside(&self, sql: &str) {
        self.changed(sql).await;
    }

    /// Runs SQL beside any transaction; says how many rows it changed.
    async fn changed(&self, sql: &str) -> u64 {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.replace("{now}", NOW)));
        sql.execute(self.inner.pool()).await.expect("the fault's SQL runs").rows_affected()
    }

    /// What the fault keeps of a message.
    fn kept(&self, envelope: &Envelope) -> Envelope {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(65_535)].to_vec();
        match self.fault {
            Fault::PayloadCut => {
                let headers: Headers =
                    envelope.headers().iter().map(|(name, value)| (name, cut(value))).collect();
                copy(envelope, cut(envelope.payload()), headers, envelope.when())
            }
            Fault::NotBeforeIgnored => same(envelope, NotBefore::Now),
            Fault::TimesInSeconds => match envelope.when() {
                NotBefore::At(time) => {
                    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
                    same(envelope, NotBefore::At(whole))
                }
                _ => envelope.clone(),
            },
            _ => envelope.clone(),
        }
    }

    /// Looks, then takes what it saw.
    async fn claim_by_looking(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        let seen: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT sequence FROM public.inbox_messages
              WHERE consumer = $1 AND state = 'pending' AND due_at <= {NOW} ORDER BY due_at, sequence LIMIT $2"
        )))
        .bind(request.consumer.as_str())
        .bind(i64::from(request.limit))
        .fetch_all(self.inner.pool())
        .await
        .expect("the look");
        // Long enough that whoever claims at the same time looks as well.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.beside(&format!(
            "UPDATE public.inbox_messages SET lease_token = {}, attempts = attempts + 1,
                    due_at = {{now}} + {} * interval '1 second'
              WHERE sequence = ANY (ARRAY{seen:?}::bigint[])",
            bytes(request.token.as_bytes()),
            request.lease.as_secs(),
        ))
        .await;
        let pending = Select::InState {
            state: State::Pending,
            event_type: None,
            older_than: None,
            after: None,
            limit: 10_000,
            payloads: true,
        };
        let rows = self.inner.select(request.consumer, &pending).await?;
        Ok(rows.into_iter().filter(|row| seen.contains(&row.sequence)).collect())
    }

    /// What the fault does before a claim.
    async fn before_claim(&self, request: &Claim<'_>) -> Result<(), Error> {
        let leased = |due_at: &str| {
            format!(
                "UPDATE public.inbox_messages SET due_at = {due_at} WHERE sequence IN
                 (SELECT sequence FROM public.inbox_messages WHERE lease_token IS NOT NULL FOR UPDATE SKIP LOCKED)"
            )
        };
        match self.fault {
            Fault::LeaseIgnored => self.beside(&leased("{now}")).await,
            Fault::LeaseOfTheClaimer => {
                let lease = request.lease.as_secs();
                let due_at = format!("LEAST(due_at, {{now}} + {lease} * interval '1 second')");
                self.beside(&leased(&due_at)).await;
            }
            Fault::ClaimWaitsForLocked => {
                let lock = "BEGIN; SET LOCAL lock_timeout = '500ms';
                            SELECT 1 FROM public.inbox_messages WHERE state = 'pending' FOR UPDATE; COMMIT";
                let mut connection = self.inner.pool().acquire().await.expect("a connection");
                if sqlx::raw_sql(lock).execute(&mut *connection).await.is_err() {
                    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.expect("rollback");
                    return Err(Error::new(ErrorKind::Busy, request.doing()));
                }
            }
            Fault::ClaimLeaks => self.begin_unknown_to_the_pool().await.expect("the leaking begin"),
            Fault::LeaseUnclamped if request.lease > LONG => return Err(backend("add so long a lease")),
            _ => {}
        }
        Ok(())
    }

    /// What the fault makes of the rows that were claimed.
    async fn after_claim(
        &self,
        request: &Claim<'_>,
        mut rows: Vec<MessageRow>,
    ) -> Result<Vec<MessageRow>, Error> {
        let token = bytes(request.token.as_bytes());
        match self.fault {
            Fault::AttemptNotCounted => {
                self.beside(&format!(
                    "UPDATE public.inbox_messages SET attempts = attempts - 1 WHERE lease_token = {token}"
                ))
                .await;
                rows.iter_mut().for_each(|row| row.attempts -= 1);
            }
            Fault::HistoryForgotten => {
                self.beside(&format!(
                    "UPDATE public.inbox_messages SET history = '' WHERE lease_token = {token}"
                ))
                .await;
            }
            Fault::ClaimWithoutPayload => rows.iter_mut().for_each(|row| row.payload.clear()),
            Fault::ClaimBySequence => {
                // What was claimed once is never gone back to.
                let last = self.last_claimed(rows.iter().map(|row| row.sequence).max());
                let late = |row: &MessageRow| last.is_some_and(|last| row.sequence < last);
                self.give_back(request, &mut rows, late).await?;
            }
            Fault::ClaimReadsFirstRows => {
                let beyond: HashSet<i64> = sqlx::query_scalar(
                    "SELECT sequence FROM public.inbox_messages WHERE state = 'pending' ORDER BY sequence OFFSET 200",
                )
                .fetch_all(self.inner.pool())
                .await
                .expect("the look")
                .into_iter()
                .collect();
                self.give_back(request, &mut rows, |row| beyond.contains(&row.sequence)).await?;
            }
            Fault::OrderIgnored => rows.reverse(),
            Fault::PostponedForEver if request.order.is_some() => {
                self.beside(
                    "UPDATE public.inbox_messages SET due_at = 'infinity'
                      WHERE state = 'pending' AND lease_token IS NULL AND due_at > {now} AND not_before <= {now}",
                )
                .await;
                // Infinity is beyond what a row can be read with.
                self.beside(
                    "UPDATE public.inbox_messages SET due_at = '9000-01-01' WHERE due_at = 'infinity'",
                )
                .await;
            }
            Fault::DamagedDropped => rows.retain(|row| StoredMessage::try_from(row.clone()).is_ok()),
            _ => {}
        }
        Ok(rows)
    }

    async fn give_back(
        &self,
        request: &Claim<'_>,
        rows: &mut Vec<MessageRow>,
        which: impl Fn(&MessageRow) -> bool,
    ) -> Result<(), Error> {
        let given: Vec<Lease> = rows
            .iter()
            .filter(|row| which(row))
            .map(|row| Lease { sequence: row.sequence, token: request.token })
            .collect();
        self.inner.release(&Release::new(request.consumer, &given)).await?;
        rows.retain(|row| !which(row));
        Ok(())
    }
}

/// A copy of a message with other content.
fn copy(envelope: &Envelope, payload: Vec<u8>, headers: Headers, when: NotBefore) -> Envelope {
    let message: Message = envelope.message().clone();
    let mut copy = Envelope::new(message, payload).with_headers(headers);
    if let Some(content_type) = envelope.content_type() {
        copy = copy.with_content_type(content_type.clone());
    }
    if let Some(key) = envelope.ordering_key() {
        copy = copy.with_ordering_key(key.clone());
    }
    match when {
        NotBefore::Now => copy,
        NotBefore::At(time) => copy.not_before(time),
        NotBefore::After(delay) => copy.delayed(delay),
    }
}

fn same(envelope: &Envelope, when: NotBefore) -> Envelope {
    copy(envelope, envelope.payload().to_vec(), envelope.headers().clone(), when)
}

#[async_trait]
impl KeepMessages<PgTx> for BrokenStore {
    async fn keep(&self, tx: &mut PgTx, request: &KeepRequest<'_>) -> Result<(), Error> {
        let mut envelopes: Vec<Envelope> = request.envelopes.iter().map(|one| self.kept(one)).collect();
        let extreme = |one: &Envelope| match one.when() {
            NotBefore::Now => false,
            NotBefore::At(time) => {
                time.duration_since(SystemTime::UNIX_EPOCH).map_or(true, |at| at > 3 * LONG)
            }
            NotBefore::After(delay) => delay > LONG,
        };
        if self.fault == Fault::TimesUnclamped && envelopes.iter().any(extreme) {
            return Err(backend("keep such a time"));
        }
        if self.fault == Fault::KeepReversed {
            envelopes.reverse();
        }
        let kept: Vec<&Envelope> = envelopes.iter().collect();
        let changed = KeepRequest::new(request.consumer, &kept);
        match self.fault {
            Fault::KeepsNothing => Ok(()),
            Fault::KeepsElsewhere => {
                let mut other = self.inner.begin(None).await?;
                self.inner.keep(&mut other, &changed).await?;
                other.commit().await.map_err(|error| backend("commit elsewhere").with_source(error))
            }
            Fault::KeepErrorSwallowed => {
                let _ = self.inner.keep(tx, &changed).await;
                Ok(())
            }
            _ => self.inner.keep(tx, &changed).await,
        }
    }
}

#[async_trait]
impl Deferred for BrokenStore {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        self.before_claim(request).await?;
        let lower = Consumer::new(request.consumer.as_str().to_lowercase()).expect("valid");
        let mut changed = *request;
        match self.fault {
            Fault::ClaimLooksFirst => return self.claim_by_looking(request).await,
            Fault::ClaimTakesAll => changed.limit = 10_000,
            Fault::ExhaustedNeverDead => changed.max_attempts = i32::MAX.unsigned_abs(),
            Fault::ClaimFoldsConsumers => changed.consumer = &lower,
            Fault::OrderIgnored => changed.order = None,
            Fault::OrderAlways => changed.order = Some(AfterDead::Block),
            Fault::AfterDeadSwapped => {
                changed.order = request.order.map(|order| match order {
                    AfterDead::Block => AfterDead::Pass,
                    AfterDead::Pass => AfterDead::Block,
                });
            }
            Fault::ClaimByAnotherClock => {
                let shift: i64 = sqlx::query_scalar("SELECT shift_micros FROM public.inbox_test_clock")
                    .fetch_one(self.inner.pool())
                    .await
                    .expect("the clock");
                self.beside("UPDATE public.inbox_test_clock SET shift_micros = 0").await;
                let rows = self.inner.claim(request).await;
                self.beside(&format!("UPDATE public.inbox_test_clock SET shift_micros = {shift}")).await;
                return rows;
            }
            _ => {}
        }
        let rows = self.inner.claim(&changed).await?;
        self.after_claim(request, rows).await
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        match self.fault {
            Fault::RenewNothing => Ok(vec![Renewal::Renewed; request.leases.len()]),
            Fault::ClaimLeaks => {
                self.begin_unknown_to_the_pool().await.expect("the leaking begin");
                self.inner.renew(request).await
            }
            Fault::RenewUnfenced => {
                self.beside(&format!(
                    "UPDATE public.inbox_messages SET due_at = {{now}} + {} * interval '1 second' WHERE sequence IN
                     (SELECT sequence FROM public.inbox_messages
                       WHERE sequence = ANY ({}) FOR UPDATE SKIP LOCKED)",
                    request.lease.as_secs(),
                    sequences(request.leases),
                ))
                .await;
                Ok(vec![Renewal::Renewed; request.leases.len()])
            }
            _ => self.inner.renew(request).await,
        }
    }

    async fn complete(&self, tx: &mut PgTx, request: &Complete<'_>) -> Result<Vec<bool>, Error> {
        match self.fault {
            Fault::CompleteUnfenced => {
                let sql = format!(
                    "UPDATE public.inbox_messages SET state = 'done', lease_token = NULL, state_since = {NOW}
                      WHERE sequence = ANY ({})",
                    sequences(request.leases)
                );
                self.raw(tx, &sql).await;
                Ok(vec![true; request.leases.len()])
            }
            Fault::CompleteElsewhere | Fault::EffectLost => {
                let mut other = self.inner.begin(None).await?;
                let held = self.inner.complete(&mut other, request).await?;
                other.commit().await.map_err(|error| backend("commit elsewhere").with_source(error))?;
                Ok(held)
            }
            Fault::CompleteJudgesTime => {
                let sql = format!(
                    "SELECT NOT EXISTS (SELECT FROM public.inbox_messages
                                         WHERE sequence = ANY ({}) AND due_at <= {NOW})",
                    sequences(request.leases)
                );
                let holds: bool =
                    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut **tx).await.expect("the look");
                match holds {
                    true => self.inner.complete(tx, request).await,
                    false => Ok(vec![false; request.leases.len()]),
                }
            }
            _ => self.inner.complete(tx, request).await,
        }
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        let mut changed = *request;
        match self.fault {
            Fault::FailUnfenced => {
                let state = if request.retry_after.is_some() { "pending" } else { "dead" };
                self.beside(&format!(
                    "UPDATE public.inbox_messages SET state = '{state}', lease_token = NULL WHERE sequence = {}",
                    request.lease.sequence
                ))
                .await;
                return Ok(());
            }
            Fault::RetryLater => {
                changed.retry_after = request.retry_after.map(|after| after + Duration::from_secs(36_000));
            }
            Fault::RetryAtOnce => changed.retry_after = request.retry_after.map(|_| Duration::ZERO),
            Fault::ErrorNotKept => changed.error_json = "\"failed\"",
            _ => {}
        }
        self.inner.fail(&changed).await
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        // Before, so that whoever sees the message given back sees it spent.
        if self.fault == Fault::ReleaseSpends {
            let spend = format!(
                "UPDATE public.inbox_messages SET attempts = attempts + 1 WHERE sequence = ANY ({})",
                sequences(request.leases)
            );
            self.beside(&spend).await;
        }
        let released = match self.fault {
            Fault::ReleaseUnfenced => {
                let release = format!(
                    "UPDATE public.inbox_messages SET lease_token = NULL, attempts = attempts - 1, due_at = not_before
                      WHERE sequence = ANY ({})",
                    sequences(request.leases)
                );
                return Ok(self.changed(&release).await);
            }
            _ => self.inner.release(request).await?,
        };
        Ok(released)
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        match self.fault {
            Fault::UnblocksNothing => return Ok(()),
            Fault::UnblockMakesDue => {
                for key in request.keys {
                    let key = key.as_str();
                    self.beside(&format!(
                        "UPDATE public.inbox_messages SET due_at = {{now}} WHERE state = 'pending' AND ordering_key = '{key}'"
                    ))
                    .await;
                }
            }
            _ => {}
        }
        self.inner.unblock(request).await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        let mut changed = *request;
        let meant = self.inner.select(request.consumer, &request.which).await?;
        match (self.fault, &mut changed.which) {
            (Fault::ReplayIgnoresFilter, Select::InState { event_type, older_than, .. }) => {
                (*event_type, *older_than) = (None, None);
            }
            (Fault::ReplayOfDeadOnly, _) if meant.iter().any(|row| row.state == b"done") => return Ok(0),
            // Long enough that whoever replays at the same time looks as well.
            (Fault::ReplayLooksFirst, _) => tokio::time::sleep(Duration::from_millis(100)).await,
            _ => {}
        }
        let replayed = self.inner.replay(&changed).await?;
        match self.fault {
            Fault::ReplayLooksFirst => return Ok(meant.len() as u64),
            Fault::ReplayCountsAnew => {
                self.beside("UPDATE public.inbox_messages SET attempts = 0, allowed = NULL").await;
            }
            Fault::ReplayForgetsHistory => self.beside("UPDATE public.inbox_messages SET history = ''").await,
            Fault::ReplayWithinTheLimit => {
                self.beside("UPDATE public.inbox_messages SET allowed = NULL").await
            }
            Fault::ReplayForgetsRegistration => self.beside("DELETE FROM public.inbox").await,
            Fault::AgeFromReceiving => {
                self.beside("UPDATE public.inbox_messages SET state_since = received_at").await;
            }
            _ => {}
        }
        Ok(replayed)
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        let mut changed = *which;
        match (self.fault, &mut changed) {
            (Fault::ListingIgnoresFilter, Select::InState { event_type, older_than, .. }) => {
                (*event_type, *older_than) = (None, None);
            }
            (Fault::PagesByTime, Select::InState { after: Some((_, sequence)), .. }) => *sequence = i64::MAX,
            _ => {}
        }
        let rows = self.inner.select(consumer, &changed).await?;
        let damaged = rows.iter().any(|row| StoredMessage::try_from(row.clone()).is_err());
        match self.fault == Fault::DamagedHidesAll && damaged {
            true => Err(backend("read a row")),
            false => Ok(rows),
        }
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        match self.fault {
            Fault::CountsAll => self.inner.count(&Count::new(request.consumer, 10_000)).await,
            _ => self.inner.count(request).await,
        }
    }

    async fn watch(&self, consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        self.inner.watch(consumer).await
    }
}
