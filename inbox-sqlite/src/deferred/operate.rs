//! What an operator does with kept messages: look, count, replay (D8).

use std::time::Duration;

use inbox_core::{
    Consumer, Count, Error, EventType, MessageId, MessageRow, Select, State, StateCount, duration_micros,
};

use crate::driver::{Driver, Value};
use crate::errors::message_error;
use crate::statements::Statements;

/// Which messages an operator means: a [`Select`] that can go to another thread.
pub(crate) enum Which {
    Ids(Vec<MessageId>),
    InState {
        state: State,
        event_type: Option<EventType>,
        older_than: Option<Duration>,
        after: Option<(i64, i64)>,
        limit: u32,
        payloads: bool,
    },
}

impl Which {
    /// # Errors
    ///
    /// `Backend` for a selection that is newer than this crate.
    pub(crate) fn of(select: &Select<'_>, doing: &str) -> Result<Self, Error> {
        match *select {
            Select::Ids(ids) => Ok(Self::Ids(ids.to_vec())),
            Select::InState { state, event_type, older_than, after, limit, payloads } => {
                let event_type = event_type.cloned();
                Ok(Self::InState { state, event_type, older_than, after, limit, payloads })
            }
            _ => Err(Select::unknown(doing)),
        }
    }
}

/// The messages that are meant, as this connection sees them.
pub(crate) async fn select<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    consumer: &Consumer,
    which: &Which,
) -> Result<Vec<MessageRow>, Error> {
    match read(conn, sql, consumer, which).await {
        Ok(rows) => Ok(rows),
        Err(source) => Err(message_error(conn, sql, Select::doing(consumer), source).await),
    }
}

async fn read<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    consumer: &Consumer,
    which: &Which,
) -> Result<Vec<MessageRow>, D::Error> {
    match which {
        Which::Ids(ids) => {
            let mut rows = Vec::with_capacity(ids.len());
            for id in ids {
                let args = [Value::Text(consumer.as_str()), Value::Text(id.as_str())];
                rows.extend(conn.messages(&sql.messages.select_id, &args).await?);
            }
            rows.sort_by_key(|row| row.sequence);
            rows.dedup_by_key(|row| row.sequence);
            Ok(rows)
        }
        Which::InState { state, event_type, older_than, after, limit, payloads } => {
            let (since, sequence) = after.unwrap_or((i64::MIN, i64::MIN));
            let mut args = in_state(consumer, *state, event_type.as_ref(), *older_than, *limit).to_vec();
            args.extend([
                Value::Integer(since),
                Value::Integer(sequence),
                Value::Integer((*payloads).into()),
            ]);
            conn.messages(&sql.messages.select_in_state, &args).await
        }
    }
}

fn in_state<'a>(
    consumer: &'a Consumer,
    state: State,
    event_type: Option<&'a EventType>,
    older_than: Option<Duration>,
    limit: u32,
) -> [Value<'a>; 5] {
    [
        Value::Text(consumer.as_str()),
        Value::Text(state.as_str()),
        Value::text(event_type.map(EventType::as_str)),
        Value::integer(older_than.map(duration_micros)),
        Value::Integer(limit.into()),
    ]
}

/// Gives messages another attempt, on a connection that is the writer; answers how many.
pub(crate) async fn replay<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    consumer: &Consumer,
    which: &Which,
    doing: &str,
) -> Result<u64, Error> {
    match replay_each(conn, sql, consumer, which).await {
        Ok(replayed) => Ok(replayed),
        Err(source) => Err(message_error(conn, sql, doing, source).await),
    }
}

async fn replay_each<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    consumer: &Consumer,
    which: &Which,
) -> Result<u64, D::Error> {
    match which {
        Which::Ids(ids) => {
            let mut replayed = 0;
            for id in ids {
                let args = [Value::Text(consumer.as_str()), Value::Text(id.as_str())];
                replayed += conn.change(&sql.messages.replay_id, &args).await?;
            }
            Ok(replayed)
        }
        Which::InState { state, event_type, older_than, limit, .. } => {
            let args = in_state(consumer, *state, event_type.as_ref(), *older_than, *limit);
            conn.change(&sql.messages.replay_in_state, &args).await
        }
    }
}

/// How many messages are in each state, as this connection sees them.
pub(crate) async fn count<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Count<'_>,
) -> Result<Vec<StateCount>, Error> {
    let args = [Value::Text(request.consumer.as_str()), Value::Integer(request.at_most.into())];
    let counts = match conn.numbers(&sql.messages.count, &args).await {
        Ok(counts) => counts,
        Err(source) => return Err(message_error(conn, sql, request.doing(), source).await),
    };
    let counted = State::ALL.into_iter().zip(counts).map(|(state, numbers)| {
        let [count, oldest] = [0, 1].map(|column| numbers.get(column).copied().flatten());
        StateCount::new(state, count.unwrap_or(0), oldest)
    });
    Ok(counted.collect())
}
