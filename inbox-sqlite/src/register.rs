//! Registers one message: insert, or read the original (R1 to R3, R8).

use inbox_core::{Consumer, Error, ErrorKind, Fingerprint, Message, Original, Register, Registration};

use crate::driver::Driver;
use crate::errors::statement_error;
use crate::statements::Statements;

/// How often insert and read are tried: between a first pair a purge may remove the row.
const TRIES: u32 = 2;

/// Registers a message on a connection that is in a transaction.
pub(crate) async fn register<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    request: &Register<'_>,
) -> Result<Registration, Error> {
    match insert_or_read(conn, sql, request.consumer, request.message).await {
        Ok(Found::Inserted) => Ok(Registration::New),
        Ok(Found::Original(original)) => Ok(original.compare(request.message)),
        Ok(Found::Nothing) => Err(Error::new(ErrorKind::Unconfirmed, request.doing())),
        Err(source) => Err(statement_error(conn, sql, request.doing(), source).await),
    }
}

/// What became of one insert.
pub(crate) enum Found {
    Inserted,
    Original(Original),
    Nothing,
}

pub(crate) async fn insert_or_read<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    consumer: &Consumer,
    message: &Message,
) -> Result<Found, D::Error> {
    for _ in 0..TRIES {
        if conn.insert(sql, consumer, message).await? {
            return Ok(Found::Inserted);
        }
        if let Some(original) = conn.original(sql, consumer, message.id()).await? {
            return Ok(Found::Original(original));
        }
    }
    Ok(Found::Nothing)
}

/// An original as it stands in a row; the time is in microseconds since 1970.
pub(crate) fn original(
    event_type: String,
    fingerprint: Option<[u8; Fingerprint::LEN]>,
    registered_at: i64,
) -> Original {
    Original::at_micros(event_type, registered_at, fingerprint.map(Fingerprint::from_bytes))
}
