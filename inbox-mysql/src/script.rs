//! Several statements as one query: one round trip, and after an error the server skips the rest.

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Either, MySqlConnection};

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
        // Safe to send: what is put into our texts is names that need no escaping, numbers, and
        // hexadecimal literals.
        let mut results = sqlx::raw_sql(AssertSqlSafe(self.0.join(";\n"))).fetch_many(conn);
        let mut answers = Vec::with_capacity(self.0.len());
        let mut rows = Vec::new();
        while let Some(result) = poll_fn(|cx| Pin::new(&mut results).poll_next(cx)).await {
            match result {
                Ok(Either::Left(done)) => {
                    answers.push(Answer { affected: done.rows_affected(), rows: std::mem::take(&mut rows) });
                }
                Ok(Either::Right(row)) => rows.push(row),
                Err(source) => return Err(Failed { at: answers.len(), source }),
            }
        }
        Ok(answers)
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
    /// The driver's error, where it does not matter which statement failed.
    pub(crate) fn into_source(self) -> sqlx::Error {
        self.source
    }
}
