//! `verify` refuses what cannot keep the contract, and says what to do (R16).

use inbox_core::{ErrorKind, TableName};
use inbox_sqlite::{SCHEMA_VERSION, SqliteStore, ddl, verify_on};
use rusqlite::{Connection, OpenFlags};

use crate::stand::File;

fn table() -> TableName {
    TableName::new("main", "inbox").unwrap()
}

/// The library's own DDL with one piece of text replaced.
fn with(from: &str, to: &str) -> String {
    let ddl = ddl(&table());
    assert!(ddl.contains(from), "{from}");
    ddl.replace(from, to)
}

fn and(more: &str) -> String {
    format!("{}{more}", ddl(&table()))
}

#[test]
fn r16_each_flaw_is_refused_with_its_remedy() {
    let id = "message_id    TEXT    NOT NULL";
    let key = "PRIMARY KEY (consumer, message_id)";
    let cases = [
        ("", String::new(), "run create_schema"),
        ("a view", "CREATE TABLE t (a); CREATE VIEW inbox AS SELECT * FROM t".into(), "is a view"),
        ("virtual", "CREATE VIRTUAL TABLE inbox USING fts5(consumer, message_id)".into(), "is a virtual"),
        ("not STRICT", with("STRICT, WITHOUT", "WITHOUT"), "not STRICT"),
        ("column missing", with("fingerprint   BLOB,", ""), "fingerprint is missing"),
        ("wrong type", with(id, "message_id BLOB NOT NULL"), "message_id is of type BLOB"),
        ("id as a number", with(id, "message_id INTEGER NOT NULL"), "message_id is of type INTEGER"),
        ("fingerprint NOT NULL", with("BLOB,", "BLOB NOT NULL,"), "fingerprint is NOT NULL"),
        (
            "event type NULL",
            with("event_type    TEXT    NOT NULL", "event_type TEXT"),
            "event_type may be NULL",
        ),
        (
            "a further column",
            with("BLOB,", "BLOB, tenant TEXT NOT NULL,"),
            "tenant is NOT NULL without a default",
        ),
        (
            "a generated column",
            with("BLOB,", "BLOB, g TEXT NOT NULL AS (nullif(event_type, 'x')) STORED,"),
            "g is generated",
        ),
        (
            "a virtual column",
            with("BLOB,", "BLOB, g TEXT AS (json_extract(message_id, '$.x')) VIRTUAL,"),
            "g is generated",
        ),
        (
            "a column of ours that is generated",
            with("event_type    TEXT    NOT NULL", "event_type TEXT NOT NULL AS ('x') STORED"),
            "event_type is generated",
        ),
        (
            "a default of NULL",
            with("BLOB,", "BLOB, tenant TEXT NOT NULL DEFAULT NULL,"),
            "tenant is NOT NULL without a default",
        ),
        (
            "a default that comes out as NULL",
            with("BLOB,", "BLOB, tenant TEXT NOT NULL DEFAULT (nullif('x', 'x') -- none\n),"),
            "tenant is NOT NULL without a default",
        ),
        (
            "an index on an expression",
            and("; CREATE INDEX e ON inbox (json_extract(event_type, '$.x'))"),
            "the index e is on an expression",
        ),
        ("NOCASE", with(id, &format!("{id} COLLATE NOCASE")), "message_id is compared by NOCASE"),
        ("RTRIM", with(id, &format!("{id} COLLATE RTRIM")), "message_id is compared by RTRIM"),
        (
            "column NOCASE, key BINARY",
            with(id, &format!("{id} COLLATE NOCASE"))
                .replace(key, "PRIMARY KEY (consumer, message_id COLLATE BINARY)"),
            "message_id has a collation that merges",
        ),
        (
            "key NOCASE, column BINARY",
            with(key, "PRIMARY KEY (consumer, message_id COLLATE NOCASE)"),
            "message_id is compared by NOCASE",
        ),
        ("key too short", with(key, "PRIMARY KEY (message_id)"), "no unique key on exactly"),
        (
            "key too long",
            with(key, "PRIMARY KEY (consumer, message_id, event_type)"),
            "no unique key on exactly",
        ),
        (
            "no key",
            with(key, "UNIQUE (event_type)").replace(", WITHOUT ROWID", ""),
            "no unique key on exactly",
        ),
        (
            "a partial key",
            with(&format!(",\n    {key}"), "").replace(", WITHOUT ROWID", "")
                + ";CREATE UNIQUE INDEX k ON inbox (consumer, message_id) WHERE event_type = 'x'",
            "no unique key on exactly",
        ),
        (
            "a key on an expression",
            with(&format!(",\n    {key}"), "").replace(", WITHOUT ROWID", "")
                + ";CREATE UNIQUE INDEX k ON inbox (consumer, lower(message_id))",
            "no unique key on exactly",
        ),
        (
            "a second unique key",
            and("; CREATE UNIQUE INDEX second ON inbox (event_type)"),
            "unique index second",
        ),
        ("CHECK", with("BLOB,", "BLOB CHECK (length(fingerprint) = 16),"), "CHECK constraint"),
        (
            "table CHECK",
            with(key, &format!("{key}, CONSTRAINT c CHECK (consumer <> 'x')")),
            "CHECK constraint",
        ),
        (
            "a trigger",
            and(";CREATE TRIGGER t BEFORE INSERT ON inbox BEGIN SELECT RAISE(IGNORE); END"),
            "the trigger t",
        ),
        (
            "a temporary trigger",
            and(";CREATE TEMP TRIGGER t BEFORE INSERT ON main.inbox BEGIN SELECT RAISE(IGNORE); END"),
            "the trigger t (temporary)",
        ),
        (
            "a foreign key",
            with("event_type    TEXT    NOT NULL", "event_type TEXT NOT NULL REFERENCES kinds (name)"),
            "foreign key",
        ),
        ("newer", with("inbox schema 1", "inbox schema 2"), "update the library"),
        ("read-only", and("; PRAGMA query_only = ON"), "read-only"),
        ("no rollback", and("; PRAGMA journal_mode = OFF"), "journal_mode is OFF"),
    ];
    for (case, ddl, expected) in cases {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&ddl).unwrap_or_else(|error| panic!("{case}: {error}"));
        let error = verify_on(&conn, &table()).map(|report| panic!("{case}: {report:?}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{case}");
        assert!(error.to_string().contains(expected), "{case}: {error}");
    }
}

#[test]
fn r16_what_keeps_the_contract_is_accepted() {
    let key = "PRIMARY KEY (consumer, message_id)";
    for ddl in [
        ddl(&table()),
        with(key, "PRIMARY KEY (message_id, consumer)"),
        with("STRICT, WITHOUT ROWID", "STRICT"),
        with("BLOB,", "BLOB, note TEXT, tenant TEXT NOT NULL DEFAULT 'x', /* no CHECK */"),
        with("BLOB,", "BLOB, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, n INTEGER NOT NULL DEFAULT -1,"),
        with("BLOB,", "BLOB, a TEXT NOT NULL DEFAULT (lower('X')), b TEXT NOT NULL DEFAULT word,"),
        with("IF NOT EXISTS \"main\".\"inbox\"", "Inbox"),
        and("; CREATE INDEX by_time ON inbox (registered_at)"),
        and("; CREATE TEMP TABLE inbox (x)"),
    ] {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&ddl).unwrap();
        verify_on(&conn, &table()).unwrap_or_else(|error| panic!("{ddl}: {error}"));
    }
}

#[test]
fn r16_utf_16_is_refused_where_this_sqlite_merges_ids_in_it() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&format!(
        "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (id TEXT PRIMARY KEY); {}",
        ddl(&table())
    ))
    .unwrap();
    conn.execute("INSERT INTO t VALUES (?1)", ["\u{ffff}"]).unwrap();
    let merges = conn.execute("INSERT INTO t VALUES (?1)", ["\u{fffd}"]).is_err();

    let error = verify_on(&conn, &table()).err().map(|error| error.to_string());

    assert_eq!(merges, error.is_some_and(|error| error.contains("encoded in UTF-16le")));
}

#[test]
fn a_temporary_table_is_refused() {
    let table = TableName::new("temp", "inbox").unwrap();
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(&ddl(&table)).unwrap();
    let error = verify_on(&conn, &table).unwrap_err();
    assert!(error.to_string().contains("the table is temporary"), "{error}");
}

#[tokio::test]
async fn r16_a_read_only_file_is_refused() {
    let (file, store) = File::new().await;
    drop(store);
    let conn = Connection::open_with_flags(file.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let error = verify_on(&conn, &table()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test]
async fn r16_what_weakens_durability_or_sharing_is_a_warning() {
    let (file, store) = File::new().await;
    assert!(store.verify().await.unwrap().findings().is_empty());
    drop(store);
    for (setting, expected) in [
        ("PRAGMA synchronous = NORMAL", "synchronous is below FULL"),
        ("PRAGMA locking_mode = EXCLUSIVE", "locking_mode is EXCLUSIVE"),
        ("PRAGMA journal_mode = DELETE", "journal_mode is DELETE"),
        ("PRAGMA journal_mode = MEMORY", "journal_mode is MEMORY"),
    ] {
        let conn = file.foreign();
        conn.execute_batch(setting).unwrap();
        let report = verify_on(&conn, &table()).unwrap();
        assert!(report.warnings().any(|warning| warning.contains(expected)), "{setting}: {report:?}");
    }
}

#[tokio::test]
async fn an_attached_database_works_and_is_warned_of() {
    let (aside, store) = File::new().await;
    drop(store);
    let conn = Connection::open_in_memory().unwrap();
    conn.execute("ATTACH ?1 AS aside", [aside.path().to_str().unwrap()]).unwrap();
    let store =
        SqliteStore::from_connection(conn).unwrap().with_table(TableName::new("aside", "inbox").unwrap());
    let report = store.verify().await.unwrap();
    assert!(report.warnings().any(|warning| warning.contains("attached")), "{report:?}");
}

#[tokio::test]
async fn r16_a_table_without_a_version_is_accepted_with_a_warning() {
    let store = SqliteStore::in_memory().unwrap();
    let mark = format!("/* inbox schema {SCHEMA_VERSION} */");
    let unmarked = with(&mark, "");
    store.call(move |conn| conn.execute_batch(&unmarked)).await.unwrap();

    store.create_schema().await.unwrap();

    let report = store.verify().await.unwrap();
    assert_eq!(report.findings().len(), 1, "{report:?}");
    assert!(report.warnings().any(|warning| warning.contains(&mark)), "{report:?}");
}

#[tokio::test]
async fn r15_create_schema_refuses_a_table_that_is_not_the_inboxs() {
    let store = SqliteStore::in_memory().unwrap();
    store.call(|conn| conn.execute_batch("CREATE TABLE inbox (mail TEXT)")).await.unwrap();
    assert_eq!(store.create_schema().await.unwrap_err().kind(), ErrorKind::Schema);
}

#[test]
fn b56_in_memory_paths_are_refused_with_the_way_out() {
    for path in ["", ":memory:", "file::memory:", "file:x?mode=memory&cache=shared"] {
        let error = SqliteStore::new(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("SqliteStore::in_memory()"), "{error}");
    }
}

#[test]
fn a_path_without_locks_is_refused() {
    for path in [
        "file:x.db?nolock=1",
        "file:x.db?mode=rw&nolock=yes#f",
        "file:x.db?vfs=unix-none",
        "file:x.db?v%66s=unix-n%6Fne",
    ] {
        let error = SqliteStore::new(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("without locks"), "{error}");
    }
}
