//! What `verify_messages` refuses and warns of, each damage done to a good table (R16).

use inbox_core::{ErrorKind, TableName};

use crate::stand::{Stand, run};

/// Damage to the table of kept messages, and what the refusal says of it.
const REFUSED: &[(&str, &str)] = &[
    ("DROP TABLE inbox_messages", "does not exist"),
    (
        "ALTER TABLE inbox_messages RENAME TO t2; CREATE VIEW inbox_messages AS TABLE t2",
        "not an ordinary table",
    ),
    ("CREATE TABLE child () INHERITS (inbox_messages)", "inherits or is inherited from"),
    ("ALTER TABLE inbox_messages SET UNLOGGED", "unlogged"),
    ("ALTER TABLE inbox_messages ENABLE ROW LEVEL SECURITY", "row level security"),
    (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER swallow BEFORE UPDATE ON inbox_messages FOR EACH ROW EXECUTE FUNCTION f()",
        "the trigger swallow",
    ),
    ("CREATE RULE swallow AS ON INSERT TO inbox_messages DO INSTEAD NOTHING", "the rule swallow"),
    ("ALTER TABLE inbox_messages DROP COLUMN not_before", "the column not_before is missing"),
    ("ALTER TABLE inbox_messages ALTER payload TYPE text USING ''", "payload is of type text"),
    (
        "ALTER TABLE inbox_messages ALTER due_at TYPE timestamp",
        "due_at is of type timestamp without time zone",
    ),
    (
        "ALTER TABLE inbox_messages ALTER message_id TYPE varchar(64) COLLATE \"C\"",
        "message_id is of type character varying(64), too narrow",
    ),
    ("ALTER TABLE inbox_messages ALTER payload DROP NOT NULL", "payload may be NULL"),
    ("ALTER TABLE inbox_messages ALTER ordering_key SET NOT NULL", "ordering_key is NOT NULL"),
    ("ALTER TABLE inbox_messages ALTER sequence DROP IDENTITY", "sequence is no identity column"),
    ("ALTER TABLE inbox_messages ADD tenant int NOT NULL", "the further column tenant is NOT NULL"),
    (
        "ALTER TABLE inbox_messages DROP CONSTRAINT inbox_messages_pkey",
        "no unique index decides on (sequence)",
    ),
    (
        "CREATE UNIQUE INDEX ON inbox_messages (consumer, message_id)",
        "can refuse a message that is registered as new",
    ),
    ("ALTER TABLE inbox_messages ADD CONSTRAINT small CHECK (length(payload) < 9)", "the check small"),
    ("DROP INDEX inbox_messages_claim", "a claim reads every message"),
    (
        "DROP INDEX inbox_messages_claim; CREATE INDEX ON inbox_messages (consumer, due_at, sequence) WHERE attempts = 0",
        "a claim reads every message",
    ),
    ("COMMENT ON TABLE inbox_messages IS 'inbox messages schema 2'", "use a newer library"),
];

/// What it only warns of.
const WARNED: &[(&str, &str)] = &[
    ("DROP INDEX inbox_messages_state", "counting and listing"),
    ("DROP INDEX inbox_messages_id", "replaying by id"),
    ("DROP INDEX inbox_messages_key", "a claim in order"),
    ("COMMENT ON TABLE inbox_messages IS NULL", "names no version"),
];

/// Does the damage to a table of its own; answers what `verify_messages` says.
async fn damaged(stand: &Stand, place: usize, damage: &str) -> Result<Vec<String>, String> {
    let schema = format!("s{place}");
    let store = stand.store.clone().with_table(TableName::new(&schema, "inbox").unwrap());
    store.create_message_schema().await.unwrap();
    let report = store.verify_messages().await.unwrap();
    // The test server has fsync off, which is its own finding.
    let of_table = report.warnings().filter(|text| !text.starts_with("fsync"));
    assert_eq!(of_table.count(), 0, "a good table has no finding: {report:?}");
    let mut conn = stand.connection().await;
    run(&mut conn, &format!("SET search_path = {schema}; {damage}")).await;
    match store.verify_messages().await {
        Ok(report) => Ok(report.warnings().map(str::to_owned).collect()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Schema);
            Err(error.to_string())
        }
    }
}

#[tokio::test]
async fn r16_damage_to_the_kept_messages_is_refused() {
    let Some(stand) = Stand::new().await else { return };
    for (place, (damage, words)) in REFUSED.iter().enumerate() {
        let refusal = damaged(&stand, place, damage).await.expect_err(damage);
        assert!(refusal.contains(words), "{damage}: {refusal}");
    }
}

#[tokio::test]
async fn r16_what_only_costs_time_is_a_warning_with_its_cost() {
    let Some(stand) = Stand::new().await else { return };
    for (place, (damage, words)) in WARNED.iter().enumerate() {
        let warnings = damaged(&stand, place, damage).await.unwrap().join("\n");
        assert!(warnings.contains(words), "{damage}: {warnings}");
    }
}
