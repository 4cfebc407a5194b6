//! A store that is not ours: plain SQL on a table of another layout, one statement after the other.
//!
//! It keeps the whole contract and spares no round trip: three for a new message where
//! `inbox-postgres` takes one. It is what the suite is for, and a place to start from.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use inbox_core::{
    Administer, Begin, BoxFuture, Capabilities, Consumer, DEFAULT_WAIT, End, Error, ErrorKind, Fingerprint,
    InboxStore, MessageId, Original, Register, RegisterBatch, Registration, Transactional, Waits,
    register_one_by_one,
};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Row, Transaction};

type PgTx = Transaction<'static, Postgres>;

/// The table. The id is kept as bytes, so no collation can fold it (R7); its key is a natural one,
/// since a sequence would burn a number for each duplicate.
pub(crate) const SCHEMA: &str = r#"
CREATE SCHEMA app;
CREATE TABLE app.processed_messages (
    handler  text        NOT NULL COLLATE "C",
    key      bytea       NOT NULL,
    kind     text        NOT NULL,
    checksum bytea,
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (handler, key)
);
"#;

const INSERT: &str = "
INSERT INTO app.processed_messages (handler, key, kind, checksum)
VALUES ($1, $2, $3, $4)
ON CONFLICT (handler, key) DO NOTHING";

const ORIGINAL: &str = "
SELECT kind, checksum, (extract(epoch FROM seen_at) * 1000000)::bigint
FROM app.processed_messages
WHERE handler = $1 AND key = $2";

const COUNT: &str = "
SELECT count(*)
FROM app.processed_messages
WHERE handler = $1 AND key = ANY ($2)";

const DELETE: &str = "
DELETE FROM app.processed_messages
WHERE handler = $1 AND key = $2";

/// The store: nothing but a pool.
pub(crate) struct ProcessedMessages {
    pub(crate) pool: PgPool,
}

#[async_trait]
impl InboxStore<PgTx> for ProcessedMessages {
    async fn register_if_new(&self, tx: &mut PgTx, request: &Register<'_>) -> Result<Registration, Error> {
        let failed = |source| error(request.doing(), source);
        let message = request.message;
        // Twice, since between an insert that did nothing and the look somebody may delete the row (R8).
        for _ in 0..2 {
            let before = bound_waits(tx, request.wait).await.map_err(failed)?;
            let inserted = sqlx::query(INSERT)
                .bind(request.consumer.as_str())
                .bind(message.id().as_str().as_bytes())
                .bind(message.event_type().as_str())
                .bind(message.fingerprint().map(|fingerprint| fingerprint.as_bytes().to_vec()))
                .execute(&mut **tx)
                .await
                .map_err(failed)?;
            // After an error the server does this: the setting belongs to the transaction.
            restore(tx, &before).await.map_err(failed)?;
            if inserted.rows_affected() == 1 {
                return Ok(Registration::New);
            }
            if let Some(original) = original(tx, request.consumer, message.id(), request.doing()).await? {
                return Ok(original.compare(message));
            }
        }
        Err(Error::new(ErrorKind::Unconfirmed, request.doing()))
    }

    async fn register_batch(
        &self,
        tx: &mut PgTx,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        register_one_by_one(self, tx, request, DEFAULT_WAIT).await
    }

    async fn condemn(&self, tx: &mut PgTx) {
        // Fails, and after it everything else in this transaction does.
        let _ = sqlx::query("SELECT 1 / 0").execute(&mut **tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::all(Waits::WhenRegistering);
        capabilities.notices_restart = false;
        capabilities
    }
}

impl Transactional<PgTx> for ProcessedMessages {
    /// Nothing to do: the commit counts the rows.
    fn guard<'a>(&'a self, _tx: &'a mut PgTx) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// A COMMIT sent as SQL and followed by a BEGIN is not noticed, as `capabilities` says.
    fn commit<'a>(&'a self, mut tx: PgTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        PgTx: 'a,
    {
        Box::pin(async move {
            // Fails in a transaction that an error aborted; COMMIT would roll it back and say nothing.
            let keys: Vec<&[u8]> = request.registered.iter().map(|id| id.as_str().as_bytes()).collect();
            let kept: i64 = sqlx::query_scalar(COUNT)
                .bind(request.consumer.as_str())
                .bind(keys)
                .fetch_one(&mut *tx)
                .await
                .map_err(|source| error(request.doing("commit"), source))?;
            if kept != request.registered.len() as i64 {
                return Err(Error::new(ErrorKind::TransactionLost, request.doing("commit")));
            }
            // Fails where no transaction is open; COMMIT alone would only warn.
            let committed = sqlx::query("COMMIT AND CHAIN").execute(&mut *tx).await;
            committed.map_err(|source| commit_error(request.doing("commit"), source))?;
            // What the chain began is empty, and ends as the transaction is dropped.
            Ok(())
        })
    }

    fn rollback<'a>(&'a self, mut tx: PgTx, request: End<'a>) -> BoxFuture<'a, Result<(), Error>>
    where
        PgTx: 'a,
    {
        Box::pin(async move {
            // As with COMMIT: a ROLLBACK alone would only warn that there was nothing to roll back.
            let rolled_back = sqlx::query("ROLLBACK AND CHAIN").execute(&mut *tx).await;
            rolled_back.map(drop).map_err(|source| error(request.doing("roll back"), source))
        })
    }
}

#[async_trait]
impl Begin for ProcessedMessages {
    type Tx = PgTx;

    async fn begin(&self, _wait: Option<Duration>) -> Result<PgTx, Error> {
        // In a task of its own: sqlx leaves a transaction open in the pool if its `begin` is
        // cancelled (R17).
        let pool = self.pool.clone();
        let begun = tokio::spawn(async move { pool.begin().await }).await;
        let begun = begun.map_err(|gone| Error::new(ErrorKind::Unavailable, "begin").with_source(gone))?;
        begun.map_err(|source| error("begin", source))
    }
}

#[async_trait]
impl Administer for ProcessedMessages {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let mut tx = self.begin(None).await?;
        original(&mut tx, consumer, id, format!("find {id}")).await
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let failed = |source| error(format!("forget {id}"), source);
        let mut tx = self.begin(None).await?;
        bound_waits(&mut tx, None).await.map_err(failed)?;
        let delete = sqlx::query(DELETE).bind(consumer.as_str()).bind(id.as_str().as_bytes());
        let deleted = delete.execute(&mut *tx).await.map_err(failed)?;
        tx.commit().await.map_err(|source| commit_error(format!("forget {id}"), source))?;
        Ok(deleted.rows_affected() == 1)
    }
}

/// Bounds the transaction's waits for locks (R6); answers the bound that the caller had set.
async fn bound_waits(tx: &mut PgTx, wait: Option<Duration>) -> Result<String, sqlx::Error> {
    // In milliseconds, and 0 would be no bound.
    let bound = wait.unwrap_or(DEFAULT_WAIT).as_millis().clamp(1, i32::MAX as u128);
    let sql = AssertSqlSafe(format!("SHOW lock_timeout; SET LOCAL lock_timeout = {bound}"));
    sqlx::raw_sql(sql).fetch_all(&mut **tx).await?[0].try_get(0)
}

async fn restore(tx: &mut PgTx, lock_timeout: &str) -> Result<(), sqlx::Error> {
    let restore = sqlx::query("SELECT set_config('lock_timeout', $1, true)").bind(lock_timeout);
    restore.execute(&mut **tx).await.map(drop)
}

async fn original(
    tx: &mut PgTx,
    consumer: &Consumer,
    id: &MessageId,
    doing: String,
) -> Result<Option<Original>, Error> {
    let row: Option<(String, Option<Vec<u8>>, i64)> = sqlx::query_as(ORIGINAL)
        .bind(consumer.as_str())
        .bind(id.as_str().as_bytes())
        .fetch_optional(&mut **tx)
        .await
        .map_err(|source| error(doing, source))?;
    Ok(row.map(|(kind, checksum, micros)| {
        let seen_at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs());
        let checksum = checksum.and_then(|bytes| bytes.try_into().ok()).map(Fingerprint::from_bytes);
        Original::new(kind, seen_at, checksum)
    }))
}

/// The kind of an error, by its code (R13).
fn error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    let code = source.as_database_error().and_then(|error| error.code());
    let kind = match code.as_deref() {
        Some("40001" | "40P01") => ErrorKind::Retryable,
        Some("55P03") => ErrorKind::Busy,
        Some("25P02") => ErrorKind::Aborted,
        Some("25P01") => ErrorKind::TransactionLost,
        Some("42P01") => ErrorKind::Schema,
        Some("25006" | "57P01" | "57P02" | "57P03" | "53300") => ErrorKind::Unavailable,
        None if !matches!(source, sqlx::Error::Decode(_)) => ErrorKind::Unavailable,
        _ => ErrorKind::Backend,
    };
    Error::new(kind, doing).with_source(source)
}

/// An error met while COMMIT was on its way: without the connection its outcome is unknown (R12).
fn commit_error(doing: impl Into<String>, source: sqlx::Error) -> Error {
    let error = error(doing, source);
    match error.kind() {
        ErrorKind::Unavailable => Error::new(ErrorKind::UnknownOutcome, "commit").with_source(error),
        _ => error,
    }
}
