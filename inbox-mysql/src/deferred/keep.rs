//! Keeping whole messages, in the transaction that has registered them.

use async_trait::async_trait;
use inbox_core::{
    Deadline, Envelope, Error, Fingerprint, Guard, KeepMessages, KeepRequest, NotBefore, duration_micros,
    micros_of,
};
use sqlx::{MySql, MySqlConnection, Transaction};

use super::packet::{self, SURELY_TAKEN};
use super::statements::{MessageStatements, named_states, time};
use crate::register::run_bounded;
use crate::{InTransaction, MySqlStore, literal, transaction};

/// How many rows one statement inserts.
const ROWS: usize = 999;

/// What is longer is not sent as a hexadecimal literal.
const SHORT: usize = 1024;

#[async_trait]
impl<'c> KeepMessages<Transaction<'c, MySql>> for MySqlStore {
    async fn keep(&self, tx: &mut Transaction<'c, MySql>, request: &KeepRequest<'_>) -> Result<(), Error> {
        keep(self, tx, request).await
    }
}

#[async_trait]
impl<'c> KeepMessages<InTransaction<'c>> for MySqlStore {
    async fn keep(&self, tx: &mut InTransaction<'c>, request: &KeepRequest<'_>) -> Result<(), Error> {
        keep(self, tx, request).await
    }
}

/// Keeps messages in the transaction that is open on `conn`. Their sequences are those of the rows: of one
/// statement with a known number of rows InnoDB takes them at once, and of a later statement they are higher.
async fn keep(
    store: &MySqlStore,
    conn: &mut MySqlConnection,
    request: &KeepRequest<'_>,
) -> Result<(), Error> {
    transaction::refuse_lost(conn, || request.doing())?;
    let wait = Deadline::after(store.wait());
    let mut guard = Guard::Outside;
    let mut envelopes = request.envelopes.iter().peekable();
    while envelopes.peek().is_some() {
        let mut rows = Rows::default();
        while let Some(envelope) = envelopes.next_if(|_| rows.has_room()) {
            rows.push(row(store.messages(), request, envelope));
        }
        let insert = store.messages().keep.with(&[("{rows}", &rows.text)]);
        packet::refuse_too_long(conn, &insert, || request.doing()).await?;
        run_bounded(store, conn, &wait, guard, insert, || request.doing()).await?;
        guard = Guard::Fresh;
    }
    Ok(())
}

/// The rows of one statement.
#[derive(Default)]
struct Rows {
    text: String,
    count: usize,
}

impl Rows {
    /// One row goes into a statement however long it is.
    fn has_room(&self) -> bool {
        self.count < ROWS && self.text.len() < SURELY_TAKEN / 2
    }

    fn push(&mut self, row: String) {
        if self.count > 0 {
            self.text.push_str(",\n");
        }
        self.text.push_str(&row);
        self.count += 1;
    }
}

/// A message as a row of `sql/messages/keep.sql`.
fn row(statements: &MessageStatements, request: &KeepRequest<'_>, envelope: &Envelope) -> String {
    let now = statements.now();
    let due = match envelope.when() {
        NotBefore::Now => now.to_owned(),
        NotBefore::At(at) => time(micros_of(at)),
        NotBefore::After(delay) => format!("{now} + INTERVAL {} MICROSECOND", duration_micros(delay)),
    };
    let message = envelope.message();
    format!(
        "({}, {}, {}, {}, {}, {}, {}, {}, {}, {due}, {due}, 0, x'', {now}, {now})",
        literal::bytes(request.consumer.as_str()),
        literal::bytes(message.id().as_str()),
        literal::bytes(message.event_type().as_str()),
        literal::nullable(message.fingerprint().as_ref().map(Fingerprint::as_bytes)),
        value(envelope.payload()),
        value(envelope.headers().to_json().as_bytes()),
        literal::nullable(envelope.content_type().map(|of| of.as_str())),
        literal::nullable(envelope.ordering_key().map(|key| key.as_str())),
        named_states("{pending}"),
    )
}

fn value(bytes: &[u8]) -> String {
    if bytes.len() <= SHORT { literal::bytes(bytes) } else { packet::long_bytes(bytes) }
}
