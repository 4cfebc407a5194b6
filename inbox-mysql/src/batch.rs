//! Registering a batch: multi-row inserts, and a read of the originals if any are needed.

use inbox_core::{BatchPlan, Deadline, Error, Guard, Message, RegisterBatch, Registration};
use sqlx::MySqlConnection;

use crate::mark::Mark;
use crate::register::{PAIRS, row, run_bounded};
use crate::statements::IDS;
use crate::{MySqlStore, original, transaction};

/// How many rows one statement inserts: at the longest, 1.4 MB of text, under a third of the lowest
/// default of `max_allowed_packet` (MySQL 5.7: 4 MB).
const ROWS: usize = IDS;

/// Registers many messages in the transaction that is open on `conn`.
pub(crate) async fn register_batch(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &RegisterBatch<'_>,
) -> Result<Vec<Registration>, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Deadline::after(request.wait.unwrap_or(store.wait()));
    let mut plan = BatchPlan::new(request.messages);
    let mut guard = request.guard;
    for chunk in plan.distinct().to_vec().chunks(ROWS) {
        let mut open = chunk.to_vec();
        for _ in 0..PAIRS {
            if open.is_empty() {
                break;
            }
            let inserted = insert(store, conn, request, &wait, guard, &open).await?;
            guard = Guard::Fresh;
            if inserted.are_all_new(&open) {
                open.iter().for_each(|message| plan.found_new(message.id().as_str()));
            }
            look(store, conn, request, &wait, &inserted, &open, &mut plan).await?;
            open.retain(|message| plan.is_open(message));
        }
    }
    plan.answer(&request.doing())
}

/// What an insert of many rows says: how many are new, not which.
struct Inserted {
    mark: Mark,
    rows: u64,
}

impl Inserted {
    fn are_all_new(&self, messages: &[&Message]) -> bool {
        self.rows == messages.len() as u64
    }
}

/// Inserts the rows of some messages, each with the mark of this statement.
async fn insert(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &RegisterBatch<'_>,
    wait: &Deadline,
    guard: Guard,
    messages: &[&Message],
) -> Result<Inserted, Error> {
    let mark = Mark::new();
    let literal = mark.literal();
    let rows: Vec<String> = messages.iter().map(|message| row(request.consumer, message, &literal)).collect();
    let insert = store.statements().register(&rows);
    let inserted = run_bounded(store, conn, wait, guard, insert, || request.doing()).await?;
    Ok(Inserted { mark, rows: inserted.affected })
}

/// Reads the originals that are needed, and tells by the mark which rows were new.
///
/// MySQL has no RETURNING, and on MariaDB it costs more than the column.
async fn look(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &RegisterBatch<'_>,
    wait: &Deadline,
    inserted: &Inserted,
    messages: &[&Message],
    plan: &mut BatchPlan<'_>,
) -> Result<(), Error> {
    let unread = messages.iter().filter(|message| plan.needs_original(message));
    let ids: Vec<&str> = unread.map(|message| message.id().as_str()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let look = store.statements().originals.of(request.consumer, &ids);
    let seen = run_bounded(store, conn, wait, Guard::Fresh, look, || request.doing()).await?;
    for (id, found) in original::by_id(&seen.rows, || request.doing())? {
        if inserted.mark.is_on(found.attempt.as_deref()) {
            plan.found_new(&*id);
        }
        plan.found_original(id, found.original);
    }
    Ok(())
}
