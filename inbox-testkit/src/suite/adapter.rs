//! From a [`Stand`] to the trait objects of [`stage`](super::stage): the only generic code of the suite.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Administer, BatchOutcome, Begin, BoxError, Capabilities, Consumer, Error, ErrorKind, GuardedTx, Inbox,
    InboxStore, Message, MessageId, Original, Outcome, Registered, Registration,
};

use super::deferred::Tools;
use super::deferred::keeper::TestKeeper;
use super::stage::{HandlerError, Script, Session, Stage, Step, TestInbox};
use super::{Fresh, Level, Need, Probe, Stand};

/// A stand with a fresh store. The store is shared by `Arc`, so that stores need not be `Clone`.
pub(super) struct Opened<T: Stand> {
    stand: Arc<T>,
    store: Arc<T::Store>,
    level: Option<Level>,
    // Dropped last: it removes what the store stands on.
    _guard: Box<dyn Any + Send + Sync>,
}

impl<T: Stand> Opened<T> {
    pub(super) async fn open(stand: Arc<T>, level: Option<Level>) -> Result<Self, BoxError> {
        let Fresh { store, guard } = stand.fresh().await?;
        Ok(Self { stand, store: Arc::new(store), level, _guard: guard })
    }

    fn probe(&self) -> &dyn Probe<T::Store> {
        self.stand.probe().expect("the case's needs were checked")
    }

    fn make_inbox(&self, consumer: &str, wait: Option<Duration>) -> Box<dyn TestInbox + '_> {
        let consumer = Consumer::new(consumer).expect("the case's consumer is valid");
        let inbox = Inbox::new(Arc::clone(&self.store), consumer);
        let inbox = match wait {
            Some(wait) => inbox.with_wait(wait),
            None => inbox,
        };
        Box::new(OpenedInbox { opened: self, inbox })
    }
}

impl<T: Stand> Opened<T> {
    async fn begun_at(&self, level: &Level) -> Result<TxOf<T>, Error> {
        let begun = self.probe().begin_at(&self.store, level).await;
        // A probe that begins through the store hands the store's own error on.
        begun.map_err(|error| match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::new(ErrorKind::Backend, "begin at a level").with_source(other),
        })
    }
}

#[async_trait]
impl<T: Stand> Tools<T::Store> for Opened<T> {
    async fn write_effect(&self, tx: &mut TxOf<T>, name: &str) -> Result<(), BoxError> {
        self.stand.write_effect(tx, name).await
    }

    async fn begin_at_level(&self) -> Option<Result<TxOf<T>, Error>> {
        match &self.level {
            Some(level) => Some(self.begun_at(level).await),
            None => None,
        }
    }

    async fn execute(&self, tx: &mut TxOf<T>, sql: &str) -> Result<(), BoxError> {
        self.probe().execute(tx, sql).await
    }

    async fn session(&self, tx: &mut TxOf<T>) -> String {
        self.probe().session(tx).await.expect("the session has an id")
    }
}

#[async_trait]
impl<T: Stand> Stage for Opened<T> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn level(&self) -> Option<Level> {
        self.level
    }

    fn level_where(&self, fits: fn(&Level) -> bool) -> Level {
        self.probe().levels().into_iter().find(fits).expect("the probe offers such a level")
    }

    fn inbox(&self, consumer: &str) -> Box<dyn TestInbox + '_> {
        self.make_inbox(consumer, None)
    }

    fn inbox_waiting(&self, consumer: &str, wait: Duration) -> Box<dyn TestInbox + '_> {
        self.make_inbox(consumer, Some(wait))
    }

    fn keeper(&self, consumer: &str) -> Box<dyn TestKeeper + '_> {
        let consumer = Consumer::new(consumer).expect("the case's consumer is valid");
        let deferred = self.stand.deferred().expect("the case's needs were checked");
        deferred.keeper(self, Inbox::new(Arc::clone(&self.store), consumer))
    }

    async fn advance_clock(&self, by: Duration) {
        self.probe().advance_clock(&self.store, by).await.expect("the injected clock can be moved");
    }

    fn messages_table(&self) -> &'static str {
        self.probe().messages_table()
    }

    async fn effects(&self, name: &str) -> i64 {
        self.stand.count_effects(&self.store, name).await.expect("effects can be counted")
    }

    async fn execute(&self, sql: &str) {
        if let Err(error) = self.try_execute(sql).await {
            panic!("{sql}: {error}");
        }
    }

    async fn try_execute(&self, sql: &str) -> Result<(), BoxError> {
        self.probe().execute_beside(&self.store, sql).await
    }

    async fn is_waiting(&self, session: &str) -> bool {
        self.probe().is_waiting(&self.store, session).await.expect("the wait view can be read")
    }

    async fn kill(&self, session: &str) {
        self.probe().kill(&self.store, session).await.expect("the session can be killed");
    }

    async fn open_transactions(&self) -> u64 {
        self.probe().open_transactions(&self.store).await.expect("open transactions can be counted")
    }

    async fn create_schema(&self) -> Result<(), Error> {
        self.probe().create_schema(&self.store).await
    }

    async fn verify(&self) -> Result<(), Error> {
        self.probe().verify(&self.store).await
    }

    fn offers(&self, need: Need) -> bool {
        self.stand.probe().is_some_and(|probe| probe.offers().contains(&need))
    }

    fn aborting_sql(&self) -> &'static str {
        self.probe().aborting_sql()
    }

    fn swallow_inserts(&self) -> Vec<String> {
        self.probe().swallow_inserts()
    }

    fn shadow_table(&self) -> &'static str {
        self.probe().shadow_table()
    }

    fn table(&self) -> &'static str {
        self.probe().table()
    }

    fn damage(&self, name: &str) -> Vec<String> {
        let damage = self.probe().damages().into_iter().find(|damage| damage.name == name);
        damage.expect("the probe lists the damage").sql
    }
}

struct OpenedInbox<'a, T: Stand> {
    opened: &'a Opened<T>,
    inbox: Inbox<Arc<T::Store>>,
}

type TxOf<T> = <<T as Stand>::Store as Begin>::Tx;

impl<T: Stand> OpenedInbox<'_, T> {
    fn session<'s>(&'s self, tx: GuardedTx<'s, Arc<T::Store>, TxOf<T>>) -> Box<dyn Session + 's> {
        Box::new(OpenedSession { opened: self.opened, inbox: &self.inbox, tx })
    }

    async fn steps(&self, tx: &mut TxOf<T>, new: &[&Message], script: &Script) -> Result<(), HandlerError> {
        for message in new {
            self.step(tx, message.id(), script).await?;
        }
        Ok(())
    }

    async fn execute_and_fail(&self, tx: &mut TxOf<T>, sql: &str) -> Result<(), HandlerError> {
        self.opened.probe().execute(tx, sql).await.map_err(HandlerError::Effect)?;
        Err(HandlerError::Failed)
    }

    async fn step(&self, tx: &mut TxOf<T>, id: &MessageId, script: &Script) -> Result<(), HandlerError> {
        script.calls.fetch_add(1, Ordering::SeqCst);
        self.opened.stand.write_effect(tx, id.as_str()).await.map_err(HandlerError::Effect)?;
        match (script.step)(id.as_str()) {
            Step::Effect => Ok(()),
            Step::Fail => Err(HandlerError::Failed),
            Step::Panic => panic!("the handler panics, as the case wants"),
            Step::Hang => std::future::pending().await,
            Step::SwallowError => {
                let probe = self.opened.probe();
                assert!(
                    probe.execute(tx, probe.aborting_sql()).await.is_err(),
                    "the probe's statement must fail"
                );
                Ok(())
            }
            Step::CommitAndFail => self.execute_and_fail(tx, "COMMIT").await,
            Step::RestartAndFail => self.execute_and_fail(tx, "COMMIT; BEGIN").await,
        }
    }
}

#[async_trait]
impl<T: Stand> TestInbox for OpenedInbox<'_, T> {
    async fn begin(&self) -> Result<Box<dyn Session + '_>, Error> {
        match self.opened.level {
            Some(level) => self.begin_at(&level).await,
            None => Ok(self.session(self.inbox.begin().await?)),
        }
    }

    async fn begin_at(&self, level: &Level) -> Result<Box<dyn Session + '_>, Error> {
        let tx = self.opened.begun_at(level).await?;
        Ok(self.session(self.inbox.guard(tx).await?))
    }

    async fn process(&self, message: &Message, script: &Script) -> Result<Outcome<()>, HandlerError> {
        self.inbox.process(message, async |tx| self.step(tx, message.id(), script).await).await
    }

    async fn process_retrying(
        &self,
        message: &Message,
        script: &Script,
    ) -> Result<Outcome<()>, HandlerError> {
        let retryable = |error: &HandlerError| matches!(error, HandlerError::Failed);
        let handler = async |tx: &mut TxOf<T>| self.step(tx, message.id(), script).await;
        self.inbox.process_retrying(message, retryable, handler).await
    }

    async fn process_batch(
        &self,
        messages: &[Message],
        script: &Script,
    ) -> Result<Vec<BatchOutcome<HandlerError>>, HandlerError> {
        let handler = async |tx: &mut TxOf<T>, new: &[&Message]| self.steps(tx, new, script).await;
        self.inbox.process_batch(messages, handler).await
    }

    async fn process_batch_retrying(
        &self,
        messages: &[Message],
        script: &Script,
    ) -> Result<Vec<BatchOutcome<HandlerError>>, HandlerError> {
        let retryable = |error: &HandlerError| matches!(error, HandlerError::Failed);
        let handler = async |tx: &mut TxOf<T>, new: &[&Message]| self.steps(tx, new, script).await;
        self.inbox.process_batch_retrying(messages, retryable, handler).await
    }

    async fn register_by_value(
        &self,
        message: &Message,
        script: &Script,
    ) -> Result<Option<Original>, HandlerError> {
        let store = &self.opened.store;
        let tx = store.begin(self.inbox.wait()).await?;
        match self.inbox.register(tx, message).await? {
            Registered::Duplicate(original) => Ok(Some(original)),
            Registered::New(mut tx) => {
                self.step(&mut tx, message.id(), script).await?;
                tx.commit().await?;
                Ok(None)
            }
        }
    }

    async fn find(&self, id: &MessageId) -> Result<Option<Original>, Error> {
        self.opened.store.find(self.inbox.consumer(), id).await
    }

    async fn forget(&self, id: &MessageId) -> Result<bool, Error> {
        self.opened.store.forget(self.inbox.consumer(), id).await
    }
}

struct OpenedSession<'a, 's, T: Stand> {
    opened: &'a Opened<T>,
    inbox: &'s Inbox<Arc<T::Store>>,
    tx: GuardedTx<'s, Arc<T::Store>, TxOf<T>>,
}

#[async_trait]
impl<T: Stand> Session for OpenedSession<'_, '_, T> {
    async fn register(&mut self, message: &Message) -> Result<Registration, Error> {
        self.tx.register_if_new(message).await
    }

    async fn register_batch(&mut self, messages: &[Message]) -> Result<Vec<Registration>, Error> {
        self.tx.register_batch(messages).await
    }

    async fn register_by_reference(&mut self, message: &Message) -> Result<Registration, Error> {
        self.inbox.register_if_new(&mut *self.tx, message).await
    }

    async fn effect(&mut self, name: &str) -> Result<(), BoxError> {
        self.opened.stand.write_effect(&mut self.tx, name).await
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        self.opened.probe().execute(&mut self.tx, sql).await
    }

    async fn id(&mut self) -> String {
        self.opened.probe().session(&mut self.tx).await.expect("the session has an id")
    }

    async fn settings(&mut self) -> String {
        self.opened.probe().settings(&mut self.tx).await.expect("the settings can be read")
    }

    async fn commit(self: Box<Self>) -> Result<(), Error> {
        self.tx.commit().await
    }

    async fn rollback(self: Box<Self>) -> Result<(), Error> {
        self.tx.rollback().await
    }
}
