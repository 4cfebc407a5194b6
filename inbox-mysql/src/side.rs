//! A side connection: bounds MySQL's waits to the millisecond, and those of a batch as a whole (R6).
//!
//! MySQL's own bound is one in whole seconds, for each row anew. A KILL QUERY from another connection
//! ends the statement at any time; like a lock wait timeout it undoes that statement alone.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, MySqlConnection, MySqlPool, Row};

use crate::script::{Answer, Failed, Script};

/// Names the connection; its answer comes before a later statement of the script waits.
pub(crate) const WHO: &str = "SELECT CONNECTION_ID()";

/// How long the side connection may take to get through. Past that the server's own bound holds.
const PATIENCE: Duration = Duration::from_secs(1);

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
    let killed = !in_time && kill(side, running.answers().get(who)).await;
    let finished = running.finish().await;
    if killed {
        // One that came too late for its statement would meet the next.
        let _ = Script::new().then("DO 0").run(conn).await;
    }
    (finished, killed)
}

/// Ends what the connection runs. Whether that was sent: where it cannot be, the server's own bound
/// ends the wait a little later.
async fn kill(side: &MySqlPool, who: Option<&Answer>) -> bool {
    let Some(id) = who.and_then(|answer| answer.rows.first()?.try_get::<u64, _>(0).ok()) else {
        return false;
    };
    // Safe to send: the text holds a number of the server's.
    let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL QUERY {id}"))).execute(side);
    matches!(tokio::time::timeout(PATIENCE, kill).await, Ok(Ok(_)))
}
