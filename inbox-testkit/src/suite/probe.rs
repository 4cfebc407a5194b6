//! [`Probe`]: the engine's own views and tools, for the cases that need more than the store.

use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{Begin, BoxError, Error};

/// What a case needs beyond a store. A stand that lacks it shows the case as ignored, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// Capability: registering waits for a transaction that holds the id, so two may be open at once.
    OpenTogether,
    /// Capability: savepoints forget a registration.
    Savepoints,
    /// Capability: a commit that did not happen is an error.
    ProvedCommit,
    /// Capability: a commit notices a registration that a savepoint undid.
    NoticedSavepoint,
    /// Capability: a commit and a rollback notice a transaction that was committed and begun anew.
    NoticedRestart,
    /// Capability: a transaction waits, somewhere, for another one that holds the id.
    Waits,
    /// Probe: SQL through the transaction and beside it ([`Probe::execute`], [`Probe::execute_beside`]).
    Sql,
    /// Probe: a view of who waits for whom ([`Probe::session`], [`Probe::is_waiting`]).
    WaitView,
    /// Probe: ending a session from outside ([`Probe::session`], [`Probe::kill`]).
    Kill,
    /// Probe: an isolation level whose transactions keep one snapshot ([`Probe::levels`],
    /// [`Probe::begin_at`]).
    SnapshotLevel,
    /// Probe: an isolation level that is serialisable and may refuse a commit.
    SerializableLevel,
    /// Probe: a way to make inserts vanish, such as a trigger ([`Probe::swallow_inserts`]).
    SwallowedInserts,
    /// Probe: SQL whose swallowed error ends or aborts the transaction ([`Probe::aborting_sql`]).
    AbortingSql,
    /// Probe: temporary tables that could take the inbox's name ([`Probe::shadow_table`]).
    ShadowTable,
    /// Probe: settings of a session that can be listed ([`Probe::settings`]).
    Settings,
    /// Probe: counting the transactions that are open ([`Probe::open_transactions`]).
    OpenTransactions,
    /// Probe: creating and verifying the schema ([`Probe::create_schema`], [`Probe::verify`]).
    Schema,
    /// Stand: a store that keeps whole messages ([`Stand::deferred`](super::Stand::deferred)).
    Deferred,
    /// Probe: a clock of the database's that can be moved ([`Probe::advance_clock`]).
    Clock,
}

impl Need {
    /// Why a case is ignored where this is missing.
    pub fn reason(self) -> &'static str {
        match self {
            Self::OpenTogether => "two transactions cannot hold one id at once: the engine waits at begin",
            Self::Savepoints => "the store declares no savepoints",
            Self::ProvedCommit => "the store declares that it cannot prove a commit",
            Self::NoticedSavepoint => "the store declares that it cannot notice an undone savepoint",
            Self::NoticedRestart => "the store declares that it cannot notice a transaction begun anew",
            Self::Waits => "nobody waits: the loser is told at commit",
            Self::Sql => "no probe: raw SQL",
            Self::WaitView => "no probe: who waits for whom",
            Self::Kill => "no probe: ending a session",
            Self::SnapshotLevel => "no probe: a level with one snapshot per transaction",
            Self::SerializableLevel => "no probe: a serialisable level",
            Self::SwallowedInserts => "no probe: swallowed inserts",
            Self::AbortingSql => "no probe: SQL that aborts the transaction",
            Self::ShadowTable => "no probe: a temporary table of the same name",
            Self::Settings => "no probe: settings of a session",
            Self::OpenTransactions => "no probe: open transactions",
            Self::Schema => "no probe: creating and verifying the schema",
            Self::Deferred => "no deferred inbox: the stand has none",
            Self::Clock => "no probe: moving the database's clock",
        }
    }
}

/// An isolation level at which the suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Its name in the tests' names (`read_committed`).
    pub name: &'static str,
    /// Whether a transaction keeps the snapshot of its first statement.
    pub snapshot: bool,
    /// Whether transactions are serialisable.
    pub serializable: bool,
}

/// A way in which a table can be wrong, which `verify` must refuse (R16).
#[derive(Debug, Clone)]
pub struct Damage {
    /// The last part of the case's name (`missing_unique_key`).
    pub name: &'static str,
    /// The statements that do the damage, run one after the other beside the store.
    pub sql: Vec<String>,
}

impl Damage {
    /// A damage done by one or more statements.
    pub fn new<const N: usize>(name: &'static str, sql: [&str; N]) -> Self {
        Self { name, sql: sql.map(str::to_owned).into() }
    }
}

/// The engine's own views and tools. Every method but [`offers`](Self::offers) has a body that says
/// "not offered"; write those that belong to what `offers` names.
#[async_trait]
pub trait Probe<S: Begin>: Send + Sync {
    /// What this probe can do. Leave out what the engine has not.
    fn offers(&self) -> Vec<Need>;

    /// The isolation levels at which the whole suite runs; none is the store's default only.
    fn levels(&self) -> Vec<Level> {
        Vec::new()
    }

    /// Begins a transaction at a level.
    async fn begin_at(&self, _store: &S, _level: &Level) -> Result<S::Tx, BoxError> {
        Err("begin_at is not offered".into())
    }

    /// Runs one statement through the transaction.
    async fn execute(&self, _tx: &mut S::Tx, _sql: &str) -> Result<(), BoxError> {
        Err("execute is not offered".into())
    }

    /// Runs one statement beside the store, as the owner of the tables.
    async fn execute_beside(&self, _store: &S, _sql: &str) -> Result<(), BoxError> {
        Err("execute_beside is not offered".into())
    }

    /// The transaction's session, as the wait view and the kill know it.
    async fn session(&self, _tx: &mut S::Tx) -> Result<String, BoxError> {
        Err("session is not offered".into())
    }

    /// Whether the session waits for another one, by the engine's own view.
    async fn is_waiting(&self, _store: &S, _session: &str) -> Result<bool, BoxError> {
        Err("is_waiting is not offered".into())
    }

    /// Ends a session as an administrator would; returns when it is gone.
    async fn kill(&self, _store: &S, _session: &str) -> Result<(), BoxError> {
        Err("kill is not offered".into())
    }

    /// The settings of the transaction's session that the store might touch, as comparable text.
    async fn settings(&self, _tx: &mut S::Tx) -> Result<String, BoxError> {
        Err("settings is not offered".into())
    }

    /// How many transactions are open in the store's database, the asking one not counted. Ask on a
    /// connection that is not of the store's pool: a transaction that leaked into the pool would be
    /// the asking one.
    async fn open_transactions(&self, _store: &S) -> Result<u64, BoxError> {
        Err("open_transactions is not offered".into())
    }

    /// A statement that fails, so that swallowing its error leaves an aborted or ended transaction.
    fn aborting_sql(&self) -> &'static str {
        ""
    }

    /// Statements that make the inbox table swallow inserts.
    fn swallow_inserts(&self) -> Vec<String> {
        Vec::new()
    }

    /// A statement that creates a temporary table with the inbox's layout and name, for [`execute`](Self::execute).
    fn shadow_table(&self) -> &'static str {
        ""
    }

    /// The inbox's table as the probe's SQL names it.
    fn table(&self) -> &'static str {
        "inbox"
    }

    /// The kept messages' table as the probe's SQL names it.
    fn messages_table(&self) -> &'static str {
        "inbox_messages"
    }

    /// Moves the clock by which the store's statements tell the time forward. Only the clock injected for
    /// tests moves: neither the server's nor the process's does.
    async fn advance_clock(&self, _store: &S, _by: Duration) -> Result<(), BoxError> {
        Err("advance_clock is not offered".into())
    }

    /// Creates the store's schema; must be idempotent (R15).
    async fn create_schema(&self, _store: &S) -> Result<(), Error> {
        Ok(())
    }

    /// Verifies the store's schema (R16).
    async fn verify(&self, _store: &S) -> Result<(), Error> {
        Ok(())
    }

    /// The ways in which the table can be wrong; each becomes a case.
    fn damages(&self) -> Vec<Damage> {
        Vec::new()
    }
}
