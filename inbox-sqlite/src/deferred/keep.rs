//! Keeps whole messages beside their registrations: prepared single inserts, as for a batch of ids.

use inbox_core::{Envelope, Error, KeepRequest};

use crate::driver::{Driver, Value};
use crate::errors::message_error;
use crate::statements::Statements;

/// Keeps messages on a connection that is in the transaction of their registrations.
pub(crate) async fn keep<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &KeepRequest<'_>,
) -> Result<(), Error> {
    for envelope in request.envelopes {
        if let Err(source) = insert(conn, sql, request, envelope).await {
            return Err(message_error(conn, sql, request.doing(), source).await);
        }
    }
    Ok(())
}

async fn insert<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &KeepRequest<'_>,
    envelope: &Envelope,
) -> Result<(), D::Error> {
    let message = envelope.message();
    let fingerprint = message.fingerprint();
    let headers = envelope.headers().to_json();
    let (at, after) = envelope.when().at_or_after();
    let args = [
        Value::Text(request.consumer.as_str()),
        Value::Text(message.id().as_str()),
        Value::Text(message.event_type().as_str()),
        fingerprint.as_ref().map_or(Value::Null, |fingerprint| Value::Blob(fingerprint.as_bytes())),
        Value::Blob(envelope.payload()),
        Value::Text(&headers),
        Value::text(envelope.content_type().map(|content_type| content_type.as_str())),
        Value::text(envelope.ordering_key().map(|key| key.as_str())),
        Value::integer(at),
        Value::integer(after),
    ];
    conn.change(&sql.messages.insert, &args).await.map(drop)
}
