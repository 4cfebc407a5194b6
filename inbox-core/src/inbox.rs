//! [`Inbox`]: one consumer on one store.

use std::time::Duration;

use crate::{
    Administer, Begin, Consumer, DEFAULT_MAX_PAYLOAD, Error, ErrorKind, Guard, GuardedTx, InboxStore,
    Message, MessageId, Original, Register, RegisterBatch, Registered, Registration, RetryPolicy,
    Transactional,
};

/// One consumer on one store: the way in.
///
/// Making one does no I/O. Cloning is as cheap as cloning the store.
#[derive(Debug, Clone)]
pub struct Inbox<S> {
    store: S,
    consumer: Consumer,
    wait: Option<Duration>,
    retry: RetryPolicy,
    pub(crate) max_payload: usize,
}

impl<S> Inbox<S> {
    /// An inbox for `consumer` on `store`, with the store's default wait and the default [`RetryPolicy`].
    pub fn new(store: S, consumer: Consumer) -> Self {
        Self { store, consumer, wait: None, retry: RetryPolicy::default(), max_payload: DEFAULT_MAX_PAYLOAD }
    }

    /// Bounds the wait for another transaction that holds an id, for every registration of this inbox
    /// (R6). Zero is no wait. For one call, do this on a clone. `find` and `forget` keep the store's.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets how `process` and its kin run a transaction again.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The consumer.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// The bound of the wait, if this inbox sets one.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How a transaction is run again.
    pub fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// Begins a transaction with the guard on it.
    ///
    /// # Errors
    ///
    /// As [`Begin::begin`].
    ///
    /// ```no_run
    /// # use inbox_core::{Begin, Error, Inbox, Message};
    /// # async fn credit<T>(_tx: &mut T) -> Result<(), Error> { Ok(()) }
    /// # async fn example<S: Begin>(inbox: &Inbox<S>, message: &Message) -> Result<(), Error> {
    /// let mut tx = inbox.begin().await?;
    /// if tx.register_if_new(message).await?.is_new() {
    ///     credit(&mut *tx).await?;
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin(&self) -> Result<GuardedTx<'_, S, S::Tx>, Error>
    where
        S: Begin,
    {
        Ok(GuardedTx::new(self, self.store.begin(self.wait).await?, Guard::Fresh))
    }

    /// Puts the guard on a transaction that you began; what a savepoint set before it undoes, undoes
    /// the guard as well.
    ///
    /// # Errors
    ///
    /// As [`Transactional::guard`]; your transaction is dropped then, and so rolled back.
    pub async fn guard<Tx: Send>(&self, mut tx: Tx) -> Result<GuardedTx<'_, S, Tx>, Error>
    where
        S: Transactional<Tx>,
    {
        self.store.guard(&mut tx).await?;
        Ok(GuardedTx::new(self, tx, Guard::Fresh))
    }

    /// Registers a message in your transaction, by value: it comes back only if the message is new.
    ///
    /// On a duplicate or an error, and if the future is dropped, your transaction is dropped and so
    /// rolled back: begin it for this message and write nothing before.
    ///
    /// # Errors
    ///
    /// As [`InboxStore::register_if_new`]; a mismatch is an error.
    ///
    /// ```no_run
    /// # use inbox_core::{Begin, Error, Inbox, Message, Registered};
    /// # async fn credit<T>(_tx: &mut T) -> Result<(), Error> { Ok(()) }
    /// # async fn example<S: Begin>(inbox: &Inbox<S>, message: &Message) -> Result<(), Error> {
    /// let tx = inbox.store().begin(inbox.wait()).await?; // or your pool's begin
    /// match inbox.register(tx, message).await? {
    ///     Registered::New(mut tx) => {
    ///         credit(&mut *tx).await?;
    ///         tx.commit().await?;
    ///     }
    ///     Registered::Duplicate(_) => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn register<Tx: Send>(&self, tx: Tx, message: &Message) -> Result<Registered<'_, S, Tx>, Error>
    where
        S: Transactional<Tx>,
    {
        let mut tx = GuardedTx::new(self, tx, Guard::Opens);
        match tx.register_if_new(message).await? {
            Registration::New => Ok(Registered::New(tx)),
            Registration::Duplicate(original) => Ok(Registered::Duplicate(original)),
            // An error of the guard already; a second look costs nothing and a slip would an effect.
            Registration::Mismatch(original) => {
                Err(original.mismatch(Register::new(&self.consumer, message).doing()))
            }
        }
    }

    /// Registers a message by reference, for nested code that does not own the transaction.
    ///
    /// The plain `commit` of the driver then has no guard: begin with [`begin`](Self::begin) or put
    /// one on with [`guard`](Self::guard) where you can.
    ///
    /// # Errors
    ///
    /// As [`InboxStore::register_if_new`]. After an error other than `InvalidMessage`, roll back.
    pub async fn register_if_new<Tx: Send>(
        &self,
        tx: &mut Tx,
        message: &Message,
    ) -> Result<Registration, Error>
    where
        S: InboxStore<Tx>,
    {
        let request = Register::new(&self.consumer, message).wait(self.wait);
        let answer = self.store.register_if_new(tx, &request).await;
        let answer = answer.and_then(|answer| answer.refuse_mismatch(|| request.doing()));
        if let Ok(answer) = &answer {
            answer.trace(&self.consumer, message.id());
        }
        self.condemn_after(tx, answer).await
    }

    /// Registers many messages by reference; answers by position (R10).
    ///
    /// # Errors
    ///
    /// As [`InboxStore::register_batch`]. After an error other than `InvalidMessage`, roll back.
    pub async fn register_batch<Tx: Send>(
        &self,
        tx: &mut Tx,
        messages: &[Message],
    ) -> Result<Vec<Registration>, Error>
    where
        S: InboxStore<Tx>,
    {
        let request = RegisterBatch::new(&self.consumer, messages).wait(self.wait);
        let answers = self.store.register_batch(tx, &request).await;
        let answers = answers.and_then(|answers| request.one_each(answers));
        self.condemn_after(tx, answers).await
    }

    /// Condemns a transaction that we do not own after an error of ours (R9).
    pub(crate) async fn condemn_after<Tx: Send, T>(
        &self,
        tx: &mut Tx,
        answer: Result<T, Error>,
    ) -> Result<T, Error>
    where
        S: InboxStore<Tx>,
    {
        if let Err(error) = &answer
            && error.kind() != ErrorKind::InvalidMessage
        {
            self.store.condemn(tx).await;
        }
        answer
    }

    /// The committed original of an id, for operators: it is no check to act on.
    ///
    /// # Errors
    ///
    /// As [`Administer::find`].
    pub async fn find(&self, id: &MessageId) -> Result<Option<Original>, Error>
    where
        S: Administer,
    {
        self.store.find(&self.consumer, id).await
    }

    /// Deletes one registration on purpose: the next delivery of the id is new, and its effect
    /// happens again. Answers whether there was one.
    ///
    /// # Errors
    ///
    /// As [`Administer::forget`].
    pub async fn forget(&self, id: &MessageId) -> Result<bool, Error>
    where
        S: Administer,
    {
        let forgotten = self.store.forget(&self.consumer, id).await?;
        tracing::info!(consumer = %self.consumer, message_id = %id, forgotten, "registration forgotten on purpose");
        Ok(forgotten)
    }
}
