//! What `verify` refuses, each damage done to a good table (R16).

use inbox_core::{Error, ErrorKind, SchemaReport, TableName};
use inbox_mysql::MySqlStore;
use inbox_testkit::servers::{MySqlOptions, skip_requested};
use inbox_testkit::suite::Damage;
use sqlx::Connection;
use sqlx::mysql::MySqlPoolOptions;

use crate::damages::damages;
use crate::stand::{Stand, on_each_server, run};

on_each_server![
    r16_every_damage_is_refused_and_named,
    r16_what_weakens_the_contract_is_a_warning,
    r16_what_is_harmless_is_accepted,
    r16_missing_rights_are_refused,
    r16_a_trigger_that_the_account_may_not_see_is_refused_or_warned_of,
    r16_a_read_only_session_is_refused_and_an_open_one_is_a_warning,
    r16_a_temporary_table_in_its_place_is_refused,
    r15_verifying_leaves_the_session_as_it_was,
    r16_a_servers_settings_are_read,
];

/// What the refusal of each damage says.
const REFUSALS: &[(&str, &str)] = &[
    ("missing_primary_key", "the primary key is not (consumer, message_id)"),
    ("wider_primary_key", "the primary key is not (consumer, message_id)"),
    ("narrower_primary_key", "the primary key is not (consumer, message_id)"),
    ("primary_key_on_a_prefix", "the primary key is not (consumer, message_id)"),
    ("primary_key_on_other_columns", "the primary key is not (consumer, message_id)"),
    ("surrogate_primary_key", "the primary key is not (consumer, message_id)"),
    ("unique_key_instead_of_primary", "the primary key is not (consumer, message_id)"),
    ("further_unique_index", "the unique index extra is not the key"),
    ("missing_column", "the column fingerprint is missing; add it as BINARY(16)"),
    ("missing_attempt", "the column attempt is missing; add it as BINARY(16)"),
    ("collation_that_folds_case", "message_id is of type varchar(255), which merges"),
    ("collation_that_merges_spaces", "message_id is of type varchar(255), which merges"),
    ("padded_id", "message_id is of type binary(255), which merges, pads"),
    ("padded_fingerprint", "fingerprint is of type binary(20), which merges, pads"),
    ("narrow_consumer", "consumer is of type varbinary(99), too narrow"),
    ("narrow_id", "message_id is of type varbinary(254), too narrow"),
    ("narrow_event_type", "event_type is of type varbinary(254), too narrow"),
    ("narrow_fingerprint", "fingerprint is of type varbinary(15), too narrow"),
    ("narrow_attempt", "attempt is of type binary(15), too narrow"),
    ("nullable_event_type", "event_type may be NULL"),
    ("required_fingerprint", "fingerprint is NOT NULL"),
    ("required_attempt", "attempt is NOT NULL"),
    ("whole_seconds", "registered_at is of type datetime, which"),
    ("timestamp", "registered_at is of type timestamp(6), which"),
    ("missing_default", "the default of the column registered_at is not"),
    ("default_in_the_session_s_zone", "the default of the column registered_at is not"),
    ("default_of_whole_seconds", "the default of the column registered_at is not"),
    ("constant_default", "the default of the column registered_at is not"),
    ("generated_column", "fingerprint is generated"),
    ("required_extra_column", "the further column tenant is NOT NULL without a default"),
    ("auto_increment_column", "the further column id is AUTO_INCREMENT"),
    ("check", "the check refuses can refuse"),
    ("check_of_a_column", "the check "),
    ("foreign_key", "the foreign key refers can refuse"),
    ("trigger_that_changes", "the trigger changes can"),
    ("trigger_after_a_delete", "the trigger notes can"),
    ("missing_table", "does not exist"),
    ("myisam", "its engine is MyISAM"),
    ("range_partitions", "it is partitioned"),
    ("key_partitions", "it is partitioned"),
    ("view", "not an ordinary table but a view"),
    ("newer_version", "the table is of version 2"),
];

/// What only MariaDB has.
const OF_MARIADB: &[(&str, &str)] = &[
    ("ALTER TABLE inbox ENGINE = MEMORY", "its engine is MEMORY"),
    ("ALTER TABLE inbox ENGINE = Aria", "its engine is Aria"),
    ("DROP TABLE inbox; CREATE SEQUENCE inbox", "not an ordinary table but a sequence"),
    ("ALTER TABLE inbox ADD SYSTEM VERSIONING", "not an ordinary table but a system versioned one"),
    (
        "ALTER TABLE inbox ADD a DATE NOT NULL DEFAULT '2020-01-01', ADD b DATE NOT NULL DEFAULT '2030-01-01', \
         ADD PERIOD FOR p (a, b), DROP PRIMARY KEY, ADD PRIMARY KEY (consumer, message_id, p WITHOUT OVERLAPS)",
        "the primary key is not",
    ),
];

/// What only MySQL has.
const OF_MYSQL: &[(&str, &str)] = &[
    (
        "ALTER TABLE inbox ADD UNIQUE KEY folded ((LOWER(CONVERT(message_id USING utf8mb4))))",
        "index folded is not",
    ),
    ("ALTER TABLE inbox ADD CONSTRAINT later CHECK (event_type <> 'x') NOT ENFORCED", "the check later"),
];

/// What weakens the contract without breaking it.
const WARNED: &[(&str, &str)] = &[
    ("ALTER TABLE inbox COMMENT = ''", "names no version"),
    ("ALTER TABLE inbox COMMENT = 'letters'", "names no version"),
    ("ALTER TABLE inbox COMMENT = 'inbox schema 0'", "the table is of version 0"),
    ("ALTER TABLE inbox DROP KEY registered_at", "no index starts with registered_at"),
    (
        "ALTER TABLE inbox DROP KEY registered_at, ADD KEY (event_type, registered_at)",
        "no index starts with registered_at",
    ),
    (
        "CREATE TABLE child (c VARBINARY(100), m VARBINARY(255), CONSTRAINT refers FOREIGN KEY (c, m) REFERENCES inbox (consumer, message_id)) ENGINE = InnoDB",
        "refers of child refers to this table",
    ),
];

/// What is harmless, and so goes unmentioned.
const ACCEPTED: &[&str] = &[
    "ALTER TABLE inbox MODIFY consumer VARBINARY(200) NOT NULL, MODIFY message_id VARBINARY(500) NOT NULL",
    "ALTER TABLE inbox MODIFY fingerprint VARBINARY(16) NULL, MODIFY attempt VARBINARY(30) NULL",
    "ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (message_id, consumer)",
    "ALTER TABLE inbox ADD note TEXT, ADD at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, ADD size INT NOT NULL DEFAULT 0",
    "ALTER TABLE inbox ADD upper_type VARBINARY(255) GENERATED ALWAYS AS (CONCAT(event_type, '')) VIRTUAL",
    "ALTER TABLE inbox DROP KEY registered_at, ADD KEY (registered_at, event_type)",
    "ALTER TABLE inbox ROW_FORMAT = COMPRESSED",
    "CREATE TABLE other LIKE inbox; CREATE TRIGGER of_another BEFORE INSERT ON other FOR EACH ROW SET NEW.event_type = 'x'",
];

/// Makes a good table and an empty database besides, does the damage, and looks.
async fn verify_after(stand: &Stand, change: &[&str]) -> Result<SchemaReport, Error> {
    let mut conn = stand.connection().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(CONCAT(IF(table_type IN ('VIEW', 'SEQUENCE'), table_type, 'TABLE'), ' ', table_name) AS CHAR)
         FROM information_schema.tables
         WHERE table_schema = DATABASE()",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    run(&mut conn, "SET foreign_key_checks = 0").await;
    for table in tables {
        run(&mut conn, &format!("DROP {table}")).await;
    }
    stand.store.create_schema().await.unwrap();
    for sql in change {
        run(&mut conn, sql).await;
    }
    conn.close().await.unwrap();
    stand.store.verify().await
}

async fn expect_refusal(stand: &Stand, name: &str, damage: &[&str], expected: &str) {
    let error = verify_after(stand, damage).await.expect_err(name);
    assert_eq!(error.kind(), ErrorKind::Schema, "{name}");
    assert!(error.to_string().contains(expected), "{name}\n{error}\nexpected: {expected}");
}

async fn r16_every_damage_is_refused_and_named(stand: Stand) {
    let damages = damages();
    assert_eq!(damages.len(), REFUSALS.len());
    for Damage { name, sql, .. } in &damages {
        let (_, expected) = REFUSALS.iter().find(|(of, _)| of == name).expect(name);
        let sql: Vec<&str> = sql.iter().map(String::as_str).collect();
        expect_refusal(&stand, name, &sql, expected).await;
    }
    for (damage, expected) in if stand.is_mysql() { OF_MYSQL } else { OF_MARIADB } {
        expect_refusal(&stand, damage, &[damage], expected).await;
    }
}

/// The test servers flush nothing, which is a warning of its own.
fn of_the_table(report: &SchemaReport) -> Vec<&str> {
    report
        .warnings()
        .filter(|warning| !warning.starts_with("innodb_") && !warning.starts_with("sync_binlog"))
        .collect()
}

async fn r16_what_weakens_the_contract_is_a_warning(stand: Stand) {
    for (change, expected) in WARNED {
        let report = verify_after(&stand, &[change]).await.expect(change);
        let warnings = of_the_table(&report);
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{change}: {warnings:?}");
    }
    let unused = if stand.is_mysql() { "INVISIBLE" } else { "IGNORED" };
    let change = format!("ALTER TABLE inbox ALTER INDEX registered_at {unused}");
    let report = verify_after(&stand, &[&change]).await.unwrap();
    assert!(of_the_table(&report)[0].contains("no index starts with registered_at"), "{report:?}");
}

async fn r16_what_is_harmless_is_accepted(stand: Stand) {
    for change in ACCEPTED {
        let report = verify_after(&stand, &[change]).await.expect(change);
        assert!(of_the_table(&report).is_empty(), "{change}: {report:?}");
    }
}

async fn r16_missing_rights_are_refused(stand: Stand) {
    let (options, account) = stand.account("").await;
    let verify = async || {
        let pool = MySqlPoolOptions::new()
            .connect_with(options.clone().database("information_schema"))
            .await
            .unwrap();
        MySqlStore::on_table(pool, stand.store.table().clone()).verify().await.unwrap_err().to_string()
    };
    let error = verify().await;
    assert!(error.contains("does not exist, or this account has no right on it"), "{error}");

    stand.sql(&format!("GRANT SELECT (consumer), INSERT (message_id) ON inbox TO {account}")).await;
    let error = verify().await;
    assert!(error.contains("may not SELECT the column message_id"), "{error}");
    assert!(error.contains("may not INSERT the column consumer"), "{error}");
    for held in
        ["SELECT the column consumer", "INSERT the column message_id", "INSERT the column registered_at"]
    {
        assert!(!error.contains(held), "{error}");
    }
    stand.sql(&format!("DROP USER {account}")).await;
}

async fn r16_a_trigger_that_the_account_may_not_see_is_refused_or_warned_of(stand: Stand) {
    stand.sql("CREATE TRIGGER changes BEFORE INSERT ON inbox FOR EACH ROW SET NEW.event_type = 'x'").await;
    let (options, account) = stand.account("").await;
    stand.sql(&format!("GRANT SELECT, INSERT ON inbox TO {account}")).await;
    let verify = async || {
        let pool = MySqlPoolOptions::new().connect_with(options.clone()).await.unwrap();
        MySqlStore::open(pool.clone()).await?;
        MySqlStore::new(pool)?.verify().await
    };
    match verify().await {
        Ok(report) => {
            assert!(report.warnings().any(|text| text.contains("triggers may go unseen")), "{report:?}");
        }
        // Newer MariaDBs show it.
        Err(error) => assert!(error.to_string().contains("the trigger changes"), "{error}"),
    }
    stand.sql(&format!("GRANT TRIGGER ON inbox TO {account}")).await;
    let error = verify().await.unwrap_err().to_string();
    assert!(error.contains("the trigger changes"), "{error}");
    stand.sql(&format!("DROP USER {account}")).await;
}

async fn r16_a_read_only_session_is_refused_and_an_open_one_is_a_warning(stand: Stand) {
    let inbox = stand.inbox_on_one("SET SESSION TRANSACTION READ ONLY").await;
    let error = inbox.store().verify().await.unwrap_err().to_string();
    assert!(error.contains("transactions are read-only by default"), "{error}");

    let inbox = stand.inbox_on_one("SET autocommit = 0").await;
    let report = inbox.store().verify().await.unwrap();
    assert!(report.warnings().any(|warning| warning.starts_with("autocommit is off")), "{report:?}");
}

/// Also one that would keep the contract within its session.
async fn r16_a_temporary_table_in_its_place_is_refused(stand: Stand) {
    let ddl = inbox_mysql::ddl(&TableName::new(stand.database.name(), "inbox").unwrap());
    let temporary = ddl.replace("CREATE TABLE", "CREATE TEMPORARY TABLE");
    let inbox = stand.inbox_on_one("DO 0").await;
    run(&mut inbox.store().pool().acquire().await.unwrap(), &temporary).await;
    let error = inbox.store().verify().await.unwrap_err().to_string();
    assert!(error.contains("a temporary table of this session"), "{error}");
    stand.store.verify().await.unwrap();
}

async fn r15_verifying_leaves_the_session_as_it_was(stand: Stand) {
    let inbox = stand.inbox_on_one("DO 0").await;
    let settings = if stand.is_mysql() {
        "SELECT CAST(CONCAT(variable_name, '=', variable_value) AS CHAR) FROM performance_schema.session_variables ORDER BY variable_name"
    } else {
        "SELECT CAST(CONCAT(variable_name, '=', variable_value) AS CHAR) FROM information_schema.session_variables ORDER BY variable_name"
    };
    let look = async || {
        let rows: Vec<String> = sqlx::query_scalar(settings).fetch_all(inbox.store().pool()).await.unwrap();
        // These are of the statement and of the clock.
        let of_the_moment = ["timestamp=", "rand_seed", "last_", "pseudo_", "statement_id"];
        rows.into_iter()
            .filter(|row| !of_the_moment.iter().any(|name| row.to_lowercase().starts_with(name)))
            .collect::<Vec<_>>()
    };
    let before = look().await;
    inbox.store().verify().await.unwrap();
    let changed: Vec<String> = look().await.into_iter().filter(|row| !before.contains(row)).collect();
    assert!(changed.is_empty(), "{changed:?}");
}

/// With names in lower case, and asked for in another.
async fn r16_a_servers_settings_are_read(stand: Stand) {
    if skip_requested(stand.wanted.own_stand()) {
        eprintln!("skipped, as INBOX_TEST_SKIP asks");
        return;
    }
    let server = MySqlOptions::new(stand.wanted)
        .setting("log-bin", "binlog")
        .setting("server-id", "1")
        .setting("lower-case-table-names", "1")
        .start()
        .await
        .unwrap();
    let database = server.fresh_database().await.unwrap();
    let pool = MySqlPoolOptions::new().connect(database.url()).await.unwrap();
    let table = TableName::new(database.name(), "Letters").unwrap();
    let store = MySqlStore::on_table(pool.clone(), table);
    store.create_schema().await.unwrap();
    store.create_schema().await.unwrap();

    let report = store.verify().await.unwrap();
    let warnings: Vec<&str> = report.warnings().collect();
    for expected in [
        "innodb_flush_log_at_trx_commit is 0",
        "sync_binlog is 0, and after a crash",
        "innodb_doublewrite is off",
    ] {
        assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{expected}: {warnings:?}");
    }
    assert_eq!(warnings.len(), 3, "{warnings:?}");

    let mut root = pool.acquire().await.unwrap();
    run(&mut root, "SET GLOBAL read_only = ON").await;
    let error = store.verify().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("the server is read-only"), "{error}");
}
