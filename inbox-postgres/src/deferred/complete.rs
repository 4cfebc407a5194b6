//! Marking messages as done in the transaction of their effect: the fence (D3).

use inbox_core::{Complete, Deadline, End, Error, ErrorKind, Lease};
use sqlx::PgConnection;

use crate::wait::lock_timeout;
use crate::{PostgresStore, errors, guard, transaction};

/// Completes in the transaction that is open on `conn`; answers by position whether the lease still held.
///
/// The guard's setting counts the completed rows with the registrations, so that the commit proves both.
pub(crate) async fn complete(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &Complete<'_>,
) -> Result<Vec<bool>, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Deadline::after(store.wait());
    let (sequences, tokens) = columns(request.leases);
    let (completed,): (Vec<i64>,) = sqlx::query_as(store.statements().messages.complete.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(sequences)
        .bind(tokens)
        .bind(lock_timeout(&wait))
        .bind(guard::setting(transaction::depth(conn)))
        .fetch_one(conn)
        .await
        .map_err(|source| errors::message_error_within(&wait, request.doing(), source))?;
    Ok(request.leases.iter().map(|lease| completed.contains(&lease.sequence)).collect())
}

/// The sequences and the tokens of leases, as two arrays.
pub(crate) fn columns(leases: &[Lease]) -> (Vec<i64>, Vec<&[u8]>) {
    leases.iter().map(|lease| (lease.sequence, lease.token.as_bytes().as_slice())).unzip()
}

/// Refuses a rollback after which a completed message is done, as committed (R12).
///
/// An aborted transaction answers no guard, so only the rows tell whether it was the one that completed
/// them: a handler may have committed that one by SQL, and begun another. A row that somebody has claimed
/// meanwhile, its lease having run out, is no alarm.
pub(crate) async fn refuse_completed(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &End<'_>,
) -> Result<(), Error> {
    let doing = || request.doing("roll back");
    let (sequences, _) = columns(request.completed);
    let (done,): (i64,) = sqlx::query_as(store.statements().messages.done.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(sequences)
        .fetch_one(conn)
        .await
        .map_err(|source| errors::message_error(doing(), source))?;
    if done == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TransactionLost, doing()).with_detail(
        "a message is done although its transaction was rolled back: the completion was committed by SQL, or somebody has taken the message over and handled it",
    ))
}
