//! A side connection: bounds MySQL's waits exactly, from 50 ms on, and those of a batch as a whole (R6).
//!
//! MySQL's own bound is one in whole seconds, for each row anew. A KILL QUERY from another connection
//! ends the statement at any time; like a lock wait timeout it undoes that statement alone.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, MySqlConnection, MySqlPool, Row};

use crate::condemn;
use crate::script::{Answer, Failed, Script};

/// Names the connection; its answer comes before a later statement of the script waits.
pub(crate) const WHO: &str = "SELECT CONNECTION_ID()";

/// How long a side connection may take to be had. Past that the server's own bound holds.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much later the server's own bound comes than ours, so that it does not overtake a side connection
/// that is on its way.
pub(crate) const SPARE: Duration = Duration::from_secs(2);

/// How long its KILL QUERY may then take to be answered.
const ANSWER: Duration = Duration::from_secs(10);

/// What became of a KILL QUERY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kill {
    NotSent,
    Sent,
    /// It may reach the server at any time, and then ends whatever the connection runs.
    Unknown,
}

/// Runs a script, one of whose statements is [`WHO`], at `who`, and another the one that may wait, at
/// `bounded`. Past the deadline ends the latter.
///
/// The second value is whether a KILL QUERY was sent: then an interrupted statement was our doing.
pub(crate) async fn run(
    side: &MySqlPool,
    conn: &mut MySqlConnection,
    script: &Script,
    (who, bounded): (usize, usize),
    deadline: Option<Instant>,
) -> (Result<Vec<Answer>, Failed>, bool) {
    let mut running = script.start(conn);
    let in_time = match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), running.run_past(bounded)).await.is_ok(),
        None => true,
    };
    let kill = match in_time {
        true => Kill::NotSent,
        false => {
            // Its answer is on its way, however short the wait: nothing before it waits.
            running.run_past(who).await;
            kill(side, running.answers().get(who)).await
        }
    };
    let mut finished = running.finish().await;
    match kill {
        Kill::NotSent => {}
        Kill::Sent => {
            // One that came too late for its statement would meet the next.
            let _ = Script::new().then("DO 0").run(conn).await;
        }
        // No answer on this connection counts: the session ends, and with it what the KILL could meet.
        Kill::Unknown => {
            condemn::condemn(conn).await;
            let source = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
            finished = Err(Failed { at: bounded, source });
        }
    }
    (finished, kill == Kill::Sent)
}

/// Ends what the connection runs.
async fn kill(side: &MySqlPool, who: Option<&Answer>) -> Kill {
    let Some(id) = who.and_then(|answer| answer.rows.first()?.try_get::<u64, _>(0).ok()) else {
        return Kill::NotSent;
    };
    let Ok(Ok(mut side)) = tokio::time::timeout(PATIENCE, side.acquire()).await else {
        return Kill::NotSent;
    };
    // Safe to send: the text holds a number of the server's.
    let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL QUERY {id}"))).execute(&mut *side);
    match tokio::time::timeout(ANSWER, kill).await {
        Ok(Ok(_)) => Kill::Sent,
        // The server refused, so nothing was ended.
        Ok(Err(sqlx::Error::Database(_))) => Kill::NotSent,
        _ => {
            side.close_on_drop();
            Kill::Unknown
        }
    }
}
