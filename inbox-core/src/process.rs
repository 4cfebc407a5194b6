//! [`Inbox::process`]: begin, register, handle, commit, and run again what the inbox met.

use std::future::Future;
use std::time::Duration;

use tracing::Instrument;

use crate::{
    Begin, Error, ErrorKind, GuardedTx, Handler, Inbox, Message, Original, Register, Registration, RetryState,
};

/// How one message ended. Either way it may be acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The handler ran, and its effect is committed together with the registration.
    Processed(T),
    /// The message had been registered before; the handler did not run in a committed transaction.
    Duplicate(Original),
}

impl<T> Outcome<T> {
    /// Whether the handler's effect was committed by this call.
    pub fn is_processed(&self) -> bool {
        matches!(self, Self::Processed(_))
    }
}

/// Who failed a run: the inbox, or the caller's handler.
pub(crate) enum Failure<E> {
    Inbox(Error),
    Handler(E),
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Self {
        Self::Inbox(error)
    }
}

impl<S: Begin> Inbox<S> {
    /// Handles one message exactly once: begins a transaction, registers, calls the handler if the
    /// message is new, commits.
    ///
    /// Errors of the inbox of the kinds `Busy`, `Retryable`, `Unavailable` and `UnknownOutcome` run
    /// the whole transaction again, bounded by the [`RetryPolicy`](crate::RetryPolicy), so **the
    /// handler may run several times; only one run is committed**. After an unknown outcome that
    /// was in fact a commit the answer is `Duplicate`.
    ///
    /// An error of the handler rolls back and is returned as it is; see
    /// [`process_retrying`](Self::process_retrying) for its own deadlocks. If the rollback finds that
    /// the handler had ended the transaction, the error is `TransactionLost` instead. It waits for the rollback's answer 1 s at most: a statement
    /// that the handler gave up by a timeout may still run. A panic rolls back and
    /// unwinds (R18). Dropping the future rolls back (R17).
    ///
    /// The handler is an `async |tx| …` closure or an `async fn` item; see [`Handler`] for the two
    /// forms that do not fit.
    ///
    /// # Errors
    ///
    /// The handler's error, or the inbox's through `From`.
    ///
    /// ```no_run
    /// # use inbox_core::{Begin, Error, Inbox, Message, Outcome};
    /// # async fn credit<T>(_tx: &mut T) -> Result<i64, Error> { Ok(10) }
    /// # async fn example<S: Begin>(inbox: &Inbox<S>, message: &Message) -> Result<(), Error> {
    /// match inbox.process(message, async |tx| credit(tx).await).await? {
    ///     Outcome::Processed(points) => println!("credited {points}"),
    ///     Outcome::Duplicate(original) => println!("known since {:?}", original.registered_at),
    /// }
    /// // Either way: acknowledge.
    /// # Ok(())
    /// # }
    /// ```
    pub fn process<'a, F, T, E>(
        &'a self,
        message: &'a Message,
        handler: F,
    ) -> impl Future<Output = Result<Outcome<T>, E>> + Send + 'a
    where
        F: for<'t> AsyncFnMut(&'t mut S::Tx) -> Result<T, E>
            + for<'t> Handler<&'t mut S::Tx, Result<T, E>, Fut: Send>
            + Send
            + 'a,
        T: Send + 'a,
        E: From<Error> + Send + 'a,
    {
        self.process_retrying(message, |_: &E| false, handler)
    }

    /// As [`process`](Self::process), and runs again what `retryable` says of the handler's errors:
    /// a deadlock or a lost connection in the handler's own SQL is such an error. Each backend has an
    /// `is_retryable` for its driver's errors.
    ///
    /// # Errors
    ///
    /// The handler's last error, or the inbox's through `From`.
    pub fn process_retrying<'a, R, F, T, E>(
        &'a self,
        message: &'a Message,
        retryable: R,
        mut handler: F,
    ) -> impl Future<Output = Result<Outcome<T>, E>> + Send + 'a
    where
        R: Fn(&E) -> bool + Send + 'a,
        F: for<'t> AsyncFnMut(&'t mut S::Tx) -> Result<T, E>
            + for<'t> Handler<&'t mut S::Tx, Result<T, E>, Fut: Send>
            + Send
            + 'a,
        T: Send + 'a,
        E: From<Error> + Send + 'a,
    {
        let span =
            tracing::info_span!("inbox.process", consumer = %self.consumer(), message_id = %message.id());
        async move {
            let mut runs = self.retry().start();
            loop {
                match self.run_once(message, &mut handler).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(failure) => {
                        let again = failure.is_retryable(&retryable);
                        run_again(&mut runs, failure, again).await.map_err(Failure::give_up)?;
                    }
                }
            }
        }
        .instrument(span)
    }

    async fn run_once<F, T, E>(&self, message: &Message, handler: &mut F) -> Result<Outcome<T>, Failure<E>>
    where
        F: for<'t> AsyncFnMut(&'t mut S::Tx) -> Result<T, E>
            + for<'t> Handler<&'t mut S::Tx, Result<T, E>, Fut: Send>
            + Send,
    {
        let mut tx = self.begin().await?;
        match tx.register_if_new(message).await? {
            Registration::New => {}
            Registration::Duplicate(original) => {
                tracing::debug!(outcome = "duplicate", "message already registered");
                return Ok(Outcome::Duplicate(original));
            }
            // An error of the guard already; only a new message may reach the handler.
            Registration::Mismatch(original) => {
                let request = Register::new(self.consumer(), message);
                return Err(original.mismatch(request.doing()).into());
            }
        }
        match handler(&mut tx).await {
            Ok(value) => {
                tx.commit().await?;
                tracing::debug!(outcome = "processed", "message processed");
                Ok(Outcome::Processed(value))
            }
            Err(error) => Err(roll_back_after(error, tx).await),
        }
    }
}

/// How long we wait for the answer of a rollback that follows an error.
pub(crate) const ROLLBACK_PATIENCE: Duration = Duration::from_secs(1);

/// Rolls back after the handler's error, which is the failure unless the transaction turns out to be lost.
///
/// A transaction that was ended behind our back may have committed the registration and half of the
/// effect: another run would find its own registration and call the message a duplicate.
///
/// The rollback queues behind a statement that the handler gave up and that still runs. After
/// [`ROLLBACK_PATIENCE`] it is left to the drop of the transaction, as for any dropped one.
pub(crate) async fn roll_back_after<S, E>(error: E, tx: GuardedTx<'_, S, S::Tx>) -> Failure<E>
where
    S: Begin,
{
    match tokio::time::timeout(ROLLBACK_PATIENCE, tx.rollback()).await {
        Ok(Err(lost)) if lost.kind() == ErrorKind::TransactionLost => Failure::Inbox(lost),
        // The transaction is over in any case; what the caller wants to know is why the handler failed.
        _ => Failure::Handler(error),
    }
}

/// Pauses before another run, or hands the failure to the caller.
pub(crate) async fn run_again<E>(
    runs: &mut RetryState<'_>,
    failure: Failure<E>,
    again: bool,
) -> Result<(), Failure<E>> {
    let Some(pause) = again.then(|| runs.next_pause()).flatten() else {
        return Err(failure);
    };
    match failure {
        Failure::Inbox(error) => {
            tracing::info!(
                error = &error as &dyn std::error::Error,
                attempt = runs.attempt(),
                "running the transaction again"
            );
        }
        Failure::Handler(_) => {
            tracing::info!(
                attempt = runs.attempt(),
                "running the transaction again after the handler's error"
            );
        }
    }
    tokio::time::sleep(pause).await;
    Ok(())
}

impl<E> Failure<E> {
    /// Whether the transaction may be run again: the inbox's errors by kind, the handler's by the caller's word.
    pub(crate) fn is_retryable(&self, of_handler: &impl Fn(&E) -> bool) -> bool {
        match self {
            Self::Inbox(error) => error.is_retryable(),
            Self::Handler(error) => of_handler(error),
        }
    }
}

impl<E: From<Error>> Failure<E> {
    pub(crate) fn give_up(self) -> E {
        match self {
            Self::Inbox(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(outcome = "error", error = cause, kind = ?error.kind(), "message not processed");
                E::from(error)
            }
            Self::Handler(error) => {
                tracing::debug!(outcome = "failed", "the handler failed, rolled back");
                error
            }
        }
    }
}
