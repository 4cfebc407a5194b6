//! [`BrokenStore`]: the PostgreSQL store with one fault put in.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use inbox_core::{
    Administer, Begin, BoxFuture, Capabilities, Consumer, DEFAULT_WAIT, End, Error, ErrorKind, EventType,
    Guard, InboxStore, Message, MessageId, Original, Register, RegisterBatch, Registration, Transactional,
    register_one_by_one,
};
use inbox_postgres::PostgresStore;
use inbox_testkit::postgres::PgTx;
use sqlx::{AssertSqlSafe, Executor};

use super::fault::Fault;

/// The PostgreSQL store with one fault.
pub(crate) struct BrokenStore {
    pub(crate) inner: PostgresStore,
    pub(crate) fault: Fault,
    remembered: Mutex<HashSet<(Consumer, MessageId)>>,
    last_claimed: Mutex<Option<i64>>,
}

impl AsRef<PostgresStore> for BrokenStore {
    fn as_ref(&self) -> &PostgresStore {
        &self.inner
    }
}

impl BrokenStore {
    pub(crate) fn new(inner: PostgresStore, fault: Fault) -> Self {
        Self { inner, fault, remembered: Mutex::default(), last_claimed: Mutex::default() }
    }

    /// What the fault makes of a key.
    fn key(&self, consumer: &Consumer, id: &MessageId) -> (Consumer, MessageId) {
        let (c, i) = (consumer.as_str(), id.as_str());
        let id_as = |text: String| (consumer.clone(), MessageId::new(text).unwrap_or_else(|_| id.clone()));
        match self.fault {
            Fault::ConsumerIgnored => (Consumer::new("all").expect("valid"), id.clone()),
            Fault::KeyConcatenated => {
                let joined = format!("{c}{i}");
                (Consumer::new("all").expect("valid"), MessageId::new(joined).unwrap_or_else(|_| id.clone()))
            }
            Fault::ConsumerCaseFolded => (Consumer::new(c.to_lowercase()).expect("valid"), id.clone()),
            Fault::IdCut => id_as(i.chars().take(64).collect()),
            Fault::IdCaseFolded => id_as(i.to_lowercase()),
            Fault::IdTrimmed => id_as(i.trim().to_owned()),
            Fault::IdAccentsStripped => {
                id_as(i.replace('é', "e").replace("e\u{301}", "e").replace('ß', "ss"))
            }
            Fault::IdAstralMerged => id_as(i.chars().map(|c| if c > '\u{ffff}' { '?' } else { c }).collect()),
            Fault::IdReadAsNumber => id_as(i.parse::<f64>().map_or_else(|_| i.to_owned(), |n| n.to_string())),
            _ => (consumer.clone(), id.clone()),
        }
    }

    /// What the fault makes of a message, key apart.
    fn content(&self, id: MessageId, message: &Message) -> Message {
        let event_type = match self.fault {
            Fault::EventTypeTrimmed => EventType::new(message.event_type().as_str().trim()).expect("valid"),
            _ => message.event_type().clone(),
        };
        let changed = Message::new(id, event_type.as_str()).expect("valid");
        match message.fingerprint() {
            Some(fingerprint) if self.fault != Fault::FingerprintNotKept => {
                changed.with_fingerprint(fingerprint)
            }
            _ => changed,
        }
    }

    fn wait(&self, wait: Option<Duration>) -> Option<Duration> {
        match self.fault {
            Fault::WaitsForEver => Some(Duration::from_secs(3600)),
            Fault::NeverWaits => Some(Duration::ZERO),
            Fault::WaitIgnored => None,
            _ => wait,
        }
    }

    /// The last sequence that was claimed before this one.
    pub(crate) fn last_claimed(&self, now: Option<i64>) -> Option<i64> {
        let mut last = self.last_claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *last;
        *last = before.max(now);
        before
    }

    pub(crate) async fn raw(&self, tx: &mut PgTx, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **tx).await.expect("the fault's SQL runs");
    }

    /// The registration itself, with the faults that lie in where and how it is done.
    async fn insert(&self, tx: &mut PgTx, request: &Register<'_>) -> Result<Registration, Error> {
        match self.fault {
            Fault::CheckThenInsert => {
                let seen = self.peek(tx, request).await;
                // A slow check: long enough that a copy which arrives at the same time looks as well.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let answer = self.inner.register_if_new(tx, request).await?;
                Ok(if seen { answer } else { Registration::New })
            }
            Fault::Autocommits => {
                self.raw(tx, "COMMIT").await;
                let answer = self.inner.register_if_new(tx, request).await;
                self.raw(tx, "BEGIN").await;
                answer
            }
            Fault::OtherConnection => {
                let mut other = self.inner.begin(None).await?;
                let answer = self.inner.register_if_new(&mut other, &request.guard(Guard::Outside)).await?;
                other.commit().await.expect("the other connection commits");
                Ok(answer)
            }
            Fault::Unqualified => self.insert_unqualified(tx, request).await,
            Fault::BusyKeepsTransaction => {
                self.raw(tx, "SAVEPOINT only_this").await;
                let answer = self.inner.register_if_new(tx, request).await;
                if answer.is_err() {
                    self.raw(tx, "ROLLBACK TO SAVEPOINT only_this").await;
                }
                answer
            }
            Fault::CommitBySavepoint => {
                let answer = self.inner.register_if_new(tx, request).await?;
                if answer.is_new() {
                    self.raw(tx, "SAVEPOINT guard").await;
                }
                Ok(answer)
            }
            _ => self.inner.register_if_new(tx, request).await,
        }
    }

    /// Dropped in between, the connection goes back to the pool with a transaction in it.
    pub(crate) async fn begin_unknown_to_the_pool(&self) -> Result<(), sqlx::Error> {
        // More often than any case polls: whoever drops a begin at one place after the other meets it.
        const YIELDS: usize = 64;
        let mut connection = self.inner.pool().acquire().await?;
        sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.map(drop)
    }

    async fn peek(&self, tx: &mut PgTx, request: &Register<'_>) -> bool {
        let found = sqlx::query("SELECT 1 FROM public.inbox WHERE consumer = $1 AND message_id = $2")
            .bind(request.consumer.as_str())
            .bind(request.message.id().as_str());
        found.fetch_optional(&mut **tx).await.expect("the look").is_some()
    }

    async fn insert_unqualified(&self, tx: &mut PgTx, request: &Register<'_>) -> Result<Registration, Error> {
        // Where the search path finds another table first, the registration lands there.
        let shadowed: bool =
            sqlx::query_scalar("SELECT to_regclass('inbox') IS DISTINCT FROM to_regclass('public.inbox')")
                .fetch_one(&mut **tx)
                .await
                .map_err(|error| Error::new(ErrorKind::Backend, "look for a shadow").with_source(error))?;
        if !shadowed {
            return self.inner.register_if_new(tx, request).await;
        }
        let insert = sqlx::query(
            "INSERT INTO inbox (consumer, message_id, event_type) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(request.consumer.as_str())
        .bind(request.message.id().as_str())
        .bind(request.message.event_type().as_str());
        insert.execute(&mut **tx).await.expect("the shadow takes it");
        self.raw(tx, "SELECT set_config('inbox.registered', (coalesce(nullif(current_setting('inbox.registered', true), ''), '0')::int + 1)::text, true)").await;
        Ok(Registration::New)
    }

    /// What the fault makes of an answer.
    async fn answer(
        &self,
        tx: &mut PgTx,
        request: &Register<'_>,
        answer: Result<Registration, Error>,
    ) -> Result<Registration, Error> {
        let made_up = || Registration::Duplicate(Original::new("made up", SystemTime::now(), None));
        let key = (request.consumer.clone(), request.message.id().clone());
        match (self.fault, answer) {
            (Fault::AlwaysNew | Fault::KeepsDuplicates, Ok(_)) => Ok(Registration::New),
            (Fault::AlwaysDuplicate, Ok(_)) => Ok(made_up()),
            (Fault::RemembersInProcess, Ok(answer)) => {
                let first = self.remembered.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
                Ok(if answer.is_new() && !first { made_up() } else { answer })
            }
            (Fault::ErrorAsDuplicate, Err(_)) => Ok(made_up()),
            (Fault::InFlightAsDuplicate, Err(error)) if error.kind() == ErrorKind::Busy => Ok(made_up()),
            (Fault::SwallowedAsDuplicate, Err(error)) if error.kind() == ErrorKind::Unconfirmed => {
                Ok(made_up())
            }
            (Fault::SwallowedAsNew, Err(error)) if error.kind() == ErrorKind::Unconfirmed => {
                Ok(Registration::New)
            }
            (_, Ok(Registration::Duplicate(original))) => Ok(self.duplicate(tx, request, original).await),
            (Fault::FingerprintIgnored | Fault::KeepsMismatches, Ok(Registration::Mismatch(original))) => {
                Ok(Registration::Duplicate(original))
            }
            (_, answer) => self.classify(answer),
        }
    }

    async fn duplicate(&self, tx: &mut PgTx, request: &Register<'_>, mut original: Original) -> Registration {
        match self.fault {
            Fault::OriginalIsTheCallers => original.event_type = request.message.event_type().to_string(),
            Fault::OriginalReadAtNow => original.registered_at = SystemTime::now(),
            Fault::OriginalOverwritten => {
                let update = sqlx::query(
                    "UPDATE public.inbox SET event_type = $3, registered_at = clock_timestamp()
                      WHERE consumer = $1 AND message_id = $2",
                )
                .bind(request.consumer.as_str())
                .bind(request.message.id().as_str())
                .bind(request.message.event_type().as_str());
                // A snapshot level may refuse it, as it would refuse such a store.
                let _ = update.execute(&mut **tx).await;
            }
            Fault::DuplicateAborts => self.inner.condemn(tx).await,
            // Only if nobody else writes, so that the fault is no deadlock besides.
            Fault::DuplicateLocksTable => {
                let lock = "DO $$ BEGIN LOCK TABLE public.inbox IN EXCLUSIVE MODE NOWAIT;
                            EXCEPTION WHEN lock_not_available THEN NULL; END $$";
                self.raw(tx, lock).await;
            }
            Fault::MissingFingerprintMismatches if original.fingerprint != request.message.fingerprint() => {
                return Registration::Mismatch(original);
            }
            _ => {}
        }
        Registration::Duplicate(original)
    }

    fn classify<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match self.fault {
            Fault::EveryErrorPermanent => {
                answer.map_err(|error| Error::new(ErrorKind::Backend, "do it").with_source(error))
            }
            Fault::EveryErrorRetryable => {
                answer.map_err(|error| Error::new(ErrorKind::Retryable, "do it").with_source(error))
            }
            _ => answer,
        }
    }

    /// The faults of a whole batch; `answers` are right.
    fn batch(
        &self,
        messages: &[Message],
        mut answers: Vec<Registration>,
    ) -> Result<Vec<Registration>, Error> {
        match self.fault {
            Fault::BatchShifted => {
                if let Some(last) = answers.pop() {
                    answers.insert(0, last);
                }
            }
            Fault::BatchTruncated => drop(answers.pop()),
            Fault::BatchSortedAnswers => {
                let mut order: Vec<usize> = (0..answers.len()).collect();
                order.sort_by_key(|&n| messages[n].id());
                answers = order.into_iter().map(|n| answers[n].clone()).collect();
            }
            Fault::BatchRepeatsAllNew => {
                let mut first = HashMap::new();
                for n in 0..answers.len() {
                    let first = *first.entry(messages[n].id()).or_insert(n);
                    answers[n] = answers[first].clone();
                }
            }
            Fault::BatchOneOriginalForAll => {
                let known =
                    answers.iter().find(|answer| matches!(answer, Registration::Duplicate(_))).cloned();
                for answer in &mut answers {
                    if matches!(answer, Registration::Duplicate(_)) {
                        *answer = known.clone().expect("found");
                    }
                }
            }
            Fault::BatchMismatchFails if answers.iter().any(|a| matches!(a, Registration::Mismatch(_))) => {
                return Err(Error::new(ErrorKind::Mismatch, "register a batch"));
            }
            _ => {}
        }
        Ok(answers)
    }
}

#[async_trait]
impl InboxStore<PgTx> for BrokenStore {
    async fn register_if_new(&self, tx: &mut PgTx, request: &Register<'_>) -> Result<Registration, Error> {
        if self.fault == Fault::LongIdRefused && request.message.id().as_str().len() > 200 {
            return Err(Error::new(ErrorKind::InvalidMessage, "take so long an id"));
        }
        let (consumer, id) = self.key(request.consumer, request.message.id());
        let message = self.content(id, request.message);
        let changed = Register::new(&consumer, &message).wait(self.wait(request.wait)).guard(request.guard);
        let answer = self.insert(tx, &changed).await;
        if self.fault == Fault::SettingLeftBehind && answer.is_ok() {
            self.raw(tx, "SET lock_timeout = '7s'").await;
        }
        self.answer(tx, &changed, answer).await
    }

    async fn register_batch(
        &self,
        tx: &mut PgTx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        let messages = request.messages;
        match self.fault {
            Fault::BatchEmptyRefused if messages.is_empty() => {
                Err(Error::new(ErrorKind::Backend, "register an empty batch"))
            }
            Fault::BatchLimited if messages.len() > 16_383 => {
                Err(Error::new(ErrorKind::Backend, "bind more than 65535 parameters"))
            }
            Fault::BatchUnsorted | Fault::BatchStopsAtKnown if messages.len() < 1_000 => {
                let mut answers = Vec::new();
                let mut stopped = None;
                for message in messages {
                    let single =
                        Register::new(request.consumer, message).wait(request.wait).guard(request.guard);
                    let answer = match &stopped {
                        Some(answer) if self.fault == Fault::BatchStopsAtKnown => Registration::clone(answer),
                        _ => self.register_if_new(tx, &single).await?,
                    };
                    if !answer.is_new() {
                        stopped = Some(answer.clone());
                    }
                    answers.push(answer);
                }
                Ok(answers)
            }
            fault if fault.changes_batch_answers() => {
                let answers = self.inner.register_batch(tx, request).await?;
                self.batch(messages, answers)
            }
            // Very large batches are not what a fault of single calls is about.
            fault if fault.is_of_single_calls() && messages.len() < 1_000 => {
                register_one_by_one(self, tx, request, DEFAULT_WAIT).await
            }
            _ => {
                let changed = request.wait(self.wait(request.wait));
                self.classify(self.inner.register_batch(tx, &changed).await)
            }
        }
    }

    async fn condemn(&self, tx: &mut PgTx) {
        match self.fault {
            Fault::CondemnsNothing | Fault::BusyKeepsTransaction => {}
            _ => self.inner.condemn(tx).await,
        }
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = InboxStore::<PgTx>::capabilities(&self.inner);
        capabilities.savepoints = self.fault != Fault::DeniesSavepoints;
        capabilities
    }
}

impl Transactional<PgTx> for BrokenStore {
    fn guard<'a>(&'a self, tx: &'a mut PgTx) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.guard(tx)
    }

    fn commit<'a>(&'a self, mut tx: PgTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        PgTx: 'a,
    {
        Box::pin(async move {
            let driver = |error| Error::new(ErrorKind::Backend, "commit").with_source(error);
            match self.fault {
                Fault::EffectLost if !request.completed.is_empty() => tx.rollback().await.map_err(driver),
                Fault::CommitLies => tx.rollback().await.map_err(driver),
                fault if fault.bypasses_the_guard() => tx.commit().await.map_err(driver),
                Fault::CommitWantsNew if request.registered.is_empty() => {
                    Err(Error::new(ErrorKind::TransactionLost, "commit nothing new"))
                }
                Fault::CommitExpectsOne => {
                    let one = &request.registered[..request.registered.len().min(1)];
                    self.inner.commit(tx, End::new(request.consumer, one)).await
                }
                Fault::CommitBySavepoint if !request.registered.is_empty() => {
                    let released = (&mut *tx).execute("RELEASE SAVEPOINT guard").await;
                    released.map_err(|error| {
                        Error::new(ErrorKind::TransactionLost, "release the guard").with_source(error)
                    })?;
                    self.inner.commit(tx, request).await
                }
                _ => self.classify(self.inner.commit(tx, request).await),
            }
        })
    }

    fn rollback<'a>(&'a self, tx: PgTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        PgTx: 'a,
    {
        match self.fault {
            // The driver's own rollback, which says `Ok` where there was nothing to roll back.
            Fault::RollbackUnguarded | Fault::CompletionUnproved => Box::pin(async move {
                tx.rollback()
                    .await
                    .map_err(|error| Error::new(ErrorKind::Backend, "roll back").with_source(error))
            }),
            _ => self.inner.rollback(tx, request),
        }
    }
}

#[async_trait]
impl Begin for BrokenStore {
    type Tx = PgTx;

    async fn begin(&self, wait: Option<Duration>) -> Result<PgTx, Error> {
        match self.fault {
            Fault::BeginLeaks => {
                self.begin_unknown_to_the_pool()
                    .await
                    .map_err(|error| Error::new(ErrorKind::Unavailable, "begin").with_source(error))?;
                self.inner.begin(wait).await
            }
            _ => self.inner.begin(wait).await,
        }
    }
}

#[async_trait]
impl Administer for BrokenStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let (consumer, id) = self.key(consumer, id);
        match self.fault {
            Fault::FindsNothing => Ok(None),
            _ => self.inner.find(&consumer, &id).await,
        }
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let (consumer, id) = self.key(consumer, id);
        match self.fault {
            Fault::ForgetsNothing => Ok(self.inner.find(&consumer, &id).await?.is_some()),
            _ => self.inner.forget(&consumer, &id).await,
        }
    }
}
