//! Registers many messages in one go: prepared single inserts, in byte order (R10).
//!
//! Not one statement of many rows: in SQLite a call is a function call, and a prepared insert run
//! n times was 1.6 times as fast as VALUES lists and `json_each`, without a bind limit.

use std::collections::{HashMap, HashSet};

use inbox_core::{BatchPlan, Error, ErrorKind, Message, MessageId, Original, RegisterBatch, Registration};

use crate::driver::Driver;
use crate::errors::statement_error;
use crate::register::{Found, insert_or_read};
use crate::statements::Statements;

/// Registers a batch on a connection that is in a transaction; answers by position.
pub(crate) async fn register_batch<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &RegisterBatch<'_>,
) -> Result<Vec<Registration>, Error> {
    let plan = BatchPlan::new(request.messages);
    let mut new: HashSet<&str> = HashSet::new();
    let mut originals: HashMap<String, Original> = HashMap::new();

    for &message in plan.distinct() {
        let id = message.id().as_str();
        match insert_or_read(conn, sql, request.consumer, message).await {
            Ok(Found::Inserted) => drop(new.insert(id)),
            Ok(Found::Original(original)) => drop(originals.insert(id.to_owned(), original)),
            Ok(Found::Nothing) => {
                return Err(Error::new(ErrorKind::Unconfirmed, request.doing())
                    .with_detail(format!("message {id:?}")));
            }
            Err(source) => return Err(statement_error(conn, sql, request.doing(), source).await),
        }
    }
    if plan.has_repeats() {
        for id in repeated(request.messages).filter(|id| new.contains(id.as_str())) {
            match conn.original(sql, request.consumer, id).await {
                Ok(original) => originals.extend(original.map(|original| (id.as_str().to_owned(), original))),
                Err(source) => return Err(statement_error(conn, sql, request.doing(), source).await),
            }
        }
    }
    plan.answer(&request.doing(), &new, &originals)
}

/// The ids of a batch that stand in it again, once per repetition.
fn repeated(messages: &[Message]) -> impl Iterator<Item = &MessageId> {
    let mut seen = HashSet::new();
    messages.iter().map(Message::id).filter(move |id| !seen.insert(id.as_str()))
}
