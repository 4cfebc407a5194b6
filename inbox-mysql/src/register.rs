//! Registering one message: the insert, and on a duplicate the read that proves it.

use std::time::Duration;

use inbox_core::{Consumer, Deadline, Error, ErrorKind, Fingerprint, Guard, Message, Register, Registration};
use sqlx::MySqlConnection;

use crate::dialect::Dialect;
use crate::mark::Mark;
use crate::script::{Answer, Script};
use crate::wait::{self, RESTORE};
use crate::{MySqlStore, errors, guard, literal, original, side, transaction};

/// How often the pair of insert and look is made: once more, since a purge may lie between the two (R8).
pub(crate) const PAIRS: usize = 2;

/// Registers a message in the transaction that is open on `conn`.
pub(crate) async fn register_if_new(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &Register<'_>,
) -> Result<Registration, Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let doing = || request.doing();
    let wait = Deadline::after(request.wait.unwrap_or(store.wait()));
    let row = row(request.consumer, request.message, &Mark::new().literal());
    let insert = store.statements().register(std::slice::from_ref(&row));
    let id = request.message.id().as_str();
    let look = store.statements().originals.of(request.consumer, &[id]);

    let mut guard = request.guard;
    for _ in 0..PAIRS {
        let inserted = run_bounded(store, conn, &wait, guard, insert.clone(), doing).await?;
        guard = Guard::Fresh;
        if inserted.affected > 0 {
            return Ok(Registration::New);
        }
        let seen = run_bounded(store, conn, &wait, guard, look.clone(), doing).await?;
        if let Some(found) = original::by_id(&seen.rows, doing)?.remove(id) {
            return Ok(found.original.compare(request.message));
        }
    }
    Err(Error::new(ErrorKind::Unconfirmed, request.doing()))
}

/// A message as a row of `sql/register.sql`.
pub(crate) fn row(consumer: &Consumer, message: &Message, mark: &str) -> String {
    format!(
        "({}, {}, {}, {}, {mark})",
        literal::bytes(consumer.as_str()),
        literal::bytes(message.id().as_str()),
        literal::bytes(message.event_type().as_str()),
        literal::nullable(message.fingerprint().as_ref().map(Fingerprint::as_bytes)),
    )
}

/// Runs one statement with what is left of the wait; sets the guard before it if it opens one.
pub(crate) async fn run_bounded(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    wait: &Deadline,
    guard: Guard,
    statement: String,
    doing: impl Fn() -> String,
) -> Result<Answer, Error> {
    let dialect = store.dialect().ask(conn).await.map_err(|source| errors::error(doing(), source))?;
    let side = store.side().filter(|_| dialect == Dialect::MySql);
    let opening = guard::opening(guard, transaction::depth(conn)).then_some(side.map(|_| side::WHO));
    let who = opening.len().saturating_sub(1);
    let spare = side.map_or(Duration::ZERO, |_| side::SPARE);
    let (script, at) = wait::bounded(wait, dialect, spare, opening, statement);
    let (answers, killed) = match side {
        Some(side) => side::run(side, conn, &script, (who, at), wait::end(wait)).await,
        None => (script.run(conn).await, false),
    };
    match answers {
        Ok(mut answers) => Ok(std::mem::take(&mut answers[at])),
        Err(failed) if guard != Guard::Fresh && failed.is(guard::OPEN_AT, guard::GONE) => {
            Err(transaction::over(doing(), failed.source))
        }
        Err(failed) => {
            if dialect == Dialect::MySql && failed.source.as_database_error().is_some() {
                // Where this fails as well, the connection is gone, or the next call restores it.
                let _ = Script::new().then(RESTORE).run(conn).await;
            }
            let error = if killed { errors::error_past } else { errors::error_within };
            Err(error(wait, doing(), failed.source))
        }
    }
}
