//! Registering a batch: multi-row inserts, and a read of the originals if any are needed.

use std::collections::{HashMap, HashSet};

use inbox_core::{BatchPlan, Error, Guard, Message, Original, RegisterBatch, Registration};
use sqlx::MySqlConnection;
use uuid::Uuid;

use crate::register::{PAIRS, row, run_bounded};
use crate::wait::Wait;
use crate::{MySqlStore, original, transaction};

/// How many rows one statement inserts: at the longest, 1.3 MB of text, under a third of the lowest
/// default of `max_allowed_packet` (MySQL 5.7: 4 MB).
const ROWS: usize = 1_000;

/// Registers many messages in the transaction that is open on `conn`.
pub(crate) async fn register_batch(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &RegisterBatch<'_>,
) -> Result<Vec<Registration>, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Wait::start(request.wait.unwrap_or(store.wait()));
    let plan = BatchPlan::new(request.messages);
    let mut known = Known { guard: request.guard, ..Known::default() };
    for chunk in plan.distinct().chunks(ROWS) {
        let mut open = chunk.to_vec();
        for _ in 0..PAIRS {
            if !open.is_empty() {
                register_chunk(store, conn, request, &wait, &open, plan.has_repeats(), &mut known).await?;
                open.retain(|message| known.is_open(message));
            }
        }
    }
    let new = known.new.iter().map(String::as_str).collect();
    plan.answer(&request.doing(), &new, &known.originals)
}

/// What is known of a batch's ids so far.
struct Known {
    guard: Guard,
    new: HashSet<String>,
    originals: HashMap<String, Original>,
}

impl Default for Known {
    fn default() -> Self {
        Self { guard: Guard::Stands, new: HashSet::new(), originals: HashMap::new() }
    }
}

impl Known {
    /// Neither inserted nor found.
    fn is_open(&self, message: &Message) -> bool {
        let id = message.id().as_str();
        !self.new.contains(id) && !self.originals.contains_key(id)
    }
}

/// Inserts the rows of some messages, and if not all are new, or an original is needed of a new one,
/// reads them: those that carry this statement's attempt are the new ones.
///
/// The number of inserted rows says how many are new, not which; MySQL has no RETURNING, and on
/// MariaDB it costs more than the column.
async fn register_chunk(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &RegisterBatch<'_>,
    wait: &Wait,
    messages: &[&Message],
    originals_of_all: bool,
    known: &mut Known,
) -> Result<(), Error> {
    let doing = || request.doing();
    let attempt = Uuid::new_v4();
    let rows: Vec<String> =
        messages.iter().map(|message| row(request.consumer, message, Some(attempt.as_bytes()))).collect();
    let insert = store.statements().register(&rows);
    let inserted = run_bounded(store, conn, wait, known.guard, insert, doing).await?;
    if known.guard == Guard::Opens {
        known.guard = Guard::Stands;
    }
    let ids: Vec<&str> = messages.iter().map(|message| message.id().as_str()).collect();
    if inserted.affected == ids.len() as u64 {
        known.new.extend(ids.iter().map(|id| (*id).to_owned()));
        if !originals_of_all {
            return Ok(());
        }
    }
    let look = store.statements().originals.of(request.consumer, &ids);
    let seen = run_bounded(store, conn, wait, known.guard, look, doing).await?;
    for (id, found) in original::by_id(&seen.rows, doing)? {
        if found.attempt.as_deref() == Some(attempt.as_bytes()) {
            known.new.insert(id.clone());
        }
        known.originals.insert(id, found.original);
    }
    Ok(())
}
