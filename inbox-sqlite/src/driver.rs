//! [`Driver`]: what the shared code asks of a driver's connection.

use std::future::Future;
use std::sync::Arc;

use inbox_core::{Consumer, Message, MessageId, MessageRow, Original};

use crate::errors::DriverError;
use crate::statements::Statements;

/// A connection of one driver. The rules are kept in code that is written once, over this.
pub(crate) trait Driver {
    /// The driver's error.
    type Error: DriverError;

    /// Inserts unless the id is there; answers whether a row went in.
    ///
    /// Ids go in as TEXT and fingerprints as BLOB, always: values of two storage classes are never
    /// equal in SQLite (B53).
    fn insert(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        message: &Message,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The original as this connection sees it.
    fn original(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        id: &MessageId,
    ) -> impl Future<Output = Result<Option<Original>, Self::Error>> + Send;

    /// Whether the id is registered, as this connection sees it.
    fn is_registered(
        &mut self,
        sql: &Statements,
        consumer: &Consumer,
        id: &MessageId,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Runs a statement of ours that changes rows; answers how many.
    fn change(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// The whole numbers that a statement of ours returns.
    fn numbers(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<Vec<Option<i64>>>, Self::Error>> + Send;

    /// The kept messages that a statement of ours returns: the columns of `messages/columns.sql`, then the payload.
    fn messages(
        &mut self,
        text: &Arc<str>,
        args: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<MessageRow>, Self::Error>> + Send;

    /// The rows of a query that runs seldom.
    fn rows(
        &mut self,
        text: &str,
        args: &[&str],
    ) -> impl Future<Output = Result<Vec<Row>, Self::Error>> + Send;

    /// Runs statements that have no rows.
    fn run(&mut self, text: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Compiles a statement and does not run it.
    fn compile(&mut self, text: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A value for a statement, in the storage class that its column has (B53).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn integer(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Integer)
    }

    pub(crate) fn text(value: Option<&'a str>) -> Self {
        value.map_or(Self::Null, Self::Text)
    }
}

/// A row, each value as SQLite makes a text of it.
#[derive(Debug, Default)]
pub(crate) struct Row(pub(crate) Vec<Option<String>>);

impl Row {
    pub(crate) fn get(&self, column: usize) -> Option<&str> {
        self.0.get(column)?.as_deref()
    }

    /// The text; empty for NULL.
    pub(crate) fn text(&self, column: usize) -> String {
        self.get(column).unwrap_or_default().to_owned()
    }

    /// Whether a truth value is 1.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        self.get(column) == Some("1")
    }
}
