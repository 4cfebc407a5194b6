//! What both stands say of SQLite.

use inbox_testkit::suite::{Damage, Need};

pub(crate) const EFFECT: &str = "CREATE TABLE effect (name TEXT NOT NULL) STRICT";
pub(crate) const WRITE_EFFECT: &str = "INSERT INTO effect (name) VALUES (?1)";
pub(crate) const COUNT_EFFECTS: &str = "SELECT count(*) FROM effect WHERE name = ?1";

/// What the stores' clocks add to SQLite's.
pub(crate) const CLOCK: &str = "CREATE TABLE inbox_test_clock (shift_micros INTEGER NOT NULL) STRICT;
                                INSERT INTO inbox_test_clock VALUES (0)";
pub(crate) const ADVANCE_CLOCK: &str = "UPDATE inbox_test_clock SET shift_micros = shift_micros + ?1";

pub(crate) const OFFERS: [Need; 7] = [
    Need::Sql,
    Need::SwallowedInserts,
    Need::AbortingSql,
    Need::ShadowTable,
    Need::Settings,
    Need::Schema,
    Need::Clock,
];

/// The registration of the same transaction conflicts with itself, and OR ROLLBACK ends the whole.
pub(crate) const ABORTING_SQL: &str = "INSERT OR ROLLBACK INTO main.inbox SELECT * FROM main.inbox";

/// The settings of a connection that a store might touch.
pub(crate) const SETTINGS: [&str; 7] = [
    "PRAGMA busy_timeout",
    "PRAGMA foreign_keys",
    "PRAGMA synchronous",
    "PRAGMA journal_mode",
    "PRAGMA query_only",
    "PRAGMA defer_foreign_keys",
    "PRAGMA recursive_triggers",
];

pub(crate) const SWALLOW_INSERTS: &str =
    "CREATE TRIGGER swallow BEFORE INSERT ON inbox BEGIN SELECT raise(IGNORE); END";

pub(crate) const SHADOW_TABLE: &str =
    "CREATE TEMPORARY TABLE inbox (consumer TEXT, message_id TEXT, event_type TEXT, fingerprint BLOB,
                                   registered_at INTEGER DEFAULT 0, PRIMARY KEY (consumer, message_id))";

pub(crate) const TABLE: &str = "main.inbox";

/// Tables that were made wrong, each in one way.
pub(crate) fn damages() -> Vec<Damage> {
    vec![
        table("missing_unique_key", "TEXT NOT NULL", "", "STRICT"),
        table("wider_unique_key", "TEXT NOT NULL", ", PRIMARY KEY (consumer, message_id, registered_at)", "STRICT"),
        table("narrower_unique_key", "TEXT NOT NULL", ", PRIMARY KEY (message_id)", "STRICT"),
        table("folding_collation", "TEXT NOT NULL COLLATE NOCASE", KEY, "STRICT"),
        table("trimming_collation", "TEXT NOT NULL COLLATE RTRIM", KEY, "STRICT"),
        // STRICT alone makes key columns NOT NULL, so the nullable one is another.
        table("nullable_column", "TEXT NOT NULL, event_type TEXT", KEY, "STRICT"),
        table("wrong_type", "INTEGER NOT NULL", KEY, "STRICT"),
        table("loose_types", "TEXT NOT NULL", KEY, ""),
        table("check_constraint", "TEXT NOT NULL CHECK (length(message_id) <= 8)", KEY, "STRICT"),
        table("further_unique_key", "TEXT NOT NULL UNIQUE", KEY, "STRICT"),
        table("required_extra_column", "TEXT NOT NULL, tenant TEXT NOT NULL", KEY, "STRICT"),
        Damage::new(
            "partial_unique_key",
            [
                DROP,
                "CREATE TABLE inbox (consumer TEXT NOT NULL, message_id TEXT NOT NULL, event_type TEXT NOT NULL,
                                     fingerprint BLOB, registered_at INTEGER NOT NULL DEFAULT 0) STRICT",
                "CREATE UNIQUE INDEX part ON inbox (consumer, message_id) WHERE event_type <> 'x'",
            ],
        ),
        Damage::new("missing_column", ["ALTER TABLE inbox DROP COLUMN fingerprint"]),
        Damage::new("trigger", ["CREATE TRIGGER pass AFTER INSERT ON inbox BEGIN SELECT 1; END"]),
        Damage::new(
            "view",
            ["ALTER TABLE inbox RENAME TO hidden", "CREATE VIEW inbox AS SELECT * FROM hidden"],
        ),
    ]
}

const DROP: &str = "DROP TABLE inbox";
const KEY: &str = ", PRIMARY KEY (consumer, message_id)";

/// The inbox table with another `message_id`, another key, other options.
fn table(name: &'static str, message_id: &str, key: &str, options: &str) -> Damage {
    let event_type = if message_id.contains("event_type") { "" } else { "event_type TEXT NOT NULL," };
    let create = format!(
        "CREATE TABLE inbox (consumer TEXT NOT NULL, message_id {message_id}, {event_type} fingerprint BLOB,
                             registered_at INTEGER NOT NULL DEFAULT 0{key}) {options}"
    );
    Damage::new(name, [DROP, &create])
}
