//! Registers one message on rusqlite's connection.

use inbox_core::{Error, Register, Registration};
use rusqlite::Connection;

use super::driver::at_once;
use crate::statements::Statements;

/// Registers a message on a connection that is in a transaction.
pub(crate) fn register(
    conn: &Connection,
    sql: &Statements,
    request: &Register<'_>,
) -> Result<Registration, Error> {
    at_once(crate::register::register(&mut &*conn, sql, request))
}

#[cfg(test)]
mod tests {
    use inbox_core::{Consumer, ErrorKind, Message, MessageId, TableName};

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
}
