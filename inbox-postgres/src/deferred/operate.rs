//! What an operator does with kept messages: look, count, replay (D8).

use inbox_core::{
    Consumer, Count, Deadline, Error, EventType, MessageId, MessageRow, Replay, Select, State, StateCount,
    duration_micros,
};

use super::lane::Lane;
use super::row::{self, Row};
use crate::wait::lock_timeout;
use crate::{PostgresStore, errors};

pub(crate) async fn select(
    store: &PostgresStore,
    consumer: &Consumer,
    which: &Select<'_>,
) -> Result<Vec<MessageRow>, Error> {
    let doing = Select::doing(consumer);
    let mut lane = Lane::of(store, &doing).await?;
    let statements = &store.statements().messages;
    let rows: Result<Vec<Row>, sqlx::Error> = match *which {
        Select::Ids(ids) => {
            sqlx::query_as(statements.select_ids.sql())
                .persistent(store.prepared())
                .bind(consumer.as_str())
                .bind(ids.iter().map(MessageId::as_str).collect::<Vec<_>>())
                .fetch_all(lane.conn())
                .await
        }
        Select::InState { state, event_type, older_than, after, limit, payloads } => {
            sqlx::query_as(statements.select_in_state.sql())
                .persistent(store.prepared())
                .bind(consumer.as_str())
                .bind(state.as_str())
                .bind(event_type.map(EventType::as_str))
                .bind(older_than.map(duration_micros))
                .bind(after.map(|(since, _)| since))
                .bind(after.map(|(_, sequence)| sequence))
                .bind(i64::from(limit))
                .bind(payloads)
                .fetch_all(lane.conn())
                .await
        }
        _ => return Err(Select::unknown(doing)),
    };
    let rows = rows.map_err(|source| errors::message_error(&*doing, source))?;
    lane.end(&doing).await?;
    Ok(rows.into_iter().map(row::message).collect())
}

pub(crate) async fn replay(store: &PostgresStore, request: &Replay<'_>) -> Result<u64, Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let statements = &store.statements().messages;
    let wait = Deadline::after(store.wait());
    let replayed: Result<(i64,), sqlx::Error> = match request.which {
        Select::Ids(ids) => {
            sqlx::query_as(statements.replay_ids.sql())
                .persistent(store.prepared())
                .bind(request.consumer.as_str())
                .bind(lock_timeout(&wait))
                .bind(store.channel())
                .bind(ids.iter().map(MessageId::as_str).collect::<Vec<_>>())
                .fetch_one(lane.conn())
                .await
        }
        Select::InState { state, event_type, older_than, limit, .. } => {
            sqlx::query_as(statements.replay_in_state.sql())
                .persistent(store.prepared())
                .bind(request.consumer.as_str())
                .bind(lock_timeout(&wait))
                .bind(store.channel())
                .bind(state.as_str())
                .bind(event_type.map(EventType::as_str))
                .bind(older_than.map(duration_micros))
                .bind(i64::from(limit))
                .fetch_one(lane.conn())
                .await
        }
        _ => return Err(Select::unknown(doing)),
    };
    let (replayed,) = replayed.map_err(|source| errors::message_error_within(&wait, &*doing, source))?;
    lane.end(&doing).await?;
    Ok(u64::try_from(replayed).unwrap_or(0))
}

pub(crate) async fn count(store: &PostgresStore, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let counts: Vec<(i64, Option<i64>)> = sqlx::query_as(store.statements().messages.count.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(i64::from(request.at_most))
        .fetch_all(lane.conn())
        .await
        .map_err(|source| errors::message_error(&*doing, source))?;
    lane.end(&doing).await?;
    let counted = State::ALL
        .into_iter()
        .zip(counts)
        .map(|(state, (count, oldest))| StateCount::new(state, count, oldest));
    Ok(counted.collect())
}
