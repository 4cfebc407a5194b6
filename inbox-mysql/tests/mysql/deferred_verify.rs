//! What `verify_messages` refuses and warns of, each damage done to a good table (R16).

use inbox_core::{ErrorKind, SchemaReport};
use inbox_mysql::MESSAGES_SCHEMA_VERSION;
use sqlx::mysql::MySqlPoolOptions;

use crate::deferred::{envelope, with_messages};
use crate::stand::{Stand, on_each_server};

on_each_server![
    r16_damage_to_the_kept_messages_is_refused_and_named,
    r16_an_index_that_is_not_used_is_as_good_as_none,
    r16_what_weakens_the_kept_messages_is_a_warning,
    r16_what_does_no_harm_to_the_kept_messages_is_accepted,
    r16_rights_that_are_missing_on_the_kept_messages_are_refused,
    r15_the_table_of_kept_messages_is_created_once_by_many,
];

/// Damage to the table of kept messages, and what the refusal says of it.
const REFUSED: &[(&str, &str)] = &[
    ("DROP TABLE inbox_messages", "does not exist"),
    (
        "RENAME TABLE inbox_messages TO hidden; CREATE VIEW inbox_messages AS SELECT * FROM hidden",
        "not an ordinary table but a view",
    ),
    ("ALTER TABLE inbox_messages ENGINE = MyISAM", "its engine is MyISAM"),
    ("ALTER TABLE inbox_messages PARTITION BY KEY (sequence) PARTITIONS 4", "it is partitioned"),
    (
        "CREATE TRIGGER changes BEFORE UPDATE ON inbox_messages FOR EACH ROW SET NEW.payload = ''",
        "the trigger changes can change a message",
    ),
    ("ALTER TABLE inbox_messages DROP COLUMN not_before", "not_before is missing; add it as DATETIME(6)"),
    ("ALTER TABLE inbox_messages DROP COLUMN fingerprint", "fingerprint is missing; add it as BINARY(16)"),
    ("ALTER TABLE inbox_messages MODIFY payload BLOB NOT NULL", "payload is of type blob, which cuts"),
    (
        "ALTER TABLE inbox_messages MODIFY payload MEDIUMBLOB NOT NULL",
        "payload is of type mediumblob, which cuts",
    ),
    (
        "ALTER TABLE inbox_messages MODIFY payload LONGTEXT NOT NULL",
        "payload is of type longtext, which cuts",
    ),
    ("ALTER TABLE inbox_messages MODIFY headers BLOB NOT NULL", "headers is of type blob, which cuts"),
    ("ALTER TABLE inbox_messages MODIFY history BLOB NOT NULL", "history is of type blob, which cuts"),
    ("ALTER TABLE inbox_messages MODIFY due_at DATETIME NOT NULL", "due_at is of type datetime, which cuts"),
    (
        "ALTER TABLE inbox_messages MODIFY due_at DATETIME(3) NOT NULL",
        "due_at is of type datetime(3), which cuts",
    ),
    (
        "ALTER TABLE inbox_messages MODIFY not_before TIMESTAMP(6) NOT NULL",
        "not_before is of type timestamp(6), which cuts",
    ),
    (
        "ALTER TABLE inbox_messages MODIFY message_id VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL",
        "message_id is of type varchar(255), which cuts",
    ),
    (
        "ALTER TABLE inbox_messages MODIFY message_id BINARY(255) NOT NULL",
        "message_id is of type binary(255)",
    ),
    ("ALTER TABLE inbox_messages MODIFY consumer VARBINARY(99) NOT NULL", "varbinary(99), too narrow"),
    ("ALTER TABLE inbox_messages MODIFY ordering_key VARBINARY(254) NULL", "varbinary(254), too narrow"),
    ("ALTER TABLE inbox_messages MODIFY content_type VARBINARY(64) NULL", "varbinary(64), too narrow"),
    ("ALTER TABLE inbox_messages MODIFY lease_token BINARY(20) NULL", "lease_token is of type binary(20)"),
    ("ALTER TABLE inbox_messages MODIFY lease_token BINARY(8) NULL", "binary(8), too narrow"),
    ("ALTER TABLE inbox_messages MODIFY attempts TINYINT NOT NULL", "attempts is of type tinyint"),
    ("ALTER TABLE inbox_messages MODIFY sequence BIGINT NOT NULL", "sequence is of type bigint"),
    ("ALTER TABLE inbox_messages MODIFY sequence INT NOT NULL AUTO_INCREMENT", "sequence is of type int"),
    ("ALTER TABLE inbox_messages MODIFY payload LONGBLOB NULL", "payload may be NULL"),
    ("ALTER TABLE inbox_messages MODIFY ordering_key VARBINARY(255) NOT NULL", "ordering_key is NOT NULL"),
    ("ALTER TABLE inbox_messages ADD tenant INT NOT NULL", "the further column tenant is NOT NULL"),
    ("ALTER TABLE inbox_messages DROP KEY claim", "no index claim on (consumer,state,due_at,sequence)"),
    (
        "ALTER TABLE inbox_messages DROP KEY claim, ADD KEY claim (consumer, due_at, sequence)",
        "no index claim on (consumer,state,due_at,sequence)",
    ),
    (
        "ALTER TABLE inbox_messages DROP KEY claim, ADD KEY due (consumer, state, due_at, sequence)",
        "no index claim on (consumer,state,due_at,sequence)",
    ),
    ("ALTER TABLE inbox_messages DROP KEY state_since", "no index state_since"),
    ("ALTER TABLE inbox_messages DROP KEY message_id", "no index message_id"),
    (
        "ALTER TABLE inbox_messages DROP KEY message_id, ADD KEY message_id (consumer, message_id(10))",
        "no index message_id",
    ),
    ("ALTER TABLE inbox_messages DROP KEY ordering_key", "no index ordering_key"),
    (
        "ALTER TABLE inbox_messages ADD UNIQUE KEY once (consumer, message_id)",
        "the unique index once can refuse a message",
    ),
    ("ALTER TABLE inbox_messages ADD CONSTRAINT small CHECK (LENGTH(payload) < 9)", "the check small"),
    (
        "CREATE TABLE parent (c VARBINARY(100) PRIMARY KEY) ENGINE = InnoDB; \
         ALTER TABLE inbox_messages ADD CONSTRAINT refers FOREIGN KEY (consumer) REFERENCES parent (c)",
        "the foreign key refers can refuse a message",
    ),
    ("ALTER TABLE inbox_messages COMMENT = 'inbox messages schema 2'", "use a newer library"),
];

const WARNED: &[(&str, &str)] = &[
    ("ALTER TABLE inbox_messages COMMENT = ''", "names no version"),
    ("ALTER TABLE inbox_messages COMMENT = 'inbox schema 1'", "names no version"),
    ("ALTER TABLE inbox_messages COMMENT = 'inbox messages schema 0'", "of version 0"),
];

const ACCEPTED: &[&str] = &[
    "ALTER TABLE inbox_messages MODIFY message_id VARBINARY(500) NOT NULL, MODIFY headers LONGBLOB NOT NULL",
    "ALTER TABLE inbox_messages MODIFY attempts BIGINT NOT NULL DEFAULT 0, MODIFY lease_token VARBINARY(16) NULL",
    "ALTER TABLE inbox_messages ADD note TEXT, ADD size INT NOT NULL DEFAULT 0, ADD KEY (event_type)",
    "ALTER TABLE inbox_messages ROW_FORMAT = COMPRESSED",
];

/// Does something to a good table; answers what `verify_messages` says, but for the server's settings.
async fn verify_after(stand: &Stand, change: &str) -> Result<Vec<String>, String> {
    stand
        .sql(
            "SET SESSION foreign_key_checks = 0; DROP VIEW IF EXISTS inbox_messages;
             DROP TABLE IF EXISTS inbox_messages, hidden, parent; SET SESSION foreign_key_checks = 1",
        )
        .await;
    stand.store.create_message_schema().await.unwrap();
    stand.sql(change).await;
    let found = stand.store.verify_messages().await;
    found.map(|report| of_the_table(&report)).map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Schema, "{change}");
        error.to_string()
    })
}

fn of_the_table(report: &SchemaReport) -> Vec<String> {
    report.warnings().filter(|text| !text.starts_with("max_allowed_packet")).map(str::to_owned).collect()
}

async fn r16_damage_to_the_kept_messages_is_refused_and_named(stand: Stand) {
    assert!(verify_after(&stand, "DO 0").await.unwrap().is_empty(), "a good table has no finding");
    for (damage, words) in REFUSED {
        let refusal = verify_after(&stand, damage).await.expect_err(damage);
        assert!(refusal.contains(words), "{damage}: {refusal}");
    }
}

async fn r16_an_index_that_is_not_used_is_as_good_as_none(stand: Stand) {
    let unused = if stand.is_mysql() { "INVISIBLE" } else { "IGNORED" };
    let hide = format!("ALTER TABLE inbox_messages ALTER INDEX claim {unused}");
    let refusal = verify_after(&stand, &hide).await.expect_err("it is not used");
    assert!(refusal.contains("no index claim"), "{refusal}");
}

async fn r16_what_weakens_the_kept_messages_is_a_warning(stand: Stand) {
    assert_eq!(MESSAGES_SCHEMA_VERSION, 1);
    for (change, words) in WARNED {
        let warnings = verify_after(&stand, change).await.expect(change);
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{change}: {warnings:?}");
    }
}

async fn r16_what_does_no_harm_to_the_kept_messages_is_accepted(stand: Stand) {
    for change in ACCEPTED {
        let warnings = verify_after(&stand, change).await.expect(change);
        assert!(warnings.is_empty(), "{change}: {warnings:?}");
        stand.inbox.receive(&envelope(&change.len().to_string())).await.expect(change);
    }
}

async fn r16_rights_that_are_missing_on_the_kept_messages_are_refused(stand: Stand) {
    let stand = with_messages(stand).await;
    let (options, account) = stand.account("").await;
    stand
        .sql(&format!("GRANT SELECT, INSERT (payload), UPDATE (state) ON inbox_messages TO {account}"))
        .await;
    let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
    let store = inbox_mysql::MySqlStore::new(pool.clone()).unwrap();
    let error = store.verify_messages().await.expect_err("rights are missing").to_string();
    for missing in
        ["INSERT the column message_id", "UPDATE the column lease_token", "UPDATE the column due_at"]
    {
        assert!(error.contains(missing), "{missing}: {error}");
    }
    for held in ["may not SELECT", "INSERT the column payload", "UPDATE the column state;"] {
        assert!(!error.contains(held), "{held}: {error}");
    }
    pool.close().await;
    stand.sql(&format!("DROP USER {account}")).await;
}

async fn r15_the_table_of_kept_messages_is_created_once_by_many(stand: Stand) {
    let creating = (0..8).map(|_| {
        let store = stand.store.clone();
        tokio::spawn(async move { store.create_message_schema().await })
    });
    for created in creating.collect::<Vec<_>>() {
        created.await.unwrap().unwrap();
    }
    stand.inbox.receive(&envelope("m")).await.unwrap();
    stand.store.create_message_schema().await.unwrap();
    assert_eq!(stand.ask("SELECT count(*) FROM inbox_messages").await, 1);
}
