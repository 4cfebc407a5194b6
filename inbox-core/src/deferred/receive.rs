//! [`Inbox::receive`]: register and keep a message in one transaction, so that the broker can be acked.

use std::collections::HashMap;

use crate::{
    BatchOutcome, Begin, Deferred, Envelope, Error, ErrorKind, Headers, Inbox, KeepMessages, KeepRequest,
    Message, Original, Outcome, Registration,
};

/// The longest payload that is received unless told otherwise: 16 MiB (D11).
pub const DEFAULT_MAX_PAYLOAD: usize = 16 << 20;

/// What receiving a message found. Either way it may be acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// It is kept, and a worker will handle it. Committed, unless it was received in a transaction of
    /// yours.
    Kept,
    /// Its id was registered before; nothing was kept.
    Duplicate(Original),
}

/// What receiving one message of a batch found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchReceived<E = Error> {
    /// It is kept. Acknowledge.
    Kept,
    /// Its id was registered before, or stands earlier in the batch. Acknowledge.
    Duplicate(Original),
    /// Its id is registered with another fingerprint. Park it (R11).
    Mismatch(Original),
    /// It failed alone, or breaks a limit. Nothing of it is kept. Do not acknowledge.
    Failed(E),
}

impl<S> Inbox<S> {
    /// Sets the longest payload that is received, in bytes; 16 MiB unless set (D11).
    ///
    /// The engine has a limit of its own: 1 GB on PostgreSQL and SQLite, `max_allowed_packet` on MySQL
    /// and MariaDB.
    #[must_use]
    pub fn with_max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Refuses what is too long, before any SQL.
    pub(crate) fn check_envelope(&self, envelope: &Envelope) -> Result<(), Error> {
        let refused = |what: &str, bytes: usize, most: usize| {
            let id = envelope.message().id().as_str();
            Error::new(ErrorKind::InvalidMessage, format!("receive message {id:?}"))
                .with_detail(format!("its {what} {bytes} bytes, the limit is {most}"))
        };
        let payload = envelope.payload().len();
        if payload > self.max_payload {
            return Err(refused("payload has", payload, self.max_payload));
        }
        if !envelope.headers().is_empty() {
            let headers = envelope.headers().to_json().len();
            if headers > Headers::MAX_BYTES {
                return Err(refused("headers have", headers, Headers::MAX_BYTES));
            }
        }
        Ok(())
    }

    /// Registers a message and keeps it whole in **your** transaction. For callers who know that they
    /// lose an acknowledged message if they acknowledge and then roll back: acknowledge after the commit.
    ///
    /// # Errors
    ///
    /// As [`register_if_new`](Self::register_if_new), and `InvalidMessage` for a payload or headers over
    /// the limit, before any SQL (D11). After another error than that, roll back.
    pub async fn receive_in<Tx: Send>(&self, tx: &mut Tx, envelope: &Envelope) -> Result<Received, Error>
    where
        S: KeepMessages<Tx>,
    {
        self.check_envelope(envelope)?;
        match self.register_if_new(tx, envelope.message()).await? {
            Registration::New => {
                let kept = self.store().keep(tx, &KeepRequest::new(self.consumer(), &[envelope])).await;
                self.condemn_after(tx, kept).await?;
                Ok(Received::Kept)
            }
            Registration::Duplicate(original) => Ok(Received::Duplicate(original)),
            Registration::Mismatch(original) => {
                Err(original.mismatch(KeepRequest::new(self.consumer(), &[envelope]).doing()))
            }
        }
    }
}

impl<S: Begin> Inbox<S> {
    /// Registers a message and keeps it whole, in a transaction of the store's own; returns after the
    /// commit, so that the message may be acknowledged. A [`Worker`](crate::Worker) handles it later.
    ///
    /// Retryable errors run the transaction again as in [`process`](Self::process).
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process), and `InvalidMessage` for a payload or headers over the limit, before
    /// any SQL (D11). Do not acknowledge then.
    ///
    /// ```no_run
    /// # use inbox_core::{Deferred, Envelope, Error, Inbox, Received};
    /// # fn acknowledge() {}
    /// # async fn example<S: Deferred>(inbox: &Inbox<S>, envelope: &Envelope) -> Result<(), Error> {
    /// match inbox.receive(envelope).await? {
    ///     Received::Kept => acknowledge(),
    ///     Received::Duplicate(_) => acknowledge(),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn receive(&self, envelope: &Envelope) -> Result<Received, Error>
    where
        S: Deferred,
    {
        self.check_envelope(envelope)?;
        let keep = async |tx: &mut S::Tx| {
            self.store().keep(tx, &KeepRequest::new(self.consumer(), &[envelope])).await
        };
        match self.process(envelope.message(), keep).await? {
            Outcome::Processed(()) => Ok(Received::Kept),
            Outcome::Duplicate(original) => Ok(Received::Duplicate(original)),
        }
    }

    /// Receives many messages in one transaction; answers by position. A message that fails is tried
    /// alone, so that it does not keep the others back (R18).
    ///
    /// # Errors
    ///
    /// As [`process_batch`](Self::process_batch): only if nothing of the batch is known to be kept.
    pub async fn receive_batch(&self, envelopes: &[Envelope]) -> Result<Vec<BatchReceived>, Error>
    where
        S: Deferred,
    {
        let checked: Vec<Result<(), Error>> = envelopes.iter().map(|one| self.check_envelope(one)).collect();
        let sound = || envelopes.iter().zip(&checked).filter(|(_, check)| check.is_ok()).map(|(one, _)| one);
        let messages: Vec<Message> = sound().map(|envelope| envelope.message().clone()).collect();
        // By the message's place, not by its id: of repeats whose first fails, a later one is kept.
        let place = |message: &Message| std::ptr::from_ref(message).addr();
        let by_place: HashMap<usize, &Envelope> = messages.iter().map(place).zip(sound()).collect();
        let keep = async |tx: &mut S::Tx, new: &[&Message]| {
            let envelopes: Vec<&Envelope> = new.iter().map(|message| by_place[&place(message)]).collect();
            self.store().keep(tx, &KeepRequest::new(self.consumer(), &envelopes)).await
        };
        let outcomes = match messages.is_empty() {
            true => Vec::new(),
            false => self.process_batch(&messages, keep).await?,
        };
        let mut outcomes = outcomes.into_iter();
        let answers = checked.into_iter().map(|check| match check {
            Err(refused) => BatchReceived::Failed(refused),
            Ok(()) => {
                outcomes.next().map_or_else(|| BatchReceived::Failed(unanswered()), BatchReceived::from)
            }
        });
        Ok(answers.collect())
    }
}

/// `process_batch` answers each message, so this is never seen.
fn unanswered() -> Error {
    Error::new(ErrorKind::Backend, "receive a batch").with_detail("a message was not answered")
}

impl<E> From<BatchOutcome<E>> for BatchReceived<E> {
    fn from(outcome: BatchOutcome<E>) -> Self {
        match outcome {
            BatchOutcome::Processed => Self::Kept,
            BatchOutcome::Duplicate(original) => Self::Duplicate(original),
            BatchOutcome::Mismatch(original) => Self::Mismatch(original),
            BatchOutcome::Failed(error) => Self::Failed(error),
        }
    }
}
