//! Completing messages in the transaction of their effect: the lease is the fence (D3).

use inbox_core::{Complete, Consumer, Deadline, Error, Guard, Lease};
use sqlx::{MySqlConnection, Row};

use super::statements::LEASES;
use crate::register::run_bounded;
use crate::script::{Failed, Script};
use crate::{MySqlStore, errors, transaction};

/// Completes messages in the transaction that is open on `conn`: one round trip, two where there are many.
pub(crate) async fn complete(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &Complete<'_>,
) -> Result<Vec<bool>, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Deadline::after(store.wait());
    let texts = store.messages();
    let mut held = Vec::with_capacity(request.leases.len());
    let mut guard = Guard::Outside;
    for chunk in request.leases.chunks(LEASES) {
        if let [_] = chunk {
            // By rows that matched, as sqlx counts them.
            let complete = texts.complete.of(request.consumer, chunk);
            let done = run_bounded(store, conn, &wait, guard, complete, || request.doing()).await?;
            held.push(done.affected > 0);
            continue;
        }
        let hold = texts.hold_leases.of(request.consumer, chunk);
        let seen = run_bounded(store, conn, &wait, guard, hold, || request.doing()).await?;
        guard = Guard::Fresh;
        let seen = seen.rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>();
        let seen = seen.map_err(|source| errors::error(request.doing(), source))?;
        let holding: Vec<Lease> = chunk.iter().copied().filter(|one| seen.contains(&one.sequence)).collect();
        if !holding.is_empty() {
            let complete = texts.complete.of(request.consumer, &holding);
            run_bounded(store, conn, &wait, guard, complete, || request.doing()).await?;
        }
        held.extend(chunk.iter().map(|one| seen.contains(&one.sequence)));
    }
    Ok(held)
}

/// The statements that fail unless all of these are done in the transaction, for the commit's own packet.
pub(crate) fn prove(store: &MySqlStore, consumer: &Consumer, completed: &[Lease]) -> Vec<String> {
    let prove = |chunk: &[Lease]| {
        store.messages().prove.of(consumer, chunk).replace("{expected}", &chunk.len().to_string())
    };
    completed.chunks(LEASES).map(prove).collect()
}

/// Whether any of these messages is done, by the eyes of a transaction that sees only what is committed.
///
/// A row that somebody has claimed meanwhile, its lease having run out, is not.
pub(crate) async fn any_done(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    consumer: &Consumer,
    completed: &[Lease],
) -> Result<bool, sqlx::Error> {
    for chunk in completed.chunks(LEASES) {
        let look = Script::new().then(store.messages().done.of(consumer, chunk));
        let answers = look.run(conn).await.map_err(Failed::into_source)?;
        let done: i64 = answers[0].rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        if done > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
