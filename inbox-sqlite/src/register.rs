//! Registers one message: insert, or read the original (R1 to R3, R8).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inbox_core::{
    Consumer, Error, ErrorKind, Fingerprint, Message, MessageId, Original, Register, Registration,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::errors::statement_error;
use crate::statements::Statements;

/// How often insert and read are tried: between a first pair a purge may remove the row.
const TRIES: u32 = 2;

/// Registers a message on a connection that is in a transaction.
pub(crate) fn register(
    conn: &Connection,
    sql: &Statements,
    request: &Register<'_>,
) -> Result<Registration, Error> {
    match insert_or_read(conn, sql, request.consumer, request.message) {
        Ok(Found::Inserted) => Ok(Registration::New),
        Ok(Found::Original(original)) => Ok(original.compare(request.message)),
        Ok(Found::Nothing) => Err(Error::new(ErrorKind::Unconfirmed, request.doing())),
        Err(source) => Err(statement_error(conn, sql, request.doing(), source)),
    }
}

/// What became of one insert.
pub(crate) enum Found {
    Inserted,
    Original(Original),
    Nothing,
}

pub(crate) fn insert_or_read(
    conn: &Connection,
    sql: &Statements,
    consumer: &Consumer,
    message: &Message,
) -> rusqlite::Result<Found> {
    for _ in 0..TRIES {
        if insert(conn, sql, consumer, message)? {
            return Ok(Found::Inserted);
        }
        if let Some(original) = read_original(conn, sql, consumer, message.id())? {
            return Ok(Found::Original(original));
        }
    }
    Ok(Found::Nothing)
}

/// Ids go in as TEXT and fingerprints as BLOB, always: values of two storage classes are never
/// equal in SQLite (B53).
fn insert(
    conn: &Connection,
    sql: &Statements,
    consumer: &Consumer,
    message: &Message,
) -> rusqlite::Result<bool> {
    let fingerprint = message.fingerprint();
    let fingerprint: Option<&[u8]> = fingerprint.as_ref().map(|fingerprint| &fingerprint.as_bytes()[..]);
    let rows = conn.prepare_cached(&sql.insert)?.execute(params![
        consumer.as_str(),
        message.id().as_str(),
        message.event_type().as_str(),
        fingerprint,
    ])?;
    Ok(rows > 0)
}

/// The original as this connection sees it.
pub(crate) fn read_original(
    conn: &Connection,
    sql: &Statements,
    consumer: &Consumer,
    id: &MessageId,
) -> rusqlite::Result<Option<Original>> {
    conn.prepare_cached(&sql.read_original)?
        .query_row(params![consumer.as_str(), id.as_str()], original_from_row)
        .optional()
}

fn original_from_row(row: &Row<'_>) -> rusqlite::Result<Original> {
    let event_type: String = row.get(0)?;
    let fingerprint: Option<[u8; Fingerprint::LEN]> = row.get(1)?;
    let registered_at: i64 = row.get(2)?;
    Ok(Original::new(event_type, time_from_micros(registered_at), fingerprint.map(Fingerprint::from_bytes)))
}

/// Never panics: a time that `SystemTime` cannot hold becomes the epoch, an information for people.
fn time_from_micros(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    let time = if micros < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use inbox_core::TableName;

    use super::*;

    fn set_up(ddl: &str) -> (Connection, Statements) {
        let conn = Connection::open_in_memory().unwrap();
        let sql = Statements::new(TableName::new("main", "inbox").unwrap());
        conn.execute_batch(if ddl.is_empty() { &sql.create_table } else { ddl }).unwrap();
        (conn, sql)
    }

    fn consumer() -> Consumer {
        Consumer::new("loyalty").unwrap()
    }

    fn message(id: &str) -> Message {
        Message::new(MessageId::new(id).unwrap(), "Paid").unwrap()
    }

    fn try_it(conn: &Connection, sql: &Statements, message: &Message) -> Result<Registration, Error> {
        register(conn, sql, &Register::new(&consumer(), message))
    }

    #[test]
    fn b50_a_row_that_or_ignore_swallowed_is_no_duplicate() {
        let (conn, sql) = set_up(
            "CREATE TABLE inbox (consumer TEXT, message_id TEXT CHECK (length(message_id) <= 8),
                 event_type TEXT, fingerprint BLOB NOT NULL, registered_at INTEGER,
                 PRIMARY KEY (consumer, message_id)) STRICT",
        );
        for swallowed in [message("m"), message("too-long-id").with_payload(b"x")] {
            assert_eq!(try_it(&conn, &sql, &swallowed).unwrap_err().kind(), ErrorKind::Unconfirmed);
        }
        assert!(try_it(&conn, &sql, &message("m").with_payload(b"x")).unwrap().is_new());
    }

    #[test]
    fn b53_ids_of_digits_stay_text_and_stay_apart() {
        let (conn, sql) = set_up("");
        for id in ["42", "042", "42 ", "42.0", "4.2e1", "0x2A"] {
            assert!(try_it(&conn, &sql, &message(id)).unwrap().is_new(), "{id:?}");
        }
        let kinds: Vec<String> = conn
            .prepare(
                "SELECT DISTINCT typeof(consumer) || typeof(message_id) || typeof(event_type) FROM inbox",
            )
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(kinds, ["texttexttext"]);
    }

    #[test]
    fn b54_a_null_in_the_key_is_refused_by_the_table() {
        let (conn, _) = set_up("");
        for values in ["'c', NULL, 't'", "NULL, 'm', 't'"] {
            let insert = format!("INSERT INTO inbox (consumer, message_id, event_type) VALUES ({values})");
            assert!(conn.execute_batch(&insert).is_err(), "{values}");
        }
    }

    #[test]
    fn r15_a_temporary_table_of_the_same_name_takes_no_registration() {
        let (conn, sql) = set_up("");
        conn.execute_batch("CREATE TEMP TABLE inbox AS SELECT * FROM main.inbox").unwrap();

        assert!(try_it(&conn, &sql, &message("m")).unwrap().is_new());

        let kept: i64 = conn.query_row("SELECT count(*) FROM main.inbox", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1);
    }

    #[test]
    fn times_before_1970_and_beyond_all_clocks_do_not_panic() {
        assert!(time_from_micros(-1) < UNIX_EPOCH);
        for extreme in [i64::MIN, i64::MAX] {
            let _ = time_from_micros(extreme);
        }
    }
}
