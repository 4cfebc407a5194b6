//! The SQL of a store, made once for its table: the texts are in `sql/`.

use std::sync::Arc;

use inbox_core::TableName;
use sqlx::AssertSqlSafe;

use crate::deferred::MessageStatements;

/// A statement that can be sent again and again without copying its text.
#[derive(Debug, Clone)]
pub(crate) struct Statement(Arc<str>);

impl From<String> for Statement {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Statement {
    /// The text for sqlx.
    ///
    /// Safe to send: the only thing put into a text is a [`TableName`], which needs no escaping.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }
}

/// Every statement on the inbox's table.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) register: Statement,
    pub(crate) register_batch: Statement,
    pub(crate) originals: Statement,
    pub(crate) forget: Statement,
    pub(crate) messages: MessageStatements,
}

impl Statements {
    /// The statements on an inbox's table, and beside it, with the expression that is the deferred
    /// inbox's clock.
    pub(crate) fn new(table: &TableName, now: &str) -> Self {
        let on_table = |text| Statement(without_comments(text).replace("{table}", &table.quoted()).into());
        Self {
            register: on_table(include_str!("sql/register.sql")),
            register_batch: on_table(include_str!("sql/register_batch.sql")),
            originals: on_table(include_str!("sql/originals.sql")),
            forget: on_table(include_str!("sql/forget.sql")),
            messages: MessageStatements::new(table, now),
        }
    }
}

/// A text as it is sent: its comments are for readers, not for each prepare and each server log.
pub(crate) fn without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    lines.join("\n")
}
