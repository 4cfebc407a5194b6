//! Registering a batch: one statement for the inserts, and one for the originals if any are needed.

use inbox_core::{BatchPlan, Deadline, Error, Message, RegisterBatch, Registration};
use sqlx::PgConnection;

use crate::wait::left_ms;
use crate::{PostgresStore, errors, guard, original, transaction};

/// How often the pair of insert and look is made: once more, since a purge may lie between the two (R8).
const PAIRS: usize = 2;

/// Registers many messages in the transaction that is open on `conn`.
pub(crate) async fn register_batch(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &RegisterBatch<'_>,
) -> Result<Vec<Registration>, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Deadline::after(request.wait.unwrap_or(store.wait()));
    let mut plan = BatchPlan::new(request.messages);
    let mut open = plan.distinct().to_vec();
    for _ in 0..PAIRS {
        if open.is_empty() {
            break;
        }
        for id in insert(store, conn, request, &open, &wait).await? {
            plan.found_new(id);
        }
        let unread = open.iter().filter(|message| plan.needs_original(message));
        let ids: Vec<&str> = unread.map(|message| message.id().as_str()).collect();
        if !ids.is_empty() {
            let read = original::read(store, conn, request.consumer, &ids, || request.doing()).await?;
            for (id, original) in read {
                plan.found_original(id, original);
            }
        }
        open.retain(|message| plan.is_open(message));
    }
    plan.answer(&request.doing())
}

/// Inserts what is not there; answers the ids that are new.
async fn insert(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &RegisterBatch<'_>,
    messages: &[&Message],
    wait: &Deadline,
) -> Result<Vec<String>, Error> {
    let ids: Vec<&str> = messages.iter().map(|message| message.id().as_str()).collect();
    let event_types: Vec<&str> = messages.iter().map(|message| message.event_type().as_str()).collect();
    let fingerprints: Vec<Option<Vec<u8>>> = messages
        .iter()
        .map(|message| message.fingerprint().map(|fingerprint| fingerprint.as_bytes().to_vec()))
        .collect();
    let (new,): (Vec<String>,) = sqlx::query_as(store.statements().register_batch.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(ids)
        .bind(event_types)
        .bind(fingerprints)
        .bind(i64::from(left_ms(wait)))
        .bind(request.guard.is_guarded().then(|| guard::setting(transaction::depth(conn))))
        .fetch_one(conn)
        .await
        .map_err(|source| errors::register_error(wait, request.doing(), source))?;
    Ok(new)
}
