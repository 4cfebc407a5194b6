//! Keeping whole messages in the transaction of their registrations (D1): arrays, as for a batch of ids.

use inbox_core::{Envelope, Error, KeepRequest};
use sqlx::PgConnection;

use crate::{PostgresStore, errors, transaction};

/// How many bytes of payloads and headers go into one statement, unless one message alone has more: the server takes
/// less than 1 GiB in a message.
const STATEMENT_BYTES: usize = 16 << 20;

/// Keeps messages in the transaction that is open on `conn`.
pub(crate) async fn keep(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &KeepRequest<'_>,
) -> Result<(), Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let mut rest = request.envelopes;
    while !rest.is_empty() {
        let (part, later) = rest.split_at(fitting(rest));
        insert(store, conn, request, part)
            .await
            .map_err(|source| errors::message_error(request.doing(), source))?;
        rest = later;
    }
    Ok(())
}

/// How many of these fit into one statement; one at least.
fn fitting(envelopes: &[&Envelope]) -> usize {
    let mut bytes = 0;
    let fit = envelopes.iter().take_while(|envelope| {
        bytes += envelope.payload().len() + envelope.headers().bytes();
        bytes <= STATEMENT_BYTES
    });
    fit.count().max(1)
}

async fn insert(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &KeepRequest<'_>,
    envelopes: &[&Envelope],
) -> Result<(), sqlx::Error> {
    let messages = || envelopes.iter().map(|envelope| envelope.message());
    let fingerprints: Vec<Option<Vec<u8>>> = messages()
        .map(|message| message.fingerprint().map(|fingerprint| fingerprint.as_bytes().to_vec()))
        .collect();
    let (at, after): (Vec<Option<i64>>, Vec<Option<i64>>) =
        envelopes.iter().map(|envelope| envelope.when().at_or_after()).unzip();
    sqlx::query(store.statements().messages.keep.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(messages().map(|message| message.id().as_str()).collect::<Vec<_>>())
        .bind(messages().map(|message| message.event_type().as_str()).collect::<Vec<_>>())
        .bind(fingerprints)
        .bind(envelopes.iter().map(|envelope| envelope.payload()).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|envelope| envelope.headers().to_json()).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|one| one.content_type().map(|value| value.as_str())).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|one| one.ordering_key().map(|key| key.as_str())).collect::<Vec<_>>())
        .bind(at)
        .bind(after)
        .bind(store.channel())
        .execute(conn)
        .await
        .map(drop)
}
