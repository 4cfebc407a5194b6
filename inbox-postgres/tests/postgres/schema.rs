//! Creating the table, its text, and the rights on it.

use inbox_core::{ErrorKind, Identifier, Inbox, TableName};
use inbox_postgres::{PostgresStore, ddl, grants, operator_grants};

use crate::stand::{Stand, consumer, eventually, kind, message, run, try_run};

fn table(schema: &str) -> TableName {
    TableName::new(schema, "inbox").unwrap()
}

#[tokio::test]
async fn r15_many_processes_may_create_the_schema_at_once() {
    let stand = Stand::new().await;
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
async fn r15_a_table_that_is_not_the_inboxs_or_newer_is_left_alone() {
    let stand = Stand::new().await;
    for (comment, detail) in [
        ("NULL", "does not say that it is the inbox's"),
        ("'letters'", "does not say that it is the inbox's"),
        ("'inbox schema 2'", "version 2"),
    ] {
        stand.sql(&format!("COMMENT ON TABLE inbox IS {comment}")).await;
        let error = stand.store.create_schema().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains(detail), "{error}");
    }
}

#[tokio::test]
async fn the_text_of_the_ddl_may_be_run_again_and_is_what_create_schema_runs() {
    let stand = Stand::new().await;
    let store = PostgresStore::new(stand.pool.clone()).with_table(table("app"));
    stand.sql(&ddl(store.table())).await;
    stand.sql(&ddl(store.table())).await;
    store.create_schema().await.unwrap();
    store.verify().await.unwrap();
}

#[tokio::test]
async fn the_grants_let_a_role_register_and_nothing_else() {
    let stand = Stand::new().await;
    let store = PostgresStore::new(stand.pool.clone()).with_table(table("app"));
    store.create_schema().await.unwrap();
    let database: String =
        sqlx::query_scalar("SELECT current_database()").fetch_one(&stand.pool).await.unwrap();
    // Roles belong to the server, so these have the database's name in theirs.
    let (app, operator) = (format!("{database}_app"), format!("{database}_operator"));
    stand.sql(&format!("CREATE ROLE {app}; CREATE ROLE {operator}")).await;
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
    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, &format!("DROP OWNED BY {app}, {operator}; DROP ROLE {app}, {operator}")).await;
    tx.commit().await.unwrap();
}
