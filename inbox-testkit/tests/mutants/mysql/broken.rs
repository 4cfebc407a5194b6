//! [`BrokenMySqlStore`]: the store of MySQL and MariaDB with one fault put in.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use inbox_core::{
    Administer, Begin, BoxFuture, Capabilities, Consumer, DEFAULT_WAIT, End, Error, ErrorKind, Fingerprint,
    Guard, InboxStore, MessageId, Original, Register, RegisterBatch, Registration, Transactional,
    register_one_by_one,
};
use inbox_mysql::{MySqlStore, kind_of};
use inbox_testkit::mysql::{self as blocks, MySqlTx};
use sqlx::mysql::MySqlRow;
use sqlx::{Acquire, Row};

use super::fault::Fault;

/// The store with one fault.
pub(crate) struct BrokenMySqlStore {
    pub(super) inner: MySqlStore,
    pub(super) fault: Fault,
}

impl AsRef<MySqlStore> for BrokenMySqlStore {
    fn as_ref(&self) -> &MySqlStore {
        &self.inner
    }
}

const INSERT: &str = "INSERT INTO inbox (consumer, message_id, event_type, fingerprint) VALUES (?, ?, ?, ?)";

const ORIGINAL: &str =
    "SELECT event_type, fingerprint, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', registered_at)
     FROM inbox WHERE consumer = ? AND message_id = ?";

impl BrokenMySqlStore {
    pub(crate) fn new(inner: MySqlStore, fault: Fault) -> Self {
        Self { inner, fault }
    }

    /// The registration itself, with the faults that lie in where and how it is done.
    async fn insert(&self, tx: &mut MySqlTx, request: &Register<'_>) -> Result<Registration, Error> {
        match self.fault {
            fault if fault.inserts_itself() => self.insert_within(tx, request).await,
            Fault::OtherConnection => {
                let mut other = self.inner.begin(None).await?;
                let answer = self.inner.register_if_new(&mut other, &request.guard(Guard::Outside)).await?;
                other.commit().await.map_err(driver)?;
                Ok(answer)
            }
            Fault::DdlFirst => {
                raw(tx, "CREATE TABLE IF NOT EXISTS inbox_version (version INT)").await?;
                self.inner.register_if_new(tx, request).await
            }
            Fault::DeadlockRunAgain => match self.inner.register_if_new(tx, request).await {
                Err(error) if error.kind() == ErrorKind::Retryable => {
                    self.inner.register_if_new(tx, request).await
                }
                answer => answer,
            },
            Fault::GuardMoves => {
                let answer = self.inner.register_if_new(tx, request).await?;
                if answer.is_new() && request.guard.is_guarded() {
                    raw(tx, "SAVEPOINT inbox_guard").await?;
                }
                Ok(answer)
            }
            Fault::SettingLeftBehind => {
                raw(tx, "SET innodb_lock_wait_timeout = 7").await?;
                self.inner.register_if_new(tx, request).await
            }
            Fault::WaitsForEver => {
                self.inner.register_if_new(tx, &request.wait(Duration::from_secs(3600))).await
            }
            _ => self.inner.register_if_new(tx, request).await,
        }
    }

    /// Bounds the wait as the store does on MySQL, so that the fault is the only one.
    async fn insert_within(&self, tx: &mut MySqlTx, request: &Register<'_>) -> Result<Registration, Error> {
        let seconds = request.wait.unwrap_or(super::WAIT).as_secs().max(1);
        raw(tx, &format!("SET @before = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = {seconds}"))
            .await?;
        let answer = self.insert_otherwise(tx, request).await;
        let restored = raw(tx, "SET innodb_lock_wait_timeout = @before").await;
        answer.and_then(|answer| restored.map(|()| answer))
    }

    async fn insert_otherwise(
        &self,
        tx: &mut MySqlTx,
        request: &Register<'_>,
    ) -> Result<Registration, Error> {
        let known = match self.fault {
            Fault::OriginalReadPlainly => {
                execute(tx, &INSERT.replace("INSERT", "INSERT IGNORE"), request).await? == 0
            }
            Fault::UpsertByAffectedRows => {
                execute(tx, &format!("{INSERT} ON DUPLICATE KEY UPDATE consumer = consumer"), request).await?
                    == 0
            }
            Fault::ReplaceInto => execute(tx, &INSERT.replace("INSERT", "REPLACE"), request).await? != 1,
            _ => match read(tx, &format!("{ORIGINAL} FOR UPDATE"), request).await? {
                Some(original) => return Ok(original.compare(request.message)),
                None => execute(tx, INSERT, request).await? == 0,
            },
        };
        if !known {
            return self.insert_again(tx, request).await;
        }
        match read(tx, ORIGINAL, request).await? {
            Some(original) => Ok(original.compare(request.message)),
            None => Err(Error::new(ErrorKind::Unconfirmed, request.doing())),
        }
    }

    /// Has the healthy store insert what the fault called new, so that the row bears what its guard counts.
    async fn insert_again(&self, tx: &mut MySqlTx, request: &Register<'_>) -> Result<Registration, Error> {
        let delete = sqlx::query("DELETE FROM inbox WHERE consumer = ? AND message_id = ?")
            .bind(request.consumer.as_str().as_bytes())
            .bind(request.message.id().as_str().as_bytes());
        delete.execute(&mut **tx).await.map_err(driver)?;
        self.inner.register_if_new(tx, request).await
    }

    /// What the fault makes of an answer.
    fn answer(&self, answer: Result<Registration, Error>) -> Result<Registration, Error> {
        let made_up = || Registration::Duplicate(Original::new("made up", SystemTime::now(), None));
        match (self.fault, answer) {
            (Fault::SwallowedAsDuplicate, Err(error)) if error.kind() == ErrorKind::Unconfirmed => {
                Ok(made_up())
            }
            (Fault::BusyAsDuplicate, Err(error)) if error.kind() == ErrorKind::Busy => Ok(made_up()),
            (Fault::DeadlockPermanent, Err(error)) if error.kind() == ErrorKind::Retryable => {
                Err(Error::new(ErrorKind::Backend, "register").with_source(error))
            }
            (_, Ok(answer)) => Ok(self.seen(answer)),
            (_, answer) => answer,
        }
    }

    /// What the fault makes of the original that was read.
    fn seen(&self, answer: Registration) -> Registration {
        match (self.fault, answer) {
            (
                Fault::FingerprintNotRead,
                Registration::Duplicate(mut original) | Registration::Mismatch(mut original),
            ) => {
                original.fingerprint = None;
                Registration::Duplicate(original)
            }
            (Fault::TimeCutToSeconds, Registration::Duplicate(mut original)) => {
                let age = original.registered_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                original.registered_at = SystemTime::UNIX_EPOCH + Duration::from_secs(age.as_secs());
                Registration::Duplicate(original)
            }
            (_, answer) => answer,
        }
    }

    async fn batch(&self, tx: &mut MySqlTx, request: &RegisterBatch<'_>) -> Result<Vec<Registration>, Error> {
        let mut answers = self.inner.register_batch(tx, request).await?;
        match self.fault {
            Fault::BatchAnsweredAsOne if answers.iter().any(Registration::is_new) => {
                answers.fill(Registration::New);
            }
            Fault::BatchRepeatsAllNew => {
                let mut first = HashMap::new();
                for (n, message) in request.messages.iter().enumerate() {
                    let first = *first.entry(message.id()).or_insert(n);
                    answers[n] = answers[first].clone();
                }
            }
            _ => {}
        }
        Ok(answers.into_iter().map(|answer| self.seen(answer)).collect())
    }

    async fn batch_read_first(
        &self,
        tx: &mut MySqlTx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        let mut unknown = HashSet::new();
        for message in request.messages {
            let single = Register::new(request.consumer, message);
            if read(tx, ORIGINAL, &single).await?.is_none() {
                unknown.insert(message.id());
            }
        }
        let answers = self.inner.register_batch(tx, request).await?;
        let messages = request.messages.iter();
        // Each is new once, so that repeats are no fault of this one.
        Ok(messages
            .zip(answers)
            .map(|(message, answer)| if unknown.remove(message.id()) { Registration::New } else { answer })
            .collect())
    }
}

pub(super) fn driver(error: sqlx::Error) -> Error {
    Error::new(kind_of(&error), "run the fault's SQL").with_source(error)
}

pub(super) async fn raw(tx: &mut MySqlTx, sql: &str) -> Result<(), Error> {
    blocks::execute(tx, sql).await.map_err(|error| match error.downcast::<sqlx::Error>() {
        Ok(error) => driver(*error),
        Err(error) => Error::new(ErrorKind::Backend, "run the fault's SQL").with_source(error),
    })
}

/// Runs an insert; its affected rows.
async fn execute(tx: &mut MySqlTx, sql: &str, request: &Register<'_>) -> Result<u64, Error> {
    let message = request.message;
    let fingerprint = message.fingerprint();
    let insert = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
        .bind(request.consumer.as_str().as_bytes())
        .bind(message.id().as_str().as_bytes())
        .bind(message.event_type().as_str().as_bytes())
        .bind(fingerprint.as_ref().map(|fingerprint| fingerprint.as_bytes().as_slice()));
    insert.execute(&mut **tx).await.map(|done| done.rows_affected()).map_err(driver)
}

async fn read(tx: &mut MySqlTx, sql: &str, request: &Register<'_>) -> Result<Option<Original>, Error> {
    let look = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
        .bind(request.consumer.as_str().as_bytes())
        .bind(request.message.id().as_str().as_bytes());
    let row = look.fetch_optional(&mut **tx).await.map_err(driver)?;
    row.map(|row| original(&row)).transpose().map_err(driver)
}

fn original(row: &MySqlRow) -> Result<Original, sqlx::Error> {
    let (event_type, fingerprint, micros): (Vec<u8>, Option<Vec<u8>>, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let fingerprint = fingerprint.and_then(|bytes| <[u8; Fingerprint::LEN]>::try_from(bytes).ok());
    Ok(Original::new(
        String::from_utf8_lossy(&event_type),
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs()),
        fingerprint.map(Fingerprint::from_bytes),
    ))
}

#[async_trait]
impl InboxStore<MySqlTx> for BrokenMySqlStore {
    async fn register_if_new(&self, tx: &mut MySqlTx, request: &Register<'_>) -> Result<Registration, Error> {
        let answer = self.insert(tx, request).await;
        self.answer(answer)
    }

    async fn register_batch(
        &self,
        tx: &mut MySqlTx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        match self.fault {
            Fault::BatchReadFirst => self.batch_read_first(tx, request).await,
            Fault::BatchUnsorted => {
                let mut answers = Vec::new();
                for message in request.messages {
                    let single =
                        Register::new(request.consumer, message).wait(request.wait).guard(request.guard);
                    answers.push(self.inner.register_if_new(tx, &single).await?);
                }
                Ok(answers)
            }
            Fault::WaitsForEver => self.batch(tx, &request.wait(Duration::from_secs(3600))).await,
            fault if fault.is_of_single_calls() => register_one_by_one(self, tx, request, DEFAULT_WAIT).await,
            _ => self.batch(tx, request).await,
        }
    }

    async fn condemn(&self, tx: &mut MySqlTx) {
        match self.fault {
            Fault::CondemnsNothing => {}
            Fault::CondemnsByRollback => drop(raw(tx, "ROLLBACK").await),
            _ => self.inner.condemn(tx).await,
        }
    }

    fn capabilities(&self) -> Capabilities {
        InboxStore::<MySqlTx>::capabilities(&self.inner)
    }
}

impl Transactional<MySqlTx> for BrokenMySqlStore {
    fn guard<'a>(&'a self, tx: &'a mut MySqlTx) -> BoxFuture<'a, Result<(), Error>> {
        match self.fault {
            // Remembered in the session, so that the commit does not look for the guard.
            Fault::GuardAtBeginOnly => Box::pin(raw(tx, "SET @of_the_caller = 1")),
            _ => self.inner.guard(tx),
        }
    }

    fn commit<'a>(&'a self, mut tx: MySqlTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        MySqlTx: 'a,
    {
        Box::pin(async move {
            let committed = |error| Error::new(ErrorKind::Backend, "commit").with_source(error);
            match self.fault {
                fault if fault.bypasses_the_guard() => tx.commit().await.map_err(committed),
                Fault::CommitCountsNothing => self.inner.commit(tx, request.undoable(&[])).await,
                Fault::GuardAtBeginOnly if is_of_the_caller(&mut tx).await.map_err(driver)? => {
                    tx.commit().await.map_err(committed)
                }
                _ => self.inner.commit(tx, request).await,
            }
        })
    }

    fn rollback<'a>(&'a self, tx: MySqlTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        MySqlTx: 'a,
    {
        Box::pin(async move {
            match self.fault {
                // The driver's own rollback, which says `Ok` where there was nothing to roll back.
                Fault::RollbackUnguarded => tx.rollback().await.map_err(driver),
                _ => self.inner.rollback(tx, request).await,
            }
        })
    }
}

async fn is_of_the_caller(tx: &mut MySqlTx) -> Result<bool, sqlx::Error> {
    let asked = sqlx::query_scalar("SELECT IFNULL(@of_the_caller, 0) <> 0").fetch_one(&mut **tx).await?;
    sqlx::raw_sql("SET @of_the_caller = 0").execute(&mut **tx).await?;
    Ok(asked)
}

#[async_trait]
impl Begin for BrokenMySqlStore {
    type Tx = MySqlTx;

    async fn begin(&self, wait: Option<Duration>) -> Result<MySqlTx, Error> {
        self.inner.begin(wait).await
    }
}

#[async_trait]
impl Administer for BrokenMySqlStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        match self.fault {
            Fault::FindReadsUncommitted => self.find_uncommitted(consumer, id).await.map_err(driver),
            _ => self.inner.find(consumer, id).await,
        }
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        self.inner.forget(consumer, id).await
    }
}

impl BrokenMySqlStore {
    async fn find_uncommitted(
        &self,
        consumer: &Consumer,
        id: &MessageId,
    ) -> Result<Option<Original>, sqlx::Error> {
        let mut connection = self.inner.pool().acquire().await?;
        sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").execute(&mut *connection).await?;
        let look = sqlx::query(ORIGINAL).bind(consumer.as_str().as_bytes()).bind(id.as_str().as_bytes());
        let row = look.fetch_optional(&mut *connection.acquire().await?).await?;
        row.map(|row| original(&row)).transpose()
    }
}
