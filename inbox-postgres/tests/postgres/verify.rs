//! What `verify` refuses, each damage done to a good table (R16).

use inbox_core::{Error, ErrorKind, SchemaReport, TableName};
use inbox_postgres::PostgresStore;
use sqlx::postgres::PgPoolOptions;

use crate::stand::{Stand, run};

/// Damage to the table `t` of the current schema, and what the refusal says of it.
const REFUSED: &[(&str, &str)] = &[
    ("DROP TABLE t", "does not exist"),
    ("ALTER TABLE t RENAME TO t2; CREATE VIEW t AS TABLE t2", "not an ordinary table"),
    (
        "DROP TABLE t; CREATE TABLE t (consumer text, message_id text, event_type text NOT NULL, fingerprint bytea, registered_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, message_id)) PARTITION BY HASH (message_id)",
        "not an ordinary table",
    ),
    ("CREATE TABLE child () INHERITS (t)", "inherits or is inherited from"),
    ("ALTER TABLE t SET UNLOGGED", "unlogged"),
    ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "row level security"),
    (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER swallow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "the trigger swallow",
    ),
    ("CREATE RULE swallow AS ON INSERT TO t DO INSTEAD NOTHING", "the rule swallow"),
    ("ALTER TABLE t DROP COLUMN fingerprint", "the column fingerprint is missing"),
    (
        "ALTER TABLE t ALTER registered_at TYPE timestamp",
        "registered_at is of type timestamp without time zone",
    ),
    ("ALTER TABLE t ALTER message_id TYPE char(255)", "message_id is of type character(255)"),
    (
        "ALTER TABLE t ALTER message_id TYPE varchar(254) COLLATE \"C\"",
        "message_id is of type character varying(254), too narrow",
    ),
    (
        "ALTER TABLE t ALTER consumer TYPE varchar(99) COLLATE \"C\"",
        "consumer is of type character varying(99), too narrow",
    ),
    ("CREATE DOMAIN d AS text; ALTER TABLE t ALTER message_id TYPE d", "d, which changes"),
    ("ALTER TABLE t ALTER event_type DROP NOT NULL", "event_type may be NULL"),
    ("ALTER TABLE t ALTER fingerprint SET NOT NULL", "fingerprint is NOT NULL"),
    (
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false); ALTER TABLE t ALTER message_id TYPE text COLLATE loose",
        "collation of the column message_id is nondeterministic",
    ),
    (
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false); ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX ON t (consumer, message_id COLLATE loose)",
        "no unique index decides",
    ),
    (
        "ALTER TABLE t DROP fingerprint, ADD fingerprint bytea GENERATED ALWAYS AS ('x') STORED",
        "fingerprint is generated",
    ),
    ("ALTER TABLE t ALTER registered_at DROP DEFAULT", "registered_at has no default"),
    ("ALTER TABLE t ADD tenant int NOT NULL", "the further column tenant is NOT NULL"),
    (
        "ALTER TABLE t ADD id int GENERATED ALWAYS AS IDENTITY",
        "the further column id is an integer fed by a sequence",
    ),
    ("ALTER TABLE t ADD id serial", "the further column id is an integer fed by a sequence"),
    ("ALTER TABLE t DROP CONSTRAINT t_pkey", "no unique index decides"),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (consumer, message_id, registered_at)",
        "no unique index decides",
    ),
    ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (message_id)", "no unique index decides"),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (consumer, message_id) DEFERRABLE",
        "no unique index decides",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX ON t (consumer, message_id) WHERE event_type <> ''",
        "no unique index decides",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX ON t (consumer, lower(message_id))",
        "no unique index decides",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE INDEX ON t (consumer, message_id)",
        "no unique index decides",
    ),
    (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_pkey'::regclass",
        "no unique index decides",
    ),
    ("ALTER TABLE t ADD UNIQUE (event_type)", "t_event_type_key is not the key"),
    ("ALTER TABLE t ADD EXCLUDE USING btree (event_type WITH =)", "t_event_type_excl is not the key"),
    (
        "CREATE TABLE type (name text PRIMARY KEY); ALTER TABLE t ADD FOREIGN KEY (event_type) REFERENCES type",
        "the foreign key t_event_type_fkey",
    ),
    ("ALTER TABLE t ADD CHECK (event_type <> 'x')", "the check t_event_type_check"),
    ("COMMENT ON TABLE t IS 'inbox schema 2'", "the table is of version 2"),
];

/// What weakens the contract without breaking it.
const WARNED: &[(&str, &str)] = &[
    ("COMMENT ON TABLE t IS NULL", "names no version"),
    ("COMMENT ON TABLE t IS 'inbox schema 0'", "the table is of version 0"),
    ("CREATE TABLE r (c text, m text, FOREIGN KEY (c, m) REFERENCES t)", "forgetting and purging can fail"),
];

/// What is harmless, and so goes unmentioned.
const ACCEPTED: &[&str] = &[
    "ALTER TABLE t ALTER message_id TYPE varchar(255) COLLATE \"C\"",
    "ALTER TABLE t ALTER message_id TYPE text COLLATE \"en-x-icu\"",
    "ALTER TABLE t ADD note text, ADD id bigint GENERATED ALWAYS AS IDENTITY, ADD at timestamptz NOT NULL DEFAULT now()",
    "ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX ON t (message_id, consumer) INCLUDE (event_type)",
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER off BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f(); ALTER TABLE t DISABLE TRIGGER off",
    "CREATE INDEX ON t (registered_at)",
];

/// Makes a good table in a schema of its own, damages it, and looks.
async fn verify_after(stand: &Stand, number: usize, damage: &str) -> Result<SchemaReport, Error> {
    let schema = format!("case_{number}");
    let store = PostgresStore::new(stand.pool.clone()).with_table(TableName::new(&schema, "t").unwrap());
    store.create_schema().await.unwrap();
    let mut conn = stand.pool.acquire().await.unwrap();
    run(&mut conn, &format!("SET search_path = {schema}")).await;
    run(&mut conn, damage).await;
    run(&mut conn, "RESET search_path").await;
    store.verify().await
}

#[tokio::test]
async fn r16_every_damage_is_refused_and_named() {
    let Some(stand) = Stand::new().await else { return };
    for (number, (damage, expected)) in REFUSED.iter().enumerate() {
        let error = verify_after(&stand, number, damage).await.expect_err(damage);
        assert_eq!(error.kind(), ErrorKind::Schema, "{damage}");
        assert!(error.to_string().contains(expected), "{damage}\n{error}\nexpected: {expected}");
    }
}

#[tokio::test]
async fn r16_what_weakens_the_contract_is_a_warning() {
    let Some(stand) = Stand::new().await else { return };
    for (number, (change, expected)) in WARNED.iter().enumerate() {
        let report = verify_after(&stand, number, change).await.expect(change);
        assert!(report.warnings().any(|warning| warning.contains(expected)), "{change}: {report:?}");
    }
    let asynchronous = stand.inbox_with(&[("synchronous_commit", "off")], 1).await;
    let report = asynchronous.store().verify().await.unwrap();
    assert!(report.warnings().any(|warning| warning.contains("synchronous_commit is off")), "{report:?}");
}

#[tokio::test]
async fn r16_what_is_harmless_is_accepted() {
    let Some(stand) = Stand::new().await else { return };
    for (number, change) in ACCEPTED.iter().enumerate() {
        let report = verify_after(&stand, number, change).await.expect(change);
        let warnings: Vec<_> = report.warnings().filter(|warning| !warning.starts_with("fsync")).collect();
        assert!(warnings.is_empty(), "{change}: {warnings:?}");
    }
}

#[tokio::test]
async fn r16_a_temporary_table_is_refused() {
    let Some(stand) = Stand::new().await else { return };
    let pool = stand.inbox_with(&[], 1).await.store().pool().clone();
    run(&mut pool.acquire().await.unwrap(), "CREATE TEMP TABLE inbox (LIKE public.inbox INCLUDING ALL)")
        .await;
    let schema: String =
        sqlx::query_scalar("SELECT pg_my_temp_schema()::regnamespace::text").fetch_one(&pool).await.unwrap();
    let store = PostgresStore::new(pool).with_table(TableName::new(&schema, "inbox").unwrap());
    assert!(store.verify().await.unwrap_err().to_string().contains("it is temporary"));
}

#[tokio::test]
async fn r16_missing_rights_and_a_read_only_session_are_refused() {
    let Some(stand) = Stand::new().await else { return };
    stand.sql("CREATE SCHEMA app; CREATE TABLE app.inbox (LIKE public.inbox INCLUDING ALL)").await;
    let table = TableName::new("app", "inbox").unwrap();
    let store = stand.inbox_with(&[("role", "pg_monitor")], 1).await.store().clone().with_table(table);
    let error = store.verify().await.unwrap_err().to_string();
    for expected in [
        "no USAGE on the schema app",
        "may not SELECT the column consumer",
        "may not INSERT the column message_id",
    ] {
        assert!(error.contains(expected), "{error}");
    }
    assert!(!error.contains("INSERT the column registered_at"), "{error}");

    let read_only = stand.inbox_with(&[("default_transaction_read_only", "on")], 1).await;
    let error = read_only.store().verify().await.unwrap_err().to_string();
    assert!(error.contains("read-only by default"), "{error}");
}

#[tokio::test]
async fn r16_a_session_that_does_not_speak_utf8_is_refused() {
    let Some(stand) = Stand::new().await else { return };
    let pool = PgPoolOptions::new()
        .after_connect(|conn, _| {
            Box::pin(
                async move { sqlx::raw_sql("SET client_encoding = 'LATIN1'").execute(conn).await.map(drop) },
            )
        })
        .connect_with((*stand.pool.connect_options()).clone())
        .await
        .unwrap();
    let error = PostgresStore::open(pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("client_encoding is LATIN1"), "{error}");
}

#[tokio::test]
async fn r16_a_database_that_cannot_hold_every_id_is_refused() {
    let Some(stand) = Stand::new().await else { return };
    let database: String =
        sqlx::query_scalar("SELECT current_database()").fetch_one(&stand.pool).await.unwrap();
    let name = format!("{database}_latin");
    stand.sql(&format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")).await;
    let options = (*stand.pool.connect_options()).clone().database(&name);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let store = PostgresStore::new(pool.clone());
    store.create_schema().await.unwrap();
    let error = store.verify().await.unwrap_err().to_string();
    pool.close().await;
    stand.sql(&format!("DROP DATABASE {name}")).await;
    assert!(error.contains("encoding is LATIN1"), "{error}");
}
