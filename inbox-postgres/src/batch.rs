//! Registering a batch: one statement for the inserts, and one for the originals if any are needed.

use std::collections::{HashMap, HashSet};

use inbox_core::{BatchPlan, Error, Message, Original, RegisterBatch, Registration};
use sqlx::PgConnection;

use crate::wait::Wait;
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
    let wait = Wait::start(request.wait.unwrap_or(store.wait()));
    let plan = BatchPlan::new(request.messages);
    let mut known = Known::default();
    let mut open = plan.distinct().to_vec();
    for _ in 0..PAIRS {
        if open.is_empty() {
            break;
        }
        known.new.extend(insert(store, conn, request, &open, &wait).await?);
        let ids = known.ids_to_read(&plan);
        if !ids.is_empty() {
            let read = original::read(store, conn, request.consumer, &ids, || request.doing()).await?;
            known.originals.extend(read);
        }
        open.retain(|message| known.is_open(message));
    }
    let new = known.new.iter().map(String::as_str).collect();
    plan.answer(&request.doing(), &new, &known.originals)
}

/// What is known of a batch's ids so far.
#[derive(Default)]
struct Known {
    new: HashSet<String>,
    originals: HashMap<String, Original>,
}

impl Known {
    /// Neither inserted nor found.
    fn is_open(&self, message: &Message) -> bool {
        let id = message.id().as_str();
        !self.new.contains(id) && !self.originals.contains_key(id)
    }

    /// The ids whose originals are needed: of all that were not inserted, and with repeats in the
    /// batch of the new ones too, since a repeat is a duplicate of the row just inserted (R3).
    fn ids_to_read<'p>(&self, plan: &BatchPlan<'p>) -> Vec<&'p str> {
        plan.distinct()
            .iter()
            .filter(|message| plan.has_repeats() || self.is_open(message))
            .map(|message| message.id().as_str())
            .collect()
    }
}

/// Inserts what is not there; answers the ids that are new.
async fn insert(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &RegisterBatch<'_>,
    messages: &[&Message],
    wait: &Wait,
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
        .bind(i64::from(wait.left_ms()))
        .bind(request.guard.is_guarded().then(|| guard::setting(transaction::depth(conn))))
        .fetch_one(conn)
        .await
        .map_err(|source| errors::register_error(wait, request.doing(), source))?;
    Ok(new)
}
