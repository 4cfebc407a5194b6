//! Claims messages that are due: look by the index, then take each by its sequence (D2, D7, D9).

use inbox_core::{AfterDead, Claim, Error, MessageRow, State, duration_micros};

use crate::driver::{Driver, Value};
use crate::errors::message_error;
use crate::statements::Statements;

/// Claims on a connection that is the writer.
pub(crate) async fn claim<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Claim<'_>,
) -> Result<Vec<MessageRow>, Error> {
    let claimed = match request.order {
        None => claim_any(conn, sql, request).await,
        Some(after_dead) => claim_in_order(conn, sql, request, after_dead).await,
    };
    match claimed {
        Ok(rows) => Ok(rows),
        Err(source) => Err(message_error(conn, sql, request.doing(), source).await),
    }
}

async fn claim_any<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Claim<'_>,
) -> Result<Vec<MessageRow>, D::Error> {
    let args = [Value::Text(request.consumer.as_str()), Value::Integer(request.limit.into())];
    let candidates = candidates(conn.numbers(&sql.messages.candidates, &args).await?);
    let mut rows = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        rows.extend(take(conn, sql, request, candidate.sequence).await?);
    }
    Ok(rows)
}

/// Takes what no earlier message of its key blocks, and postpones what one does, so that the next
/// claim does not read past it.
async fn claim_in_order<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Claim<'_>,
    after_dead: AfterDead,
) -> Result<Vec<MessageRow>, D::Error> {
    let window = i64::from(request.window());
    let blocks_too = match after_dead {
        AfterDead::Block => State::Dead,
        AfterDead::Pass => State::Pending,
    };
    let args =
        [Value::Text(request.consumer.as_str()), Value::Integer(window), Value::Text(blocks_too.as_str())];
    let limit = request.limit as usize;
    let mut rows = Vec::new();
    for _ in 0..Claim::WINDOWS {
        let candidates = candidates(conn.numbers(&sql.messages.candidates_in_order, &args).await?);
        let full = candidates.len() as i64 == window;
        for candidate in candidates {
            if candidate.blocked {
                postpone(conn, sql, request, candidate.sequence).await?;
            } else if rows.len() < limit {
                rows.extend(take(conn, sql, request, candidate.sequence).await?);
            }
        }
        if !full || !rows.is_empty() {
            break;
        }
    }
    Ok(rows)
}

struct Candidate {
    sequence: i64,
    blocked: bool,
}

fn candidates(numbers: Vec<Vec<Option<i64>>>) -> Vec<Candidate> {
    let candidate = |row: Vec<Option<i64>>| match row[..] {
        [Some(sequence), blocked] => Some(Candidate { sequence, blocked: blocked != Some(0) }),
        _ => None,
    };
    numbers.into_iter().filter_map(candidate).collect()
}

/// Leases a message, or lets it die that has spent its attempts; answers it as it is then.
async fn take<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Claim<'_>,
    sequence: i64,
) -> Result<Vec<MessageRow>, D::Error> {
    let args = [
        Value::Integer(sequence),
        Value::Blob(request.token.as_bytes()),
        Value::Integer(duration_micros(request.lease)),
        Value::Integer(request.max_attempts.into()),
    ];
    conn.messages(&sql.messages.claim, &args).await
}

async fn postpone<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Claim<'_>,
    sequence: i64,
) -> Result<(), D::Error> {
    let args = [Value::Integer(sequence), Value::Integer(duration_micros(request.lease))];
    conn.change(&sql.messages.postpone, &args).await.map(drop)
}
