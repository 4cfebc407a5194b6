//! Marks messages as done in the transaction of their effect, and proves it at the end (D3, R12).

use inbox_core::{Complete, Consumer, End, Error, Lease};

use crate::driver::{Driver, Value};
use crate::errors::{lost, message_error};
use crate::statements::Statements;

/// Completes messages on a connection that is in a transaction; answers by position whether the lease held.
pub(crate) async fn complete<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Complete<'_>,
) -> Result<Vec<bool>, Error> {
    let mut held = Vec::with_capacity(request.leases.len());
    for lease in request.leases {
        let args = args(request.consumer, lease);
        match conn.change(&sql.messages.complete, &args).await {
            Ok(rows) => held.push(rows > 0),
            Err(source) => return Err(message_error(conn, sql, request.doing(), source).await),
        }
    }
    Ok(held)
}

/// Whether a row bears the token of a lease, as this connection sees it.
pub(crate) async fn still_leased<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    consumer: &Consumer,
    lease: &Lease,
) -> Result<bool, D::Error> {
    let found = conn.numbers(&sql.messages.still_leased, &args(consumer, lease)).await?;
    Ok(!found.is_empty())
}

/// Refuses a commit of a transaction in which a message is not completed any more.
///
/// The guard tells of what undoes it as well; a savepoint that a caller set between the two does not.
pub(crate) async fn prove_completed<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &End<'_>,
) -> Result<(), Error> {
    for lease in request.completed {
        match still_leased(conn, sql, request.consumer, lease).await {
            Ok(false) => {}
            Ok(true) => {
                let sequence = lease.sequence;
                return Err(lost(
                    request.doing("commit"),
                    format!(
                        "the message of sequence {sequence} is not completed any more: a savepoint set before was rolled back to"
                    ),
                ));
            }
            Err(source) => return Err(message_error(conn, sql, request.doing("commit"), source).await),
        }
    }
    Ok(())
}

pub(super) fn args<'a>(consumer: &'a Consumer, lease: &'a Lease) -> [Value<'a>; 3] {
    [Value::Text(consumer.as_str()), Value::Integer(lease.sequence), Value::Blob(lease.token.as_bytes())]
}
