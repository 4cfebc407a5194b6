//! `verify_messages` refuses a table on which the deferred inbox would be wrong or slow (R16, D9).

use inbox_core::{ErrorKind, TableName};
use inbox_sqlite::{create_message_schema_on, messages_ddl, verify_messages_on};
use rusqlite::Connection;

fn table() -> TableName {
    TableName::new("main", "inbox").unwrap()
}

/// The library's own DDL with one piece of text replaced.
fn with(from: &str, to: &str) -> String {
    let ddl = messages_ddl(&table());
    assert!(ddl.contains(from), "{from}");
    ddl.replace(from, to)
}

fn and(more: &str) -> String {
    format!("{}{more}", messages_ddl(&table()))
}

const CLAIM: &str = "(consumer, due_at)\n WHERE state = 'pending'";

#[test]
fn r16_each_flaw_of_the_kept_messages_is_refused_with_its_remedy() {
    let id = "message_id   TEXT    NOT NULL";
    let cases = [
        ("", String::new(), "run create_message_schema"),
        ("a view", "CREATE TABLE t (a); CREATE VIEW inbox_messages AS SELECT * FROM t".into(), "is a view"),
        ("not STRICT", with(") STRICT;", ");"), "not STRICT"),
        ("no rowid", with(") STRICT;", ") STRICT, WITHOUT ROWID;"), "nothing gives a message its sequence"),
        (
            "another key",
            with("INTEGER PRIMARY KEY", "INTEGER"),
            "the primary key is not exactly the sequence",
        ),
        ("column missing", with("allowed      INTEGER,", ""), "allowed is missing"),
        ("wrong type", with(id, "message_id BLOB NOT NULL"), "message_id is of type BLOB"),
        ("payload as text", with("payload      BLOB ", "payload TEXT "), "payload is of type TEXT"),
        ("NULL", with("due_at       INTEGER NOT NULL", "due_at INTEGER"), "due_at may be NULL"),
        ("NOT NULL", with("fingerprint  BLOB", "fingerprint BLOB NOT NULL"), "fingerprint is NOT NULL"),
        (
            "a further column",
            with("    payload", "    tenant TEXT NOT NULL, payload"),
            "tenant is NOT NULL without",
        ),
        ("collation", with(id, "message_id TEXT NOT NULL COLLATE NOCASE"), "merges different ids"),
        ("unique", and("CREATE UNIQUE INDEX u ON inbox_messages (consumer, message_id)"), "u is unique"),
        (
            "expression",
            and("CREATE INDEX e ON inbox_messages (json(headers))"),
            "index e is on an expression",
        ),
        ("trigger", and("CREATE TRIGGER t AFTER INSERT ON inbox_messages BEGIN SELECT 1; END"), "trigger t"),
        ("foreign key", with(id, "message_id TEXT NOT NULL REFERENCES t (a)"), "has a foreign key"),
        ("newer", with("schema 1", "schema 2"), "update the library"),
        ("no claim index", and("DROP INDEX inbox_messages_claim"), "no index on (consumer, due_at) WHERE"),
        ("claims of all", with(CLAIM, "(consumer, due_at)"), "no index on (consumer, due_at) WHERE"),
        (
            "claims of others",
            with(CLAIM, "(consumer, due_at) WHERE state = 'done'"),
            "no index on (consumer, due_at)",
        ),
        (
            "claims unsorted",
            with(CLAIM, "(due_at, consumer) WHERE state = 'pending'"),
            "no index on (consumer, due_at)",
        ),
    ];
    for (flaw, ddl, remedy) in cases {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&ddl).unwrap();
        let refused = verify_messages_on(&conn, &table()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Schema, "{flaw}");
        assert!(refused.to_string().contains(remedy), "{flaw}: {refused}");
        if !flaw.is_empty() {
            let kept = create_message_schema_on(&conn, &table()).unwrap_err();
            assert_eq!(kept.kind(), ErrorKind::Schema, "{flaw}");
        }
    }
}

#[test]
fn r16_a_missing_index_that_only_costs_time_is_a_warning_that_says_so() {
    let states = "CHECK (state IN ('pending', 'done', 'dead'))";
    let leased = "CHECK (lease_token IS NULL OR state = 'pending')";
    for (ddl, warning) in [
        (and("DROP INDEX inbox_messages_state"), "counting and listing read every message"),
        (and("DROP INDEX inbox_messages_id"), "to look for an id or to replay it reads every message"),
        (and("DROP INDEX inbox_messages_key"), "where an order is kept"),
        (with("/* inbox messages schema 1 */", ""), "does not say which version"),
        (with(states, "").replace(leased, ""), "keeps other states"),
    ] {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&ddl).unwrap();
        let report = verify_messages_on(&conn, &table()).unwrap();
        let warnings: Vec<&str> = report.warnings().collect();
        assert!(warnings.iter().any(|given| given.contains(warning)), "{warning}: {warnings:?}");
    }
}

#[test]
fn r16_its_own_table_is_accepted_without_a_warning_and_so_are_other_words_for_it() {
    let claims = "CREATE INDEX mine ON inbox_messages (consumer, state, due_at, sequence);";
    for ddl in [
        messages_ddl(&table()),
        with(CLAIM, "(consumer, due_at, sequence) where (\"state\"='pending')"),
        and(&format!("DROP INDEX inbox_messages_claim; {claims}")),
    ] {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&ddl).unwrap();
        let report = verify_messages_on(&conn, &table()).unwrap();
        assert_eq!(report.warnings().collect::<Vec<_>>(), [""; 0], "{ddl}");
        create_message_schema_on(&conn, &table()).unwrap();
    }
}
