//! Registering one message: `sql/register.sql`, run again where it proves nothing.

use inbox_core::{Deadline, Error, ErrorKind, Original, Register, Registration};
use sqlx::PgConnection;

use crate::original::OriginalRow;
use crate::wait::lock_timeout;
use crate::{PostgresStore, errors, guard, transaction};

/// How often the statement runs until an answer is given up (R8). The second run sees what the
/// first waited for; a third is for a purge and yet another transaction between the two.
const RUNS: usize = 3;

/// Registers a message in the transaction that is open on `conn`.
pub(crate) async fn register_if_new(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &Register<'_>,
) -> Result<Registration, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Deadline::after(request.wait.unwrap_or(store.wait()));
    for _ in 0..RUNS {
        match insert(store, conn, request, &wait).await? {
            Inserted::New => return Ok(Registration::New),
            Inserted::Seen(original) => return Ok(original.compare(request.message)),
            Inserted::Nothing => {}
        }
    }
    Err(Error::new(ErrorKind::Unconfirmed, request.doing()))
}

/// What one run of the statement shows.
enum Inserted {
    New,
    /// Not inserted, and the original was there before the statement began.
    Seen(Original),
    /// Not inserted, and nothing seen: the statement waited for the original, or the row was swallowed.
    Nothing,
}

type Row = (i64, Option<String>, Option<Vec<u8>>, Option<i64>);

async fn insert(
    store: &PostgresStore,
    conn: &mut PgConnection,
    request: &Register<'_>,
    wait: &Deadline,
) -> Result<Inserted, Error> {
    let message = request.message;
    let fingerprint = message.fingerprint();
    let (new, event_type, fingerprint, registered_at): Row =
        sqlx::query_as(store.statements().register.sql())
            .persistent(store.prepared())
            .bind(request.consumer.as_str())
            .bind(message.id().as_str())
            .bind(message.event_type().as_str())
            .bind(fingerprint.as_ref().map(|fingerprint| fingerprint.as_bytes().as_slice()))
            .bind(lock_timeout(wait))
            .bind(request.guard.is_guarded().then(|| guard::setting(transaction::depth(conn))))
            .fetch_one(conn)
            .await
            .map_err(|source| errors::register_error(wait, request.doing(), source))?;
    match (new, event_type) {
        (1, _) => Ok(Inserted::New),
        (_, None) => Ok(Inserted::Nothing),
        (_, Some(event_type)) => OriginalRow { event_type, fingerprint, registered_at }
            .check(|| request.doing())
            .map(Inserted::Seen),
    }
}
