//! [`GuardedTx`]: a transaction that cannot be committed by mistake, and [`Registered`].

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::process::ROLLBACK_PATIENCE;
use crate::{
    End, Error, ErrorKind, Guard, Inbox, Lease, Message, MessageId, Original, Register, RegisterBatch,
    Registration, Transactional,
};

/// What [`Inbox::register`] found: the transaction comes back only for a new message, so an effect
/// without a registration does not type-check.
#[derive(Debug)]
#[must_use = "a new message must be handled and committed"]
pub enum Registered<'i, S, Tx> {
    /// The id is new: write the effect through the transaction, then commit it.
    New(GuardedTx<'i, S, Tx>),
    /// The id was registered before; the transaction was dropped, and so rolled back.
    Duplicate(Original),
}

/// A transaction with the inbox's guard on it. It derefs to your transaction.
///
/// [`commit`](Self::commit) answers `Ok` only for a certain commit that holds every registration
/// made through this handle (R12). After an error or a cancelled call of the inbox it refuses (R9).
/// Dropping it rolls back.
pub struct GuardedTx<'i, S, Tx> {
    pub(crate) inbox: &'i Inbox<S>,
    pub(crate) tx: Tx,
    /// What the next call tells the store.
    guard: Guard,
    registered: Vec<MessageId>,
    /// Those of `registered` that came once the transaction had been lent.
    undoable: Vec<MessageId>,
    /// The kept messages that were completed in it.
    pub(crate) completed: Vec<Lease>,
    condemned: Option<Condemned>,
}

/// Why a transaction can only be rolled back.
#[derive(Debug, Clone, Copy)]
enum Condemned {
    /// Stands while a call is under way, so that dropping the call's future leaves it.
    Cancelled,
    Failed(ErrorKind),
}

impl<'i, S, Tx: Send> GuardedTx<'i, S, Tx>
where
    S: Transactional<Tx>,
{
    pub(crate) fn new(inbox: &'i Inbox<S>, tx: Tx, guard: Guard) -> Self {
        Self {
            inbox,
            tx,
            guard,
            registered: Vec::new(),
            undoable: Vec::new(),
            completed: Vec::new(),
            condemned: None,
        }
    }

    /// Registers another message in the same transaction.
    ///
    /// # Errors
    ///
    /// As [`InboxStore::register_if_new`](crate::InboxStore::register_if_new). After an error other
    /// than `InvalidMessage` this transaction can only be rolled back.
    pub async fn register_if_new(&mut self, message: &Message) -> Result<Registration, Error> {
        let request = Register::new(self.inbox.consumer(), message).wait(self.inbox.wait()).guard(self.guard);
        self.enter(|| request.doing())?;
        let answer = self.inbox.store().register_if_new(&mut self.tx, &request).await;
        let answer = self.settle(answer.and_then(|answer| answer.refuse_mismatch(|| request.doing())))?;
        if answer.is_new() {
            self.note(std::iter::once(message.id()));
        }
        answer.trace(self.inbox.consumer(), message.id());
        Ok(answer)
    }

    /// Registers many messages in the same transaction; answers by position.
    ///
    /// # Errors
    ///
    /// As [`register_if_new`](Self::register_if_new), but a mismatch is an answer at its position.
    pub async fn register_batch(&mut self, messages: &[Message]) -> Result<Vec<Registration>, Error> {
        let request =
            RegisterBatch::new(self.inbox.consumer(), messages).wait(self.inbox.wait()).guard(self.guard);
        self.enter(|| request.doing())?;
        let answers = self.inbox.store().register_batch(&mut self.tx, &request).await;
        let answers = self.settle(answers.and_then(|answers| request.one_each(answers)))?;
        let new = messages.iter().zip(&answers).filter(|(_, answer)| answer.is_new());
        self.note(new.map(|(message, _)| message.id()));
        Ok(answers)
    }

    /// Commits; `Ok` means that the effect and every registration are committed (R12).
    ///
    /// # Errors
    ///
    /// `Aborted` after an earlier error or a cancelled call of the inbox, and all kinds of
    /// [`Transactional::commit`].
    pub async fn commit(self) -> Result<(), Error> {
        let Self { inbox, tx, mut registered, mut undoable, completed, condemned, .. } = self;
        let request = End::new(inbox.consumer(), each_once(&mut registered))
            .undoable(each_once(&mut undoable))
            .completed(&completed);
        if let Some(condemned) = condemned {
            // By a call, not by a drop: what a driver has lost sight of is ended as well.
            let _ = tokio::time::timeout(ROLLBACK_PATIENCE, inbox.store().rollback(tx, request)).await;
            return Err(condemned.error(request.doing("commit")));
        }
        inbox.store().commit(tx, request).await
    }

    /// Rolls back: the registrations and the effect are forgotten.
    ///
    /// # Errors
    ///
    /// As [`Transactional::rollback`]; the transaction is over in any case.
    pub async fn rollback(self) -> Result<(), Error> {
        let Self { inbox, tx, mut registered, mut undoable, completed, .. } = self;
        let request = End::new(inbox.consumer(), each_once(&mut registered))
            .undoable(each_once(&mut undoable))
            .completed(&completed);
        inbox.store().rollback(tx, request).await
    }

    /// Notes what the commit has to ask for.
    fn note<'m>(&mut self, new: impl Iterator<Item = &'m MessageId>) {
        let noted = self.registered.len();
        self.registered.extend(new.cloned());
        if self.guard == Guard::Lent {
            self.undoable.extend_from_slice(&self.registered[noted..]);
        }
    }

    /// Begins a call: refused in a condemned transaction, and condemned itself until it has answered.
    pub(crate) fn enter(&mut self, doing: impl FnOnce() -> String) -> Result<(), Error> {
        match self.condemned.replace(Condemned::Cancelled) {
            Some(condemned) => {
                self.condemned = Some(condemned);
                Err(condemned.error(doing()))
            }
            None => Ok(()),
        }
    }

    /// Ends a call: only an answer, or an error that came before any SQL, leaves the transaction usable.
    pub(crate) fn settle<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        self.condemned = match &answer {
            Ok(_) => {
                self.guard = self.guard.after();
                None
            }
            Err(error) if error.kind() == ErrorKind::InvalidMessage => None,
            Err(error) => Some(Condemned::Failed(error.kind())),
        };
        answer
    }
}

impl Condemned {
    fn error(self, doing: String) -> Error {
        let error = Error::new(ErrorKind::Aborted, doing);
        match self {
            Self::Cancelled => {
                error.with_detail("a call of the inbox in it was cancelled, so its answer is not known")
            }
            Self::Failed(kind) => error.with_detail(format!("the earlier error was {kind:?}")),
        }
    }
}

/// An id that a savepoint undid and that was registered again was answered `New` twice.
fn each_once(registered: &mut Vec<MessageId>) -> &[MessageId] {
    registered.sort_unstable();
    registered.dedup();
    registered
}

impl<S, Tx> Deref for GuardedTx<'_, S, Tx> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl<S, Tx> DerefMut for GuardedTx<'_, S, Tx> {
    fn deref_mut(&mut self) -> &mut Tx {
        if self.guard == Guard::Fresh {
            self.guard = Guard::Lent;
        }
        &mut self.tx
    }
}

impl<S, Tx> fmt::Debug for GuardedTx<'_, S, Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedTx")
            .field("registered", &self.registered)
            .field("completed", &self.completed)
            .field("condemned", &self.condemned)
            .finish_non_exhaustive()
    }
}
