//! The inbox without async: register in a [`rusqlite::Transaction`] of your own, on a connection of your own.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use inbox_core::{
    Deadline, End, Error, ErrorKind, Guard, Inbox, Message, MessageId, Original, Outcome, Register,
    RegisterBatch, Registration,
};
use rusqlite::{Connection, DropBehavior, Transaction, TransactionBehavior, ffi};

use super::batch::register_batch;
use super::commit::{commit_on, rollback_on};
use super::errors::{primary_code, to_error};
use super::guard;
use super::register::register;
use super::store::SqliteStore;
use super::wait::BoundedWait;

/// The blocking calls of an inbox on SQLite. Of the store they use the table's name and the wait;
/// its connections stay unopened, or serve async code on the same file at the same time.
///
/// By value only: the transaction goes in and comes back if the message is new. A plain
/// [`Transaction`] cannot be kept from committing after an error, so there is no call by reference
/// on it; [`BlockingTx::register_if_new`] is one on a transaction that can.
///
/// The wait bounds SQLite's busy timeout for the call, and the connection's own is put back. On a
/// connection whose timeout is 0, which may have a busy handler of its own, nothing is set:
/// [`blocking_process`](Self::blocking_process) then waits by trying again.
pub trait Blocking: sealed::Sealed {
    /// Registers a message in your transaction. On a duplicate or an error the transaction is
    /// rolled back: begin it for this message and write nothing before.
    ///
    /// Begin it with [`TransactionBehavior::Immediate`]. A deferred transaction that has read cannot
    /// wait for the writer: the error is `Busy`, or `Retryable` with `SQLITE_BUSY_SNAPSHOT` (517) in
    /// its source, at once, and only a new transaction helps.
    ///
    /// # Errors
    ///
    /// Any kind but `InvalidMessage` and `UnknownOutcome`; a mismatch is an error (R11).
    fn blocking_register<'c>(
        &self,
        tx: Transaction<'c>,
        message: &Message,
    ) -> Result<BlockingRegistered<'c>, Error>;

    /// Puts the guard on your transaction, to register in it by reference.
    ///
    /// # Errors
    ///
    /// `TransactionLost` if it was ended by a raw COMMIT or ROLLBACK.
    fn blocking_guard<'c>(&self, tx: Transaction<'c>) -> Result<BlockingTx<'c>, Error>;

    /// Handles one message exactly once: BEGIN IMMEDIATE, register, the handler if the message is
    /// new, the guarded commit. Retryable errors of the inbox run all of it again, within the inbox's
    /// [`RetryPolicy`](inbox_core::RetryPolicy), sleeping on this thread: **the handler may run
    /// several times, only one run is committed.**
    ///
    /// An error of the handler rolls back and is returned as it is, unless the handler had ended the
    /// transaction and something may be committed: then the error is `TransactionLost`. A panic rolls
    /// back and unwinds.
    ///
    /// # Errors
    ///
    /// The handler's, or the inbox's through `From`.
    fn blocking_process<T, E, F>(
        &self,
        conn: &mut Connection,
        message: &Message,
        handler: F,
    ) -> Result<Outcome<T>, E>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E>,
        E: From<Error>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for inbox_core::Inbox<crate::SqliteStore> {}
}

/// What [`Blocking::blocking_register`] found.
#[derive(Debug)]
#[must_use = "a new message must be handled and committed"]
pub enum BlockingRegistered<'c> {
    /// The id is new: write the effect through the transaction, then commit it.
    New(BlockingTx<'c>),
    /// The id was registered before; the transaction is rolled back.
    Duplicate(Original),
}

/// Your transaction with the inbox's guard on it. It derefs to [`Transaction`]; dropping it rolls back.
pub struct BlockingTx<'c> {
    tx: Transaction<'c>,
    inbox: Inbox<SqliteStore>,
    registered: Vec<MessageId>,
    /// SQLite's count of changed rows after the last call of the inbox.
    changes: u64,
    condemned: bool,
}

impl<'c> BlockingTx<'c> {
    fn new(inbox: &Inbox<SqliteStore>, mut tx: Transaction<'c>) -> Result<Self, Error> {
        const DOING: &str = "guard a transaction";
        tx.set_drop_behavior(DropBehavior::Rollback);
        // In autocommit a savepoint would begin a transaction of its own.
        if tx.is_autocommit() {
            return Err(
                Error::new(ErrorKind::TransactionLost, DOING).with_detail("no transaction is open any more")
            );
        }
        guard::set(&tx).map_err(|source| to_error(DOING, source))?;
        let changes = tx.total_changes();
        Ok(Self { tx, inbox: inbox.clone(), registered: Vec::new(), changes, condemned: false })
    }

    /// Registers another message in the same transaction.
    ///
    /// # Errors
    ///
    /// As [`Blocking::blocking_register`]; after an error only a rollback is left.
    pub fn register_if_new(&mut self, message: &Message) -> Result<Registration, Error> {
        let inbox = self.inbox.clone();
        let request = Register::new(inbox.consumer(), message).guard(Guard::Lent);
        let answer = self.guarded(&request.doing(), |tx, store| {
            register(tx, &store.sql, &request)?.refuse_mismatch(|| request.doing())
        })?;
        if answer.is_new() {
            self.registered.push(message.id().clone());
        }
        Ok(answer)
    }

    /// Registers many messages in the same transaction; answers by position (R10).
    ///
    /// # Errors
    ///
    /// As [`register_if_new`](Self::register_if_new), but a mismatch is an answer at its position.
    pub fn register_batch(&mut self, messages: &[Message]) -> Result<Vec<Registration>, Error> {
        let inbox = self.inbox.clone();
        let request = RegisterBatch::new(inbox.consumer(), messages).guard(Guard::Lent);
        let answers = self.guarded(&request.doing(), |tx, store| register_batch(tx, &store.sql, &request))?;
        let new = messages.iter().zip(&answers).filter(|(_, answer)| answer.is_new());
        self.registered.extend(new.map(|(message, _)| message.id().clone()));
        Ok(answers)
    }

    /// Runs a call of the inbox with its bounded wait; an error condemns the transaction (R9).
    fn guarded<T>(
        &mut self,
        doing: &str,
        call: impl FnOnce(&Connection, &SqliteStore) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.condemned {
            return Err(already_condemned(doing));
        }
        self.condemned = true;
        if self.tx.is_autocommit() {
            return Err(
                Error::new(ErrorKind::TransactionLost, doing).with_detail("no transaction is open any more")
            );
        }
        let wait = wait_of(&self.inbox);
        let bounded = BoundedWait::new(&self.tx, wait).map_err(|source| to_error(doing, source))?;
        let answer = call(&self.tx, self.inbox.store())?;
        drop(bounded);
        self.changes = self.tx.total_changes();
        self.condemned = false;
        Ok(answer)
    }

    /// Commits; `Ok` means that the effect and every registration made through this handle are
    /// committed (R12).
    ///
    /// # Errors
    ///
    /// `Aborted` after an earlier error; `TransactionLost` if the transaction was ended by a raw
    /// COMMIT or ROLLBACK, or a savepoint undid a registration; `Busy`; `UnknownOutcome` if SQLite
    /// failed while it wrote the commit; what else SQLite reports. The transaction is over.
    pub fn commit(self) -> Result<(), Error> {
        let request = End::new(self.inbox.consumer(), &self.registered);
        if self.condemned {
            return Err(already_condemned(&request.doing("commit")));
        }
        let wait = wait_of(&self.inbox);
        let _bounded =
            BoundedWait::new(&self.tx, wait).map_err(|source| to_error(request.doing("commit"), source))?;
        commit_on(&self.tx, &self.inbox.store().sql, &request)
    }

    /// Rolls back: the registrations and the effect are forgotten.
    ///
    /// # Errors
    ///
    /// `TransactionLost` if the transaction had been ended before and it is not certain that nothing
    /// of it is committed; what SQLite reports.
    pub fn rollback(self) -> Result<(), Error> {
        let request = End::new(self.inbox.consumer(), &self.registered);
        rollback_on(&self.tx, &self.inbox.store().sql, &request, self.changes)
    }
}

fn already_condemned(doing: &str) -> Error {
    Error::new(ErrorKind::Aborted, doing)
        .with_detail("an earlier call of the inbox in this transaction failed")
}

fn wait_of(inbox: &Inbox<SqliteStore>) -> Duration {
    inbox.wait().unwrap_or(inbox.store().wait)
}

impl<'c> Deref for BlockingTx<'c> {
    type Target = Transaction<'c>;

    fn deref(&self) -> &Transaction<'c> {
        &self.tx
    }
}

impl fmt::Debug for BlockingTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingTx")
            .field("registered", &self.registered)
            .field("condemned", &self.condemned)
            .finish_non_exhaustive()
    }
}

impl Blocking for Inbox<SqliteStore> {
    fn blocking_register<'c>(
        &self,
        tx: Transaction<'c>,
        message: &Message,
    ) -> Result<BlockingRegistered<'c>, Error> {
        let mut tx = self.blocking_guard(tx)?;
        match tx.register_if_new(message)? {
            Registration::New => Ok(BlockingRegistered::New(tx)),
            Registration::Duplicate(original) => Ok(BlockingRegistered::Duplicate(original)),
            // Only a new message may reach a handler, whatever other answers there may be one day.
            other => Err(Error::new(ErrorKind::Backend, Register::new(self.consumer(), message).doing())
                .with_detail(format!("the answer is neither new nor a duplicate: {other:?}"))),
        }
    }

    fn blocking_guard<'c>(&self, tx: Transaction<'c>) -> Result<BlockingTx<'c>, Error> {
        BlockingTx::new(self, tx)
    }

    fn blocking_process<T, E, F>(
        &self,
        conn: &mut Connection,
        message: &Message,
        mut handler: F,
    ) -> Result<Outcome<T>, E>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E>,
        E: From<Error>,
    {
        let mut runs = self.retry().start();
        loop {
            let error = match run_once(self, conn, message, &mut handler) {
                Ok(result) => return result,
                Err(error) => error,
            };
            match error.is_retryable().then(|| runs.next_pause()).flatten() {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(error.into()),
            }
        }
    }
}

/// One run; the outer error is the inbox's, the inner one the handler's.
fn run_once<T, E>(
    inbox: &Inbox<SqliteStore>,
    conn: &mut Connection,
    message: &Message,
    handler: &mut impl FnMut(&Transaction<'_>) -> Result<T, E>,
) -> Result<Result<Outcome<T>, E>, Error> {
    let begun = begin_immediate(conn, Deadline::after(wait_of(inbox)));
    let tx = begun
        .map_err(|source| to_error(format!("begin a transaction for {}", inbox.store().table()), source))?;
    match inbox.blocking_register(tx, message)? {
        BlockingRegistered::Duplicate(original) => Ok(Ok(Outcome::Duplicate(original))),
        BlockingRegistered::New(tx) => match handler(&tx) {
            Ok(value) => tx.commit().map(|()| Ok(Outcome::Processed(value))),
            Err(error) => roll_back_after(error, tx),
        },
    }
}

/// Rolls back after the handler's error, which is the answer unless the transaction turns out to be
/// lost: what the handler committed on its own would make the redelivery a duplicate of half an effect.
fn roll_back_after<T, E>(error: E, tx: BlockingTx<'_>) -> Result<Result<T, E>, Error> {
    match tx.rollback() {
        Err(lost) if lost.kind() == ErrorKind::TransactionLost => Err(lost),
        // The transaction is over in any case; what the caller wants to know is why the handler failed.
        _ => Ok(Err(error)),
    }
}

/// Begins as the writer, waiting for it in SQLite, or here where SQLite was not told to wait.
fn begin_immediate(conn: &mut Connection, deadline: Deadline) -> rusqlite::Result<Transaction<'_>> {
    const LONGEST_PAUSE: Duration = Duration::from_millis(25);
    let conn: &Connection = conn;
    let bounded = BoundedWait::new(conn, deadline.bound())?;
    let mut pause = Duration::from_millis(1);
    loop {
        let begun = Transaction::new_unchecked(conn, TransactionBehavior::Immediate);
        let busy = matches!(&begun, Err(error) if primary_code(error) == Some(ffi::SQLITE_BUSY));
        if !busy || !bounded.is_left_alone() || deadline.left().is_zero() {
            return begun;
        }
        std::thread::sleep(pause.min(deadline.left()));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
