//! [`SqliteTx`]: a transaction that owns its connection, for use from async code.

use inbox_core::{Error, ErrorKind};
use rusqlite::{Connection, ffi};

use super::connections::Lease;
use super::errors::raise;
use super::guard;
use super::offload::offload;

/// A transaction of a [`SqliteStore`](crate::SqliteStore), which [`Inbox::process`](inbox_core::Inbox::process)
/// hands to its handler. Write the effect through [`call`](Self::call).
///
/// It has no `commit` of its own: the inbox commits, with its guard. Dropping it rolls back, while
/// unwinding too, and gives the connection to whoever waits for it.
#[derive(Debug)]
pub struct SqliteTx {
    state: State,
    /// Whether messages were kept in it, of which the commit is to tell.
    has_news: bool,
}

#[derive(Debug)]
enum State {
    Open(Lease),
    /// A call came back without an open transaction; only a rollback looks at what became of it.
    Lost(Ended),
    Over(Reason),
}

/// A transaction that was ended by a call.
///
/// It keeps the connection, so that no other transaction of this store can come in between.
#[derive(Debug)]
pub(crate) struct Ended {
    lease: Lease,
    /// Whether the call that ended it changed rows, before the end or after it.
    pub(crate) changed: bool,
}

impl Ended {
    pub(crate) fn conn(&self) -> &Connection {
        self.lease.conn()
    }
}

/// Why nothing more runs in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// An error of the inbox condemned it.
    Condemned,
    /// A call is under way, was cancelled, or panicked. Whoever still holds the connection rolls back.
    Interrupted,
    /// A call ended the transaction that was begun; something may be committed.
    Lost,
}

impl Reason {
    /// A condemned transaction that is not the one that was begun is a lost one all the same.
    fn of_condemning(conn: &Connection) -> Self {
        match guard::roll_back_to(conn) {
            Err(error) if guard::is_gone(&error) => Self::Lost,
            _ => Self::Condemned,
        }
    }

    fn kind(self) -> ErrorKind {
        match self {
            Self::Lost => ErrorKind::TransactionLost,
            Self::Condemned | Self::Interrupted => ErrorKind::Aborted,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Condemned => "an earlier error of the inbox condemned this transaction; it is rolled back",
            Self::Interrupted => {
                "an earlier call in this transaction was cancelled or panicked; it is rolled back"
            }
            Self::Lost => {
                "an earlier call ended this transaction (a raw COMMIT or ROLLBACK, a full disk, an I/O error); \
                 nothing more runs in it"
            }
        }
    }
}

impl SqliteTx {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { state: State::Open(lease), has_news: false }
    }

    /// Has the commit tell those who wait for messages.
    pub(crate) fn note_news(&mut self) {
        self.has_news = true;
    }

    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Runs `work` on the transaction's connection, on a thread for blocking calls.
    ///
    /// The closure owns what it uses (`move`). Its error type is any that `?` can make of rusqlite's.
    /// Savepoints are plain SQL: `SAVEPOINT a`, `ROLLBACK TO a`.
    ///
    /// ```
    /// # use inbox_core::{Consumer, Error, Inbox, Message, MessageId};
    /// # use inbox_sqlite::SqliteStore;
    /// #[derive(Debug)]
    /// enum AppError { Inbox(Error), Sqlite(rusqlite::Error) }
    /// # impl From<Error> for AppError { fn from(e: Error) -> Self { Self::Inbox(e) } }
    /// # impl From<rusqlite::Error> for AppError { fn from(e: rusqlite::Error) -> Self { Self::Sqlite(e) } }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AppError> {
    /// # let store = SqliteStore::in_memory()?;
    /// # store.create_schema().await?;
    /// # store.call(|conn| conn.execute_batch("CREATE TABLE points (amount INTEGER)")).await?;
    /// # let inbox = Inbox::new(store, Consumer::new("loyalty")?);
    /// # let message = Message::new(MessageId::new("m-1")?, "PaymentConfirmed")?;
    /// let amount = 10;
    /// inbox.process(&message, async |tx| {
    ///     tx.call(move |conn| conn.execute("INSERT INTO points VALUES (?1)", [amount])).await?;
    ///     Ok::<_, AppError>(())
    /// }).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A panic in `work` rolls back and goes on in the caller. If the returned future is dropped,
    /// `work` runs to its end and the transaction is rolled back.
    ///
    /// Do not end the transaction in `work`: a raw `COMMIT` or `ROLLBACK` is noticed, later calls are
    /// refused and the commit is [`TransactionLost`](ErrorKind::TransactionLost), but what a raw
    /// `COMMIT` wrote stays. Return after an error that makes SQLite itself roll back (a full disk,
    /// an I/O error, `OR ROLLBACK`): what `work` runs after it is committed statement by statement.
    ///
    /// # Errors
    ///
    /// Those of `work`. If the transaction is already over, `work` does not run and the error is a
    /// [`SqliteFailure`](rusqlite::Error::SqliteFailure) of code `SQLITE_ABORT` with the reason in its text.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn call<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<rusqlite::Error> + Send + 'static,
    {
        match self.with_lease(|lease| work(lease.conn())).await {
            Ok(result) => result,
            Err(Refused::Over(reason)) => Err(raise(ffi::SQLITE_ABORT, reason.text()).into()),
            Err(Refused::ShutDown(error)) => Err(error.into()),
        }
    }

    /// As [`call`](Self::call), for the inbox itself: an error condemns the transaction (R9).
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        doing: impl Fn() -> String,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        match self.with_lease(|lease| work(lease.conn())).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.condemn_after(&error);
                Err(error)
            }
            Err(Refused::Over(reason)) => Err(Error::new(reason.kind(), doing()).with_detail(reason.text())),
            Err(Refused::ShutDown(source)) => {
                Err(Error::new(ErrorKind::Unavailable, doing()).with_source(source))
            }
        }
    }

    /// Rolls back now, so that nothing can be committed and nobody waits for a lost cause.
    pub(crate) fn condemn(&mut self) {
        if let State::Open(lease) = &self.state {
            self.state = State::Over(Reason::of_condemning(lease.conn()));
        }
    }

    fn condemn_after(&mut self, error: &Error) {
        if let State::Open(lease) | State::Lost(Ended { lease, .. }) = &mut self.state {
            lease.close_after_error(error);
        }
        self.condemn();
        if let State::Lost(_) = self.state {
            // The statement that failed ended the transaction, and that was a rollback: the inbox
            // commits nowhere but in the call that consumes the transaction.
            self.state = State::Over(Reason::Condemned);
        }
    }

    /// Whether the transaction is over and nothing of it is committed.
    pub(crate) fn is_rolled_back(&self) -> bool {
        matches!(self.state, State::Over(Reason::Condemned | Reason::Interrupted))
    }

    /// What is left of a transaction that a call ended; nothing runs in it after that either.
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        match std::mem::replace(&mut self.state, State::Over(Reason::Lost)) {
            State::Lost(ended) => Some(ended),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Hands the connection to a blocking thread and takes it back, unless the call is cancelled or panics.
    async fn with_lease<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Lease) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let lease = match std::mem::replace(&mut self.state, State::Over(Reason::Interrupted)) {
            State::Open(lease) => lease,
            over => {
                let reason = if let State::Over(reason) = over { reason } else { Reason::Lost };
                self.state = over;
                return Err(Refused::Over(reason));
            }
        };
        let worked = offload(move || {
            let before = lease.conn().total_changes();
            let result = work(&lease);
            let changed = lease.conn().total_changes() != before;
            (lease, changed, result)
        });
        let (lease, changed, result) = worked.await.map_err(Refused::ShutDown)?;
        self.state =
            if lease.in_transaction() { State::Open(lease) } else { State::Lost(Ended { lease, changed }) };
        Ok(result)
    }
}

enum Refused {
    Over(Reason),
    ShutDown(rusqlite::Error),
}
