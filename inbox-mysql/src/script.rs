//! Several statements as one query: one round trip, and after an error the server skips the rest.

use std::future::poll_fn;

use futures_core::stream::BoxStream;
use sqlx::mysql::{MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, Either, MySqlConnection};

use crate::errors;

/// Statements in the order in which they run.
#[derive(Debug, Default)]
pub(crate) struct Script(Vec<String>);

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a statement, without its semicolon.
    pub(crate) fn then(mut self, statement: impl Into<String>) -> Self {
        self.0.push(statement.into());
        self
    }

    /// Adds a statement if there is one.
    pub(crate) fn then_some(self, statement: Option<impl Into<String>>) -> Self {
        match statement {
            Some(statement) => self.then(statement),
            None => self,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Runs all of it.
    pub(crate) async fn run(&self, conn: &mut MySqlConnection) -> Result<Vec<Answer>, Failed> {
        self.start(conn).finish().await
    }

    /// Runs all of it, up to so many times, while the error may be late: sqlx reports the error of a
    /// statement that was given up (a timeout around it) as the next one's, and does not send that.
    pub(crate) async fn run_past_late_errors(
        &self,
        conn: &mut MySqlConnection,
        runs: usize,
    ) -> Result<(), Failed> {
        self.answers_past_late_errors(conn, runs).await.map(drop)
    }

    /// The same, with the answers.
    pub(crate) async fn answers_past_late_errors(
        &self,
        conn: &mut MySqlConnection,
        runs: usize,
    ) -> Result<Vec<Answer>, Failed> {
        for _ in 1..runs {
            match self.run(conn).await {
                Err(failed) if failed.may_be_late() => {}
                answer => return answer,
            }
        }
        self.run(conn).await
    }

    /// Prepares a run; it is sent once the run is polled.
    pub(crate) fn start<'c>(&self, conn: &'c mut MySqlConnection) -> Running<'c> {
        // Safe to send: what is put into our texts is names that need no escaping, numbers, and
        // hexadecimal literals.
        let results = sqlx::raw_sql(AssertSqlSafe(self.0.join(";\n"))).fetch_many(conn);
        let statements = self.0.len();
        Running {
            results,
            answers: Vec::with_capacity(statements),
            rows: Vec::new(),
            failed: None,
            statements,
        }
    }
}

/// A script that is being run.
pub(crate) struct Running<'c> {
    results: BoxStream<'c, Result<Either<MySqlQueryResult, MySqlRow>, sqlx::Error>>,
    answers: Vec<Answer>,
    rows: Vec<MySqlRow>,
    failed: Option<Failed>,
    statements: usize,
}

impl Running<'_> {
    /// The answers so far.
    pub(crate) fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Runs until the statement at this place has answered, or the script has ended before.
    pub(crate) async fn run_past(&mut self, at: usize) {
        while self.answers.len() <= at && self.step().await {}
    }

    /// Runs the rest.
    pub(crate) async fn finish(mut self) -> Result<Vec<Answer>, Failed> {
        while self.failed.is_none() && self.step().await {}
        match self.failed {
            Some(failed) => Err(failed),
            None if self.answers.len() == self.statements => Ok(self.answers),
            // The driver is out of step with the server, and nothing that it answers counts.
            None => {
                let text = format!("{} of {} statements were answered", self.answers.len(), self.statements);
                Err(Failed { at: self.answers.len(), source: sqlx::Error::Protocol(text) })
            }
        }
    }

    /// Takes what comes next; false at the end. Nothing is lost where it is dropped while it waits.
    async fn step(&mut self) -> bool {
        match poll_fn(|cx| self.results.as_mut().poll_next(cx)).await {
            Some(Ok(Either::Left(done))) => {
                let rows = std::mem::take(&mut self.rows);
                self.answers.push(Answer { affected: done.rows_affected(), rows });
            }
            Some(Ok(Either::Right(row))) => self.rows.push(row),
            Some(Err(source)) => {
                self.failed = Some(Failed { at: self.answers.len(), source });
                return false;
            }
            None => return false,
        }
        true
    }
}

/// What one statement answered.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) affected: u64,
    pub(crate) rows: Vec<MySqlRow>,
}

/// How a script failed: those before `at` were done, those after it were not begun.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) at: usize,
    pub(crate) source: sqlx::Error,
}

impl Failed {
    /// Whether the statement at this place failed with this number.
    pub(crate) fn is(&self, at: usize, number: u16) -> bool {
        self.at == at && errors::number(&self.source) == Some(number)
    }

    /// Whether the error may be an earlier statement's.
    ///
    /// Any error of the first statement may. If it was its own, nothing after it was begun, so that
    /// running the script again is safe, and gives the same.
    fn may_be_late(&self) -> bool {
        self.at == 0 && errors::number(&self.source).is_some() && !errors::is_end_of_session(&self.source)
    }

    /// The driver's error, where it does not matter which statement failed.
    pub(crate) fn into_source(self) -> sqlx::Error {
        self.source
    }
}
