//! Creating the table, its text, and the rights on it.

use std::time::Duration;

use inbox_core::{DEFAULT_WAIT, ErrorKind, Inbox, TableName};
use inbox_mysql::{Account, MySqlStore, ddl, grants, operator_grants};
use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::stand::{Stand, consumer, eventually, kind, message, on_each_server, run, session, show, try_run};

on_each_server![
    r15_many_processes_may_create_the_schema_at_once,
    r15_a_table_that_is_there_is_verified_and_left_as_it_is,
    r15_creating_the_schema_leaves_nothing_in_the_pool_and_commits_nothing,
    r06_creating_the_schema_waits_no_longer_than_the_store,
    an_account_with_create_on_the_table_alone_may_create_it,
    a_pool_of_a_missing_database_is_told_what_to_do,
    the_text_of_the_ddl_may_be_run_again_and_is_what_create_schema_runs,
    the_grants_let_an_account_register_and_nothing_else,
];

/// A database beside the stand's own, which is not there yet.
fn beside(stand: &Stand) -> TableName {
    TableName::new(&format!("{}_app", stand.database.name()), "inbox").unwrap()
}

async fn remove(stand: &Stand, table: &TableName) {
    stand.sql(&format!("DROP DATABASE {}", table.schema())).await;
}

async fn pool(options: MySqlConnectOptions) -> MySqlPool {
    MySqlPoolOptions::new().max_connections(2).connect_with(options).await.unwrap()
}

async fn r15_many_processes_may_create_the_schema_at_once(stand: Stand) {
    // Connections that are there already, so that the sessions meet.
    let mut connections = Vec::new();
    for _ in 0..10 {
        connections.push(stand.pool.acquire().await.unwrap());
    }
    drop(connections);
    eventually("the pool has them back", async || stand.pool.num_idle() >= 10).await;

    let store = MySqlStore::on_table(stand.pool.clone(), beside(&stand));
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.create_schema().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    store.verify().await.unwrap();
    remove(&stand, store.table()).await;
}

async fn r15_a_table_that_is_there_is_verified_and_left_as_it_is(stand: Stand) {
    stand.sql("ALTER TABLE inbox COMMENT = ''").await;
    stand.store.create_schema().await.unwrap();
    let named = "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_comment LIKE 'inbox%'";
    assert_eq!(stand.ask(named).await, 0, "whose comment it is, is not ours to say");

    for (damage, detail) in [
        ("ALTER TABLE inbox COMMENT = 'inbox schema 2'", "version 2"),
        ("ALTER TABLE inbox DROP PRIMARY KEY", "the primary key is not"),
        ("DROP TABLE inbox; CREATE TABLE inbox (letter TEXT)", "the column message_id is missing"),
    ] {
        stand.sql(damage).await;
        let error = stand.store.create_schema().await.expect_err(damage);
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains(detail), "{error}");
    }
}

/// B14: DDL would commit what somebody left open on the connection.
async fn r15_creating_the_schema_leaves_nothing_in_the_pool_and_commits_nothing(stand: Stand) {
    for (number, left) in ["BEGIN", "SET autocommit = 0"].into_iter().enumerate() {
        let one = stand.inbox_on_one("DO 0").await;
        let table = TableName::new(stand.database.name(), &format!("inbox_{number}")).unwrap();
        let store = one.store().clone().with_table(table);
        let mut conn = store.pool().acquire().await.unwrap();
        let before = show(&mut conn, "CONCAT(@@lock_wait_timeout, ' ', @@innodb_lock_wait_timeout)").await;
        run(&mut conn, left).await;
        crate::stand::effect(&mut conn).await;
        drop(conn);

        store.create_schema().await.unwrap();
        assert_eq!(stand.effects().await, 0, "{left}");
        let mut conn = store.pool().acquire().await.unwrap();
        let after = show(&mut conn, "CONCAT(@@lock_wait_timeout, ' ', @@innodb_lock_wait_timeout)").await;
        assert_eq!(after, before);
    }
}

/// A DROP DATABASE that waits for a reader holds the name of the database meanwhile.
async fn r06_creating_the_schema_waits_no_longer_than_the_store(stand: Stand) {
    let table = beside(&stand);
    let database = table.schema().clone();
    stand.sql(&format!("CREATE DATABASE {database}; CREATE TABLE {database}.other (a INT)")).await;
    let mut reader = stand.connection().await;
    run(&mut reader, &format!("BEGIN; SELECT * FROM {database}.other")).await;
    let mut dropper = stand.connection().await;
    let dropping = session(&mut dropper).await;
    let drop_database = format!("DROP DATABASE {database}");
    let dropped = tokio::spawn(async move { try_run(&mut dropper, &drop_database).await });
    stand.until_waiting_for_metadata(dropping).await;

    let store = MySqlStore::on_table(stand.pool.clone(), table).with_wait(Duration::from_millis(300));
    let created = tokio::time::timeout(DEFAULT_WAIT, store.create_schema()).await.expect("no endless wait");
    let error = created.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("300ms"), "{error}");

    run(&mut reader, "ROLLBACK").await;
    dropped.await.unwrap().unwrap();
    let store = store.with_wait(DEFAULT_WAIT);
    store.create_schema().await.unwrap();
    remove(&stand, store.table()).await;
}

async fn an_account_with_create_on_the_table_alone_may_create_it(stand: Stand) {
    let (options, account) = stand.account("").await;
    let table = beside(&stand);
    let database = table.schema().clone();
    let store =
        MySqlStore::on_table(pool(options.clone().database("information_schema")).await, table.clone());
    let error = store.create_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("CREATE on the database"), "{error}");

    stand.sql(&format!("CREATE DATABASE {database}; CREATE TABLE {database}.other (a INT); GRANT SELECT ON {database}.other TO {account}")).await;
    let error = store.create_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("CREATE on the table"), "{error}");

    stand.sql(&format!("GRANT CREATE, SELECT, INSERT ON {database}.inbox TO {account}")).await;
    let store = MySqlStore::on_table(pool(options.database("information_schema")).await, table);
    store.create_schema().await.unwrap();
    store.create_schema().await.unwrap();
    store.verify().await.unwrap();
    remove(&stand, store.table()).await;
    stand.sql(&format!("DROP USER {account}")).await;
}

async fn a_pool_of_a_missing_database_is_told_what_to_do(stand: Stand) {
    let options = stand.options().database("inbox_test_of_nobody");
    let pool = MySqlPoolOptions::new().connect_lazy_with(options);
    let error = MySqlStore::new(pool).unwrap().create_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("leave it out of the URL"), "{error}");
}

async fn the_text_of_the_ddl_may_be_run_again_and_is_what_create_schema_runs(stand: Stand) {
    let store = stand.store.clone().with_table(TableName::new(stand.database.name(), "letters").unwrap());
    stand.sql(&ddl(store.table())).await;
    stand.sql(&ddl(store.table())).await;
    store.create_schema().await.unwrap();
    store.verify().await.unwrap();
}

async fn the_grants_let_an_account_register_and_nothing_else(stand: Stand) {
    let (options, name) = stand.account("").await;
    let account = Account::new(options.get_username(), "127.0.0.1").unwrap();
    assert_eq!(account.to_string(), name);
    stand.sql(&grants(stand.store.table(), &account)).await;
    let inbox = Inbox::new(MySqlStore::open(pool(options.clone()).await).await.unwrap(), consumer());

    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    assert!(!tx.register_if_new(&message("m")).await.unwrap().is_new());
    assert!(tx.register_batch(&[message("n")]).await.unwrap()[0].is_new());
    assert!(!tx.register_batch(&[message("m"), message("o")]).await.unwrap()[0].is_new());
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 3);
    assert!(inbox.find(message("m").id()).await.unwrap().is_some());
    // What tells, after DDL, whether a registration was committed.
    let mut tx = inbox.begin().await.unwrap();
    tx.register_if_new(&message("p")).await.unwrap();
    run(&mut tx, "COMMIT").await;
    assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost);

    let mut conn = inbox.store().pool().acquire().await.unwrap();
    for forbidden in [
        "DELETE FROM inbox",
        "UPDATE inbox SET event_type = 'x'",
        "TRUNCATE inbox",
        "INSERT INTO inbox (consumer, message_id, event_type, registered_at) VALUES ('c', 'm', 't', '1970-01-01')",
    ] {
        assert!(try_run(&mut conn, forbidden).await.is_err(), "{forbidden}");
    }
    drop(conn);
    assert_eq!(kind(inbox.forget(message("m").id()).await), ErrorKind::Schema);

    // Anew, without rights.
    let (options, _) = stand.account("").await;
    stand.sql(&operator_grants(stand.store.table(), &account)).await;
    let inbox = Inbox::new(MySqlStore::new(pool(options).await).unwrap(), consumer());
    assert!(inbox.forget(message("m").id()).await.unwrap());
    assert!(inbox.find(message("m").id()).await.unwrap().is_none());
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(kind(tx.register_if_new(&message("q")).await), ErrorKind::Schema);
    drop(tx);
    stand.sql(&format!("DROP USER {name}")).await;
}
