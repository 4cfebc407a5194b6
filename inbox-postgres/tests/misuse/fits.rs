//! What compiles: every form of handler and of transaction that the docs name.

#![allow(dead_code, reason = "that it compiles is the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use inbox_core::{Begin, Error, Inbox, Message, Outcome, Registered, Registration, Transactional};
use inbox_postgres::{InTransaction, PostgresStore, is_retryable};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

type Failed = Box<dyn std::error::Error + Send + Sync>;
type PgTx = Transaction<'static, Postgres>;

/// The application's own error, from the inbox's and the driver's.
enum AppError {
    Inbox(Error),
    Sql(sqlx::Error),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Inbox(error)
    }
}

impl From<sqlx::Error> for AppError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

async fn credit(tx: &mut PgTx) -> Result<u64, AppError> {
    let credit = sqlx::query("UPDATE account SET points = points + 10 WHERE id = 7");
    Ok(credit.execute(&mut **tx).await?.rows_affected())
}

async fn credit_account(tx: &mut PgTx, account: &str) -> Result<u64, AppError> {
    let credit = sqlx::query("UPDATE account SET points = points + 10 WHERE name = $1").bind(account);
    Ok(credit.execute(&mut **tx).await?.rows_affected())
}

async fn a_function(inbox: &Inbox<PostgresStore>, message: &Message) -> Result<Outcome<u64>, AppError> {
    inbox.process(message, credit).await
}

async fn a_closure_that_captures_by_reference(
    inbox: &Inbox<PostgresStore>,
    message: &Message,
    account: String,
) -> Result<Outcome<u64>, AppError> {
    let outcome = inbox.process(message, async |tx| credit_account(tx, &account).await).await?;
    drop(account);
    Ok(outcome)
}

async fn a_closure_that_moves_a_reference(
    inbox: &Inbox<PostgresStore>,
    message: &Message,
    account: String,
) -> Result<Outcome<u64>, AppError> {
    let account = &account;
    inbox.process(message, async move |tx| credit_account(tx, account).await).await
}

async fn a_closure_that_changes_through_a_reference(
    inbox: &Inbox<PostgresStore>,
    message: &Message,
) -> Result<u32, AppError> {
    let runs = AtomicU32::new(0);
    let handler = async |tx: &mut PgTx| {
        runs.fetch_add(1, Ordering::Relaxed);
        credit(tx).await
    };
    inbox.process(message, handler).await?;
    Ok(runs.into_inner())
}

async fn retries_of_the_handlers_own(
    inbox: &Inbox<PostgresStore>,
    message: &Message,
) -> Result<Outcome<u64>, AppError> {
    let retryable = |error: &AppError| matches!(error, AppError::Sql(error) if is_retryable(error));
    inbox.process_retrying(message, retryable, async |tx| credit(tx).await).await
}

async fn a_batch(inbox: &Inbox<PostgresStore>, messages: &[Message], account: &str) -> Result<(), AppError> {
    let handler = async |tx: &mut PgTx, new: &[&Message]| {
        for _ in new {
            credit_account(tx, account).await?;
        }
        Ok::<_, AppError>(())
    };
    inbox.process_batch(messages, handler).await.map(drop)
}

/// Everything that a spawned task needs is moved into it; the handler borrows from there.
fn a_spawned_task(inbox: Inbox<Arc<PostgresStore>>, message: Message, account: String) {
    tokio::spawn(async move {
        let handler = async |tx: &mut PgTx| credit_account(tx, &account).await;
        if inbox.process(&message, handler).await.is_err() {
            eprintln!("{account} was not credited");
        }
        inbox.process(&message, credit).await.is_ok()
    });
}

/// Over any store of this driver.
fn a_generic_store<S>(inbox: Inbox<S>, message: Message, account: String)
where
    S: Begin<Tx = PgTx> + 'static,
{
    tokio::spawn(async move {
        let handler = async |tx: &mut PgTx| credit_account(tx, &account).await;
        inbox.process(&message, handler).await.is_ok()
    });
}

/// A `dyn` store takes transactions that somebody else began.
async fn a_dyn_store(
    store: Arc<dyn Transactional<PgTx>>,
    inbox: &Inbox<PostgresStore>,
    tx: PgTx,
    message: &Message,
) -> Result<bool, Error> {
    let inbox = Inbox::new(store, inbox.consumer().clone());
    match inbox.register(tx, message).await? {
        Registered::New(tx) => tx.commit().await.map(|()| true),
        Registered::Duplicate(_) => Ok(false),
    }
}

/// Over any store of any driver: the effect is the caller's function.
async fn a_generic_transaction<S: Begin>(
    inbox: &Inbox<S>,
    message: &Message,
    effect: impl for<'t> Fn(&'t mut S::Tx) -> inbox_core::BoxFuture<'t, Result<(), Error>> + Send + Sync,
) -> Result<Outcome<()>, Error> {
    inbox.process(message, async |tx: &mut S::Tx| effect(tx).await).await
}

async fn by_value(
    inbox: &Inbox<PostgresStore>,
    tx: Transaction<'_, Postgres>,
    message: &Message,
) -> Result<bool, Failed> {
    match inbox.register(tx, message).await? {
        Registered::New(mut tx) => {
            sqlx::query("UPDATE account SET points = 1").execute(&mut **tx).await?;
            tx.commit().await?;
            Ok(true)
        }
        Registered::Duplicate(_) => Ok(false),
    }
}

async fn by_reference(
    inbox: &Inbox<PostgresStore>,
    pool: &PgPool,
    message: &Message,
) -> Result<bool, Failed> {
    let mut tx = pool.begin().await?;
    let answer: Registration = inbox.register_if_new(&mut tx, message).await?;
    tx.commit().await?;
    Ok(answer.is_new())
}

async fn on_a_connection_in_a_transaction(
    inbox: &Inbox<PostgresStore>,
    conn: &mut PgConnection,
    message: &Message,
) -> Result<bool, Error> {
    Ok(inbox.register_if_new(&mut InTransaction::new(conn)?, message).await?.is_new())
}
