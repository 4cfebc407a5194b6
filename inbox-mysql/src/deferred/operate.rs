//! What an operator does with kept messages: look, count, replay.

use inbox_core::{
    Consumer, Count, Error, MessageId, MessageRow, Replay, Select, State, StateCount, duration_micros,
};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::row;
use super::short;
use super::statements::time;
use crate::script::Answer;
use crate::statements::IDS;
use crate::{MySqlStore, errors, literal};

pub(crate) async fn select(
    store: &MySqlStore,
    consumer: &Consumer,
    which: &Select<'_>,
) -> Result<Vec<MessageRow>, Error> {
    let doing = Select::doing(consumer);
    let texts = store.messages();
    let statements = match *which {
        Select::Ids(ids) => of_ids(ids).map(|ids| texts.select_ids.with(&[("{ids}", &ids)])).collect(),
        Select::InState { payloads, .. } => {
            let payload = if payloads { "payload" } else { "x''" };
            vec![in_state(store, which, texts.select_state.with(&[("{payload}", payload)]))]
        }
        _ => return Err(Select::unknown(doing)),
    };
    let answers = run(store, &doing, consumer, statements).await?;
    let rows = answers.iter().map(row::read_all).collect::<Result<Vec<_>, _>>();
    Ok(rows.map_err(|source| errors::error(doing, source))?.into_iter().flatten().collect())
}

pub(crate) async fn replay(store: &MySqlStore, request: &Replay<'_>) -> Result<u64, Error> {
    let texts = store.messages();
    let line = texts.line("\"kind\":\"replayed\"");
    let statements = match request.which {
        Select::Ids(ids) => {
            of_ids(ids).map(|ids| texts.replay_ids.with(&[("{line}", &line), ("{ids}", &ids)])).collect()
        }
        // What is pending has its attempt still before it.
        Select::InState { state: State::Pending, .. } => Vec::new(),
        Select::InState { .. } => {
            let replay = texts.replay_state.with(&[("{line}", &line)]);
            vec![in_state(store, &request.which, replay)]
        }
        _ => return Err(Select::unknown(request.doing())),
    };
    let answers = run(store, &request.doing(), request.consumer, statements).await?;
    Ok(answers.iter().map(|answer| answer.affected).sum())
}

pub(crate) async fn count(store: &MySqlStore, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
    let at_most = request.at_most.to_string();
    let of = |state: State| {
        let state = literal::bytes(state.as_str());
        store.messages().count.with(&[("{state}", &state), ("{at_most}", &at_most)])
    };
    // One statement, so that a message is seen in one state only.
    let all = State::ALL.map(|state| format!("({})", of(state))).join("\nUNION ALL\n");
    let answers = run(store, &request.doing(), request.consumer, vec![all]).await?;
    let counts = State::ALL.into_iter().map(|state| read_count(state, &answers[0]));
    counts.collect::<Result<_, _>>().map_err(|source| errors::error(request.doing(), source))
}

async fn run(
    store: &MySqlStore,
    doing: &str,
    consumer: &Consumer,
    mut statements: Vec<String>,
) -> Result<Vec<Answer>, Error> {
    if statements.is_empty() {
        return Ok(Vec::new());
    }
    let consumer = literal::bytes(consumer.as_str());
    for statement in &mut statements {
        *statement = statement.replace("{consumer}", &consumer);
    }
    short::run(store, doing, statements).await
}

fn read_count(state: State, answer: &Answer) -> Result<StateCount, sqlx::Error> {
    let is_of_state =
        |row: &&MySqlRow| row.try_get::<&[u8], _>(0).is_ok_and(|found| found == state.as_str().as_bytes());
    let row = answer.rows.iter().find(is_of_state).ok_or(sqlx::Error::RowNotFound)?;
    let count: i64 = row.try_get(1)?;
    let oldest: Option<i64> = row.try_get(2)?;
    Ok(StateCount::new(state, count, oldest))
}

fn of_ids(ids: &[MessageId]) -> impl Iterator<Item = String> {
    ids.chunks(IDS).map(|chunk| literal::list(chunk.iter().map(MessageId::as_str)))
}

/// A statement on messages in a state, with what else is asked of them.
fn in_state(store: &MySqlStore, which: &Select<'_>, statement: String) -> String {
    let Select::InState { state, event_type, older_than, after, limit, .. } = *which else {
        return statement;
    };
    let mut further = String::new();
    if let Some(event_type) = event_type {
        further += &format!("\n  AND event_type = {}", literal::bytes(event_type.as_str()));
    }
    if let Some(age) = older_than {
        let age = duration_micros(age);
        further += &format!("\n  AND state_since <= {} - INTERVAL {age} MICROSECOND", store.messages().now());
    }
    if let Some((since, sequence)) = after {
        let since = time(since);
        further +=
            &format!("\n  AND state_since >= {since} AND (state_since > {since} OR sequence > {sequence})");
    }
    statement
        .replace("{state}", &literal::bytes(state.as_str()))
        .replace("{further}", &further)
        .replace("{limit}", &limit.to_string())
}
