//! A short transaction of the store's own, at READ COMMITTED, in a task of its own (R17).

use std::time::Duration;

use inbox_core::{Deadline, Error, in_own_task};
use sqlx::pool::PoolConnection;
use sqlx::{MySql, MySqlPool};

use crate::script::{Answer, Failed, Script};
use crate::transaction::{COMMIT, ROLLBACK};
use crate::{MySqlStore, errors, wait};

/// How often the first script on a connection is run: once more after a late error.
const RUNS: usize = 2;

/// Begins a transaction that sees, and locks, committed rows only, whatever the session's own level.
///
/// ROLLBACK first, since START TRANSACTION would *commit* what somebody left open on the connection.
pub(crate) fn begin() -> Script {
    Script::new()
        .then(ROLLBACK)
        .then("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .then("START TRANSACTION")
}

/// A connection on which such a transaction is run. Only for use within a task of its own, which goes on
/// where its caller has gone, and ends what it began.
pub(crate) struct Short {
    conn: PoolConnection<MySql>,
}

impl Short {
    pub(crate) async fn open(pool: &MySqlPool) -> Result<Self, sqlx::Error> {
        Ok(Self { conn: pool.acquire().await? })
    }

    /// Runs the first script, which begins with [`begin`]; run again it does the same.
    pub(crate) async fn start(&mut self, script: &Script) -> Result<Vec<Answer>, sqlx::Error> {
        script.answers_past_late_errors(&mut self.conn, RUNS).await.map_err(Failed::into_source)
    }

    /// Runs what follows.
    pub(crate) async fn go_on(&mut self, script: &Script) -> Result<Vec<Answer>, sqlx::Error> {
        script.run(&mut self.conn).await.map_err(Failed::into_source)
    }

    /// Ends what an error left open, and answers it. What was committed before is committed.
    pub(crate) async fn end<T>(mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        if outcome.is_err() {
            let rolled_back = Script::new().then(ROLLBACK).run_past_late_errors(&mut self.conn, RUNS).await;
            if rolled_back.is_err() {
                self.conn.close_on_drop();
            }
        }
        outcome
    }
}

/// Runs statements in one transaction and one round trip; answers theirs. Each waits for others as long
/// as the store says.
pub(crate) async fn run(
    store: &MySqlStore,
    doing: &str,
    statements: Vec<String>,
) -> Result<Vec<Answer>, Error> {
    let wait = Deadline::after(store.wait());
    let step = run_here(store.clone(), wait, statements);
    in_own_task(doing, step).await?.map_err(|source| errors::error_within(&wait, doing, source))
}

async fn run_here(
    store: MySqlStore,
    wait: Deadline,
    statements: Vec<String>,
) -> Result<Vec<Answer>, sqlx::Error> {
    let mut short = Short::open(store.pool()).await?;
    let dialect = store.dialect().ask(&mut short.conn).await?;
    let mut places = Vec::with_capacity(statements.len());
    let mut script = begin();
    for statement in statements {
        let (longer, at) = wait::bounded(&wait, dialect, Duration::ZERO, script, statement);
        script = longer;
        places.push(at);
    }
    let answers = short.start(&script.then(COMMIT)).await;
    let restore = wait::restore(dialect);
    if restore.len() > 0 && answers.as_ref().is_err_and(|source| source.as_database_error().is_some()) {
        // Where this fails as well, the connection is gone, or the next call restores it.
        let _ = restore.run(&mut short.conn).await;
    }
    let mut answers = short.end(answers).await?;
    Ok(places.into_iter().map(|at| std::mem::take(&mut answers[at])).collect())
}
