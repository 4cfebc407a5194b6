//! What becomes of a lease: renewed, failed, released; and a key's next message unblocked (D3 to D5, D7).

use std::sync::Arc;
use std::time::Duration;

use inbox_core::{Consumer, Error, Fail, Lease, Release, Renew, Renewal, Unblock, duration_micros};

use super::complete::{args, still_leased};
use crate::driver::{Driver, Value};
use crate::errors::message_error;
use crate::statements::Statements;

/// How long a renewal waits to be the writer.
///
/// Not as long as others: while a handler is the writer nobody can take over, and an answer is due. Not
/// shorter, since among many short transactions it would never come to its turn.
pub(crate) fn patience_of_renewal(lease: Duration) -> Duration {
    (lease / 6).min(Duration::from_secs(1))
}

/// Renews leases on a connection that is the writer; answers by position.
pub(crate) async fn renew<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Renew<'_>,
) -> Result<Vec<Renewal>, Error> {
    let more = [Value::Integer(duration_micros(request.lease))];
    let mut renewals = Vec::with_capacity(request.leases.len());
    for lease in request.leases {
        match by_lease(conn, &sql.messages.renew, request.consumer, lease, &more).await {
            Ok(true) => renewals.push(Renewal::Renewed),
            Ok(false) => renewals.push(Renewal::Lost),
            Err(source) => return Err(message_error(conn, sql, request.doing(), source).await),
        }
    }
    Ok(renewals)
}

/// What the committed rows say of leases while somebody else is the writer: nobody can take over then.
pub(crate) async fn renewals_beside_a_writer<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Renew<'_>,
) -> Result<Vec<Renewal>, Error> {
    let mut renewals = Vec::with_capacity(request.leases.len());
    for lease in request.leases {
        match still_leased(conn, sql, request.consumer, lease).await {
            Ok(true) => renewals.push(Renewal::Locked),
            Ok(false) => renewals.push(Renewal::Lost),
            Err(source) => return Err(message_error(conn, sql, request.doing(), source).await),
        }
    }
    Ok(renewals)
}

/// Writes down a failed attempt on a connection that is the writer.
pub(crate) async fn fail<D: Driver>(conn: &mut D, sql: &Statements, request: &Fail<'_>) -> Result<(), Error> {
    let more = [Value::Text(request.error_json), Value::integer(request.retry_after.map(duration_micros))];
    match by_lease(conn, &sql.messages.fail, request.consumer, &request.lease, &more).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(request.lease_lost()),
        Err(source) => Err(message_error(conn, sql, request.doing(), source).await),
    }
}

/// Gives messages back on a connection that is the writer; answers how many leases still held.
pub(crate) async fn release<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Release<'_>,
) -> Result<u64, Error> {
    let mut held = 0;
    for lease in request.leases {
        match by_lease(conn, &sql.messages.release, request.consumer, lease, &[]).await {
            Ok(released) => held += u64::from(released),
            Err(source) => return Err(message_error(conn, sql, request.doing(), source).await),
        }
    }
    Ok(held)
}

/// Lets the first pending message of each key be looked at again, on a connection that is the writer.
pub(crate) async fn unblock<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Unblock<'_>,
) -> Result<(), Error> {
    for key in request.keys {
        let args = [Value::Text(request.consumer.as_str()), Value::Text(key.as_str())];
        if let Err(source) = conn.change(&sql.messages.unblock, &args).await {
            return Err(message_error(conn, sql, request.doing(), source).await);
        }
    }
    Ok(())
}

/// Changes the row that bears a lease; answers whether there is one.
async fn by_lease<D: Driver>(
    conn: &mut D,
    text: &Arc<str>,
    consumer: &Consumer,
    lease: &Lease,
    more: &[Value<'_>],
) -> Result<bool, D::Error> {
    let args: Vec<Value<'_>> = args(consumer, lease).into_iter().chain(more.iter().copied()).collect();
    Ok(conn.change(text, &args).await? > 0)
}
