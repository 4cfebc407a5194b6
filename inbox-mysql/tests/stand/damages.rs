//! Tables that were altered to be wrong, each in one way.

use inbox_testkit::suite::Damage;

/// What both MySQL and MariaDB allow to be done to the table `inbox` of the current database.
pub(crate) fn damages() -> Vec<Damage> {
    vec![
        // The key
        Damage::new("missing_primary_key", ["ALTER TABLE inbox DROP PRIMARY KEY"]),
        Damage::new(
            "wider_primary_key",
            ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (consumer, message_id, event_type)"],
        ),
        Damage::new(
            "narrower_primary_key",
            ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (message_id)"],
        ),
        Damage::new(
            "primary_key_on_a_prefix",
            ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (consumer, message_id(10))"],
        ),
        Damage::new(
            "primary_key_on_other_columns",
            ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (message_id, event_type)"],
        ),
        Damage::new(
            "surrogate_primary_key",
            ["ALTER TABLE inbox DROP PRIMARY KEY, ADD id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, \
              ADD UNIQUE KEY decides (consumer, message_id)"],
        ),
        Damage::new(
            "unique_key_instead_of_primary",
            ["ALTER TABLE inbox DROP PRIMARY KEY, ADD UNIQUE KEY decides (consumer, message_id)"],
        ),
        Damage::new("further_unique_index", ["ALTER TABLE inbox ADD UNIQUE KEY extra (message_id)"]),
        // The columns
        Damage::new("missing_column", ["ALTER TABLE inbox DROP COLUMN fingerprint"]),
        Damage::new("missing_attempt", ["ALTER TABLE inbox DROP COLUMN attempt"]),
        Damage::new(
            "collation_that_folds_case",
            [
                "ALTER TABLE inbox MODIFY message_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL",
            ],
        ),
        Damage::new(
            "collation_that_merges_spaces",
            [
                "ALTER TABLE inbox MODIFY message_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
            ],
        ),
        Damage::new("padded_id", ["ALTER TABLE inbox MODIFY message_id BINARY(255) NOT NULL"]),
        Damage::new("padded_fingerprint", ["ALTER TABLE inbox MODIFY fingerprint BINARY(20) NULL"]),
        Damage::new("narrow_consumer", ["ALTER TABLE inbox MODIFY consumer VARBINARY(99) NOT NULL"]),
        Damage::new("narrow_id", ["ALTER TABLE inbox MODIFY message_id VARBINARY(254) NOT NULL"]),
        Damage::new("narrow_event_type", ["ALTER TABLE inbox MODIFY event_type VARBINARY(254) NOT NULL"]),
        Damage::new("narrow_fingerprint", ["ALTER TABLE inbox MODIFY fingerprint VARBINARY(15) NULL"]),
        Damage::new("narrow_attempt", ["ALTER TABLE inbox MODIFY attempt BINARY(15) NULL"]),
        Damage::new("nullable_event_type", ["ALTER TABLE inbox MODIFY event_type VARBINARY(255) NULL"]),
        Damage::new("required_fingerprint", ["ALTER TABLE inbox MODIFY fingerprint BINARY(16) NOT NULL"]),
        Damage::new("required_attempt", ["ALTER TABLE inbox MODIFY attempt BINARY(16) NOT NULL"]),
        Damage::new(
            "whole_seconds",
            ["ALTER TABLE inbox MODIFY registered_at DATETIME NOT NULL DEFAULT (UTC_TIMESTAMP())"],
        ),
        Damage::new(
            "timestamp",
            ["ALTER TABLE inbox MODIFY registered_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"],
        ),
        Damage::new("missing_default", ["ALTER TABLE inbox ALTER registered_at DROP DEFAULT"]),
        Damage::new(
            "default_in_the_session_s_zone",
            ["ALTER TABLE inbox MODIFY registered_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"],
        ),
        Damage::new(
            "default_of_whole_seconds",
            ["ALTER TABLE inbox MODIFY registered_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP())"],
        ),
        Damage::new(
            "constant_default",
            ["ALTER TABLE inbox MODIFY registered_at DATETIME(6) NOT NULL DEFAULT '2020-01-01'"],
        ),
        Damage::new(
            "generated_column",
            ["ALTER TABLE inbox DROP COLUMN fingerprint, \
              ADD fingerprint VARBINARY(16) GENERATED ALWAYS AS (SUBSTRING(message_id, 1, 16)) STORED"],
        ),
        Damage::new("required_extra_column", ["ALTER TABLE inbox ADD tenant INT NOT NULL"]),
        Damage::new(
            "auto_increment_column",
            ["ALTER TABLE inbox ADD id BIGINT NOT NULL AUTO_INCREMENT, ADD KEY (id)"],
        ),
        // The constraints
        Damage::new("check", ["ALTER TABLE inbox ADD CONSTRAINT refuses CHECK (event_type <> 'x')"]),
        Damage::new("check_of_a_column", ["ALTER TABLE inbox ADD size INT NULL CHECK (size > 0)"]),
        Damage::new(
            "foreign_key",
            [
                "CREATE TABLE consumers (name VARBINARY(100) PRIMARY KEY) ENGINE = InnoDB",
                "ALTER TABLE inbox ADD CONSTRAINT refers FOREIGN KEY (consumer) REFERENCES consumers (name)",
            ],
        ),
        Damage::new(
            "trigger_that_changes",
            ["CREATE TRIGGER changes BEFORE INSERT ON inbox FOR EACH ROW SET NEW.event_type = 'x'"],
        ),
        Damage::new(
            "trigger_after_a_delete",
            ["CREATE TRIGGER notes AFTER DELETE ON inbox FOR EACH ROW SET @deleted = 1"],
        ),
        // The table
        Damage::new("missing_table", ["DROP TABLE inbox"]),
        Damage::new("myisam", ["ALTER TABLE inbox ENGINE = MyISAM"]),
        Damage::new(
            "range_partitions",
            [
                "ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (consumer, message_id, registered_at)",
                "ALTER TABLE inbox PARTITION BY RANGE COLUMNS (registered_at) \
                 (PARTITION past VALUES LESS THAN ('2026-02-01'))",
            ],
        ),
        Damage::new(
            "key_partitions",
            ["ALTER TABLE inbox PARTITION BY KEY (consumer, message_id) PARTITIONS 4"],
        ),
        Damage::new("view", ["RENAME TABLE inbox TO hidden", "CREATE VIEW inbox AS SELECT * FROM hidden"]),
        Damage::new("newer_version", ["ALTER TABLE inbox COMMENT = 'inbox schema 2'"]),
    ]
}
