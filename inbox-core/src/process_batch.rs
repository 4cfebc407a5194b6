//! [`Inbox::process_batch`]: many messages in one transaction, and one by one if that fails.

use std::future::Future;

use tracing::Instrument;

use crate::process::{Failure, roll_back_after, run_again};
use crate::{BatchHandler, Begin, Error, ErrorKind, Inbox, Message, Original, Register, Registration};

/// How one message of a batch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchOutcome<E> {
    /// The handler ran with it, and the effect is committed. Acknowledge.
    Processed,
    /// It had been registered before, or stands earlier in the batch. Acknowledge.
    Duplicate(Original),
    /// Its id is registered with another fingerprint. Park it (R11).
    Mismatch(Original),
    /// It failed alone, after the batch had failed as a whole. Nothing of it is committed, unless the
    /// error is the inbox's and of kind `TransactionLost` or `UnknownOutcome`. Do not acknowledge.
    Failed(E),
}

impl<E> From<Registration> for BatchOutcome<E> {
    fn from(registration: Registration) -> Self {
        match registration {
            Registration::New => Self::Processed,
            Registration::Duplicate(original) => Self::Duplicate(original),
            Registration::Mismatch(original) => Self::Mismatch(original),
        }
    }
}

impl<S: Begin> Inbox<S> {
    /// Handles many messages in one transaction; the handler sees the new ones, in the order given,
    /// each once. Answers by position.
    ///
    /// If the handler fails, or the commit is refused for what the handler did, the batch is rolled
    /// back and each message is handled alone, so that one failing message does not condemn the
    /// others (R18). Retryable errors of the inbox run the transaction again as in
    /// [`process`](Self::process); a panic rolls back and unwinds.
    ///
    /// # Errors
    ///
    /// Only if nothing of the batch is known to be committed: the database cannot be reached, the
    /// schema is wrong, the transaction was lost. What fails for one message alone is
    /// [`BatchOutcome::Failed`] at its position.
    /// ```no_run
    /// # use inbox_core::{BatchOutcome, Begin, Error, Inbox, Message};
    /// # async fn credit<T>(_tx: &mut T, _message: &Message) -> Result<(), Error> { Ok(()) }
    /// # async fn example<S: Begin>(inbox: &Inbox<S>, messages: &[Message]) -> Result<(), Error> {
    /// let outcomes = inbox
    ///     .process_batch(messages, async |tx, new: &[&Message]| {
    ///         for message in new {
    ///             credit(tx, message).await?;
    ///         }
    ///         Ok::<_, Error>(())
    ///     })
    ///     .await?;
    /// for (message, outcome) in messages.iter().zip(outcomes) {
    ///     match outcome {
    ///         BatchOutcome::Processed | BatchOutcome::Duplicate(_) => { /* acknowledge */ }
    ///         BatchOutcome::Mismatch(_) => { /* park: one id, two payloads */ }
    ///         BatchOutcome::Failed(error) => eprintln!("{}: {error}", message.id()),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn process_batch<'a, F, E>(
        &'a self,
        messages: &'a [Message],
        handler: F,
    ) -> impl Future<Output = Result<Vec<BatchOutcome<E>>, E>> + Send + 'a
    where
        F: for<'t, 's, 'm> AsyncFnMut(&'t mut S::Tx, &'s [&'m Message]) -> Result<(), E>
            + for<'t, 's, 'm> BatchHandler<&'t mut S::Tx, &'s [&'m Message], Result<(), E>, Fut: Send>
            + Send
            + 'a,
        E: From<Error> + Send + 'a,
    {
        self.process_batch_retrying(messages, |_: &E| false, handler)
    }

    /// As [`process_batch`](Self::process_batch), and runs the batch again for what `retryable` says
    /// of the handler's errors, before it falls back to one by one.
    ///
    /// # Errors
    ///
    /// As [`process_batch`](Self::process_batch).
    pub fn process_batch_retrying<'a, R, F, E>(
        &'a self,
        messages: &'a [Message],
        retryable: R,
        mut handler: F,
    ) -> impl Future<Output = Result<Vec<BatchOutcome<E>>, E>> + Send + 'a
    where
        R: Fn(&E) -> bool + Send + Sync + 'a,
        F: for<'t, 's, 'm> AsyncFnMut(&'t mut S::Tx, &'s [&'m Message]) -> Result<(), E>
            + for<'t, 's, 'm> BatchHandler<&'t mut S::Tx, &'s [&'m Message], Result<(), E>, Fut: Send>
            + Send
            + 'a,
        E: From<Error> + Send + 'a,
    {
        let span = tracing::info_span!("inbox.process_batch", consumer = %self.consumer(), messages = messages.len());
        async move {
            match self.run_until_settled(messages, &retryable, &mut handler).await {
                Ok(outcomes) => Ok(outcomes),
                // As it would be answered among others, so that the size of a poll does not decide.
                Err(failure) if messages.len() == 1 && failure.is_of_one_message_alone() => {
                    Ok(vec![BatchOutcome::Failed(failure.give_up())])
                }
                Err(failure) if !failure.may_be_of_one_message() => Err(failure.give_up()),
                Err(_) => {
                    tracing::info!("the batch failed, handling its messages one by one");
                    Ok(self.one_by_one(messages, &retryable, &mut handler).await)
                }
            }
        }
        .instrument(span)
    }

    /// Runs a set of messages in one transaction, again and again while the inbox's errors are retryable.
    async fn run_until_settled<R, F, E>(
        &self,
        messages: &[Message],
        retryable: &R,
        handler: &mut F,
    ) -> Result<Vec<BatchOutcome<E>>, Failure<E>>
    where
        R: Fn(&E) -> bool + Sync,
        F: for<'t, 's, 'm> AsyncFnMut(&'t mut S::Tx, &'s [&'m Message]) -> Result<(), E>
            + for<'t, 's, 'm> BatchHandler<&'t mut S::Tx, &'s [&'m Message], Result<(), E>, Fut: Send>
            + Send,
        E: From<Error>,
    {
        let mut runs = self.retry().start();
        loop {
            match self.run_batch_once(messages, handler).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(failure) => {
                    let again = failure.is_retryable(retryable);
                    run_again(&mut runs, failure, again).await?;
                }
            }
        }
    }

    async fn run_batch_once<F, E>(
        &self,
        messages: &[Message],
        handler: &mut F,
    ) -> Result<Vec<BatchOutcome<E>>, Failure<E>>
    where
        F: for<'t, 's, 'm> AsyncFnMut(&'t mut S::Tx, &'s [&'m Message]) -> Result<(), E>
            + for<'t, 's, 'm> BatchHandler<&'t mut S::Tx, &'s [&'m Message], Result<(), E>, Fut: Send>
            + Send,
    {
        let mut tx = self.begin().await?;
        let answers = tx.register_batch(messages).await?;
        let new: Vec<&Message> = messages
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_new())
            .map(|(message, _)| message)
            .collect();
        if !new.is_empty() {
            if let Err(error) = handler(&mut tx, &new).await {
                return Err(roll_back_after(error, tx).await);
            }
            tx.commit().await?;
        }
        tracing::debug!(processed = new.len(), known = messages.len() - new.len(), "batch processed");
        Ok(answers.into_iter().map(BatchOutcome::from).collect())
    }

    async fn one_by_one<R, F, E>(
        &self,
        messages: &[Message],
        retryable: &R,
        handler: &mut F,
    ) -> Vec<BatchOutcome<E>>
    where
        R: Fn(&E) -> bool + Sync,
        F: for<'t, 's, 'm> AsyncFnMut(&'t mut S::Tx, &'s [&'m Message]) -> Result<(), E>
            + for<'t, 's, 'm> BatchHandler<&'t mut S::Tx, &'s [&'m Message], Result<(), E>, Fut: Send>
            + Send,
        E: From<Error>,
    {
        let mut outcomes = Vec::with_capacity(messages.len());
        let mut down = false;
        for message in messages {
            if down {
                outcomes.push(BatchOutcome::Failed(E::from(self.not_tried(message))));
                continue;
            }
            let span = tracing::info_span!("inbox.message", message_id = %message.id());
            let alone = self.run_until_settled(std::slice::from_ref(message), retryable, handler);
            match alone.instrument(span.clone()).await {
                Ok(alone) => outcomes.extend(alone),
                Err(failure) => {
                    down = failure.is_outage();
                    outcomes.push(BatchOutcome::Failed(span.in_scope(|| failure.give_up())));
                }
            }
        }
        outcomes
    }

    /// The error of a message that comes after one for which the database could not be reached:
    /// waiting out the retries for each would take hours.
    fn not_tried(&self, message: &Message) -> Error {
        let request = Register::new(self.consumer(), message);
        Error::new(ErrorKind::Unavailable, request.doing())
            .with_detail("not tried: it was down for an earlier message")
    }
}

impl<E> Failure<E> {
    /// Whether one message may have caused what failed the whole batch: its effect, an id that
    /// another transaction holds on and on, a row that something swallows.
    fn may_be_of_one_message(&self) -> bool {
        match self {
            Self::Handler(_) => true,
            Self::Inbox(error) => matches!(
                error.kind(),
                ErrorKind::Aborted | ErrorKind::Backend | ErrorKind::Busy | ErrorKind::Unconfirmed
            ),
        }
    }

    /// Whether it is the message's own failure, once it was handled alone. A lost transaction is, too:
    /// only in a larger batch it cannot be told whose handler ended it, and what is committed.
    fn is_of_one_message_alone(&self) -> bool {
        let lost = matches!(self, Self::Inbox(error) if error.kind() == ErrorKind::TransactionLost);
        lost || self.may_be_of_one_message()
    }

    fn is_outage(&self) -> bool {
        matches!(self, Self::Inbox(error) if error.kind() == ErrorKind::Unavailable)
    }
}
