//! Creating the table, its text, and the rights on it.

use std::time::Duration;

use inbox_core::{DEFAULT_WAIT, ErrorKind, Identifier, Inbox, TableName};
use inbox_postgres::{PostgresStore, ddl, grants, operator_grants};

use crate::stand::{Stand, consumer, eventually, kind, message, run, try_run};

fn table(schema: &str) -> TableName {
    TableName::new(schema, "inbox").unwrap()
}

#[tokio::test]
async fn r15_many_processes_may_create_the_schema_at_once() {
    let Some(stand) = Stand::new().await else { return };
    // Connections that are there already, so that the sessions meet.
    let mut connections = Vec::new();
    for _ in 0..16 {
        connections.push(stand.pool.acquire().await.unwrap());
    }
    drop(connections);
    eventually("the pool has them back", async || stand.pool.num_idle() >= 16).await;

    let store = PostgresStore::new(stand.pool.clone()).with_table(table("app"));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.create_schema().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    store.verify().await.unwrap();
}

#[tokio::test]
async fn r15_a_table_that_is_there_is_verified_and_left_as_it_is() {
    let Some(stand) = Stand::new().await else { return };
    stand.sql("COMMENT ON TABLE inbox IS NULL").await;
    stand.store.create_schema().await.unwrap();
    let left = "SELECT count(*) FROM pg_description WHERE objoid = 'inbox'::regclass AND objsubid = 0";
    assert_eq!(stand.ask(left).await, 0, "whose comment it is, is not ours to say");

    for (damage, detail) in [
        ("COMMENT ON TABLE inbox IS 'inbox schema 2'", "version 2"),
        ("ALTER TABLE inbox DROP CONSTRAINT inbox_pkey", "no unique index decides"),
        ("DROP TABLE inbox; CREATE TABLE inbox (letter text)", "the column message_id is missing"),
    ] {
        stand.sql(damage).await;
        let error = stand.store.create_schema().await.expect_err(damage);
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains(detail), "{error}");
    }
}

#[tokio::test]
async fn r06_creating_the_schema_waits_no_longer_than_the_store() {
    let Some(stand) = Stand::new().await else { return };
    let store = PostgresStore::new(stand.pool.clone()).with_table(table("app"));
    for held in [
        "SELECT pg_advisory_xact_lock(('x' || encode('inboxddl', 'hex'))::bit(64)::bigint)",
        "CREATE SCHEMA app",
    ] {
        let mut holder = stand.pool.begin().await.unwrap();
        run(&mut holder, held).await;
        let store = store.clone().with_wait(Duration::from_millis(300));
        let created = tokio::time::timeout(DEFAULT_WAIT, store.create_schema()).await.expect(held);
        let error = created.expect_err(held);
        assert_eq!(error.kind(), ErrorKind::Busy, "{held}");
        assert!(error.to_string().contains("300ms"), "{error}");
    }
    store.create_schema().await.unwrap();
}

#[tokio::test]
async fn a_role_with_create_on_the_schema_alone_may_create_the_table() {
    let Some(stand) = Stand::new().await else { return };
    let role = stand.role("owner").await;
    let store = async || {
        let inbox = stand.inbox_with(&[("role", &role)], 1).await;
        inbox.store().clone().with_table(table("app"))
    };
    let error = store().await.create_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("CREATE on the database"), "{error}");

    stand.sql("CREATE SCHEMA app").await;
    let error = store().await.create_schema().await.unwrap_err();
    assert!(error.to_string().contains("CREATE on the schema"), "{error}");

    stand.sql(&format!("GRANT USAGE, CREATE ON SCHEMA app TO {role}")).await;
    let store = store().await;
    store.create_schema().await.unwrap();
    store.create_schema().await.unwrap();
    store.verify().await.unwrap();
    stand.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn the_text_of_the_ddl_may_be_run_again_and_is_what_create_schema_runs() {
    let Some(stand) = Stand::new().await else { return };
    let store = PostgresStore::new(stand.pool.clone()).with_table(table("app"));
    stand.sql(&ddl(store.table())).await;
    stand.sql(&ddl(store.table())).await;
    store.create_schema().await.unwrap();
    store.verify().await.unwrap();
}

#[tokio::test]
async fn the_grants_let_a_role_register_and_nothing_else() {
    let Some(stand) = Stand::new().await else { return };
    let store = PostgresStore::new(stand.pool.clone()).with_table(table("app"));
    store.create_schema().await.unwrap();
    let (app, operator) = (stand.role("app").await, stand.role("operator").await);
    stand.sql(&grants(store.table(), &Identifier::new(&*app).unwrap())).await;
    stand.sql(&operator_grants(store.table(), &Identifier::new(&*operator).unwrap())).await;

    let inbox = stand.inbox_with(&[("role", &app)], 2).await;
    let inbox = Inbox::new(inbox.store().clone().with_table(table("app")), consumer());
    inbox.store().verify().await.unwrap();
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    assert!(tx.register_batch(&[message("n")]).await.unwrap()[0].is_new());
    tx.commit().await.unwrap();
    for forbidden in [
        "DELETE FROM app.inbox",
        "UPDATE app.inbox SET event_type = 'x'",
        "INSERT INTO app.inbox (consumer, message_id, event_type, registered_at) VALUES ('c', 'm', 't', '1970-01-01')",
    ] {
        let mut conn = inbox.store().pool().acquire().await.unwrap();
        assert!(try_run(&mut conn, forbidden).await.is_err(), "{forbidden}");
    }
    assert_eq!(kind(inbox.forget(message("m").id()).await), ErrorKind::Schema);

    let inbox = stand.inbox_with(&[("role", &operator)], 2).await;
    let inbox = Inbox::new(inbox.store().clone().with_table(table("app")), consumer());
    assert!(inbox.forget(message("m").id()).await.unwrap());
    stand.sql(&format!("DROP OWNED BY {app}, {operator}; DROP ROLE {app}, {operator}")).await;
}
