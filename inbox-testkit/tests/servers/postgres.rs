//! PostgreSQL and PgBouncer.

use inbox_testkit::servers::{
    Database, PgBouncer, PgBouncerOptions, PostgresOptions, PostgresServer, ServerError, Wanted,
};
use sqlx::{Connection, PgConnection};

use crate::common::{Child, Result, eventually, needs, report, runs, task};

async fn connect(database: &Database) -> Result<PgConnection, sqlx::Error> {
    PgConnection::connect(database.url()).await
}

async fn exists(server: &PostgresServer, database: &str) -> Result<bool, sqlx::Error> {
    let mut connection = PgConnection::connect(server.url()).await?;
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(database)
        .fetch_one(&mut connection)
        .await
}

#[tokio::test]
async fn the_shared_server_is_started_once() -> Result {
    needs!("postgres");
    let (one, other) = tokio::join!(PostgresServer::shared(Wanted::Any), PostgresServer::shared(Wanted::Any));
    let (one, other) = (one?, other?);
    assert_eq!(one.url(), other.url());
    assert!(one.version().starts_with(&one.major().to_string()));
    Ok(())
}

#[tokio::test]
async fn the_major_version_is_the_one_asked_for() -> Result {
    needs!("postgres_18");
    let server = PostgresServer::shared(Wanted::Major(18)).await?;
    let database = server.fresh_database().await?;
    let version: String =
        sqlx::query_scalar("SHOW server_version").fetch_one(&mut connect(&database).await?).await?;
    assert_eq!((server.major(), server.version()), (18, version.as_str()));
    Ok(())
}

#[tokio::test]
async fn fresh_databases_are_independent() -> Result {
    needs!("postgres");
    let server = PostgresServer::shared(Wanted::Any).await?;
    let (one, other) = tokio::join!(server.fresh_database(), server.fresh_database());
    let (one, other) = (one?, other?);

    let mut connection = connect(&one).await?;
    sqlx::raw_sql("CREATE TABLE public.mark (id int)").execute(&mut connection).await?;

    let seen: Option<String> = sqlx::query_scalar("SELECT to_regclass('public.mark')::text")
        .fetch_one(&mut connect(&other).await?)
        .await?;
    assert_eq!(seen, None);
    Ok(())
}

#[tokio::test]
async fn a_dropped_database_is_removed_with_its_connections() -> Result {
    needs!("postgres");
    let server = PostgresServer::shared(Wanted::Any).await?;
    let database = server.fresh_database().await?;
    let name = database.name().to_owned();
    let mut open = connect(&database).await?;

    drop(database);

    eventually("the database is removed", async || !exists(&server, &name).await.expect("an answer")).await;
    assert!(open.ping().await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_closed_database_is_removed_at_once() -> Result {
    needs!("postgres");
    let server = PostgresServer::shared(Wanted::Any).await?;
    let database = server.fresh_database().await?;
    let name = database.name().to_owned();

    database.close().await?;

    assert!(!exists(&server, &name).await?);
    Ok(())
}

#[test]
fn a_server_outlives_the_runtime_that_started_it() -> Result {
    needs!("postgres");
    for _ in 0..2 {
        // As each #[tokio::test] does.
        let runtime = tokio::runtime::Runtime::new()?;
        let answer = runtime.block_on(async {
            let database = PostgresServer::shared(Wanted::Any).await?.fresh_database().await?;
            let answer: i32 =
                sqlx::query_scalar("SELECT 42").fetch_one(&mut connect(&database).await?).await?;
            Result::<i32>::Ok(answer)
        })?;
        assert_eq!(answer, 42);
    }
    Ok(())
}

#[tokio::test]
async fn databases_of_a_dead_run_are_swept_and_those_of_a_living_one_kept() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    let server = PostgresOptions::new(Wanted::Any).start().await?;
    let mut connection = PgConnection::connect(server.url()).await?;
    for name in ["inbox_test_1_1_00000001", "inbox_test_of_somebody"] {
        let sql = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(sql).execute(&mut connection).await?;
    }
    let living = server.fresh_database().await?;

    let _another_run = PostgresServer::at(server.url()).await?;

    let dead = "inbox_test_1_1_00000001";
    eventually("the dead run's database is removed", async || {
        !exists(&server, dead).await.expect("an answer")
    })
    .await;
    assert!(exists(&server, living.name()).await?);
    assert!(exists(&server, "inbox_test_of_somebody").await?);
    Ok(())
}

#[tokio::test]
async fn a_run_whose_lock_was_lost_takes_it_again() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    let server = PostgresOptions::new(Wanted::Any).start().await?;
    let mut connection = PgConnection::connect(server.url()).await?;
    sqlx::raw_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
        .execute(&mut connection)
        .await?;

    let database = server.fresh_database().await?;

    let locks: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(locks, 1);
    database.close().await?;
    Ok(())
}

#[tokio::test]
async fn a_durable_server_keeps_fsync_and_takes_settings() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    let options = PostgresOptions::new(Wanted::Any).durable(true).setting("max_prepared_transactions", "3");
    let server = options.start().await?;
    let mut connection = PgConnection::connect(server.url()).await?;
    let seen: (String, String) =
        sqlx::query_as("SELECT current_setting('fsync'), current_setting('max_prepared_transactions')")
            .fetch_one(&mut connection)
            .await?;
    assert_eq!(seen, ("on".to_owned(), "3".to_owned()));
    Ok(())
}

#[tokio::test]
async fn a_setting_that_the_server_refuses_is_in_the_error() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    let outcome = PostgresOptions::new(Wanted::Any).setting("no_such_setting", "1").start().await;
    let error = outcome.expect_err("the server cannot start");
    assert!(matches!(error, ServerError::Start { .. }), "{error}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_stopped_server_leaves_no_process_and_no_folder() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    let server = PostgresOptions::new(Wanted::Any).start().await?;
    let (pid, folder) = (server.process_id().expect("a process"), server.folder().expect("a folder"));
    assert!(runs(pid) && folder.exists());

    server.stop().await;

    assert!(!runs(pid) && !folder.exists());
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_says_what_to_do() {
    let nowhere = std::env::temp_dir().join("inbox-no-such-folder");
    let outcome = PostgresOptions::new(Wanted::Major(18)).programs_in([nowhere]).start().await;
    let error = outcome.expect_err("nothing is there");
    assert!(matches!(error, ServerError::NotFound { .. }), "{error}");
    for hint in ["INBOX_TEST_POSTGRES_18_URL", "postgresql-18", "INBOX_TEST_SKIP=postgres_"] {
        assert!(error.to_string().contains(hint), "{hint} is not in: {error}");
    }
}

#[tokio::test]
async fn pgbouncer_hands_two_server_connections_to_many_clients() -> Result {
    needs!("postgres", "pgbouncer");
    let server = PostgresServer::shared(Wanted::Any).await?;
    let database = server.fresh_database().await?;
    let bouncer = PgBouncer::start(&server, PgBouncerOptions::new()).await?;
    assert!(bouncer.version().starts_with(|c: char| c.is_ascii_digit()), "{}", bouncer.version());

    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = PgConnection::connect(&bouncer.url_of(&database)).await?;
        sqlx::raw_sql("SELECT 1").execute(&mut client).await?;
        clients.push(client);
    }

    let sessions: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .fetch_one(&mut connect(&database).await?)
    .await?;
    assert!((1..=2).contains(&sessions), "{sessions} server connections");
    bouncer.stop().await;
    Ok(())
}

/// Not a test by itself: the tests below run it in a process of its own.
#[tokio::test]
async fn child() -> Result {
    let Some(task) = task() else { return Ok(()) };
    let started = match task.as_str() {
        "exit" => PostgresServer::shared(Wanted::Any).await,
        _ => PostgresOptions::new(Wanted::Any).start().await,
    };
    let server = report(started, PostgresServer::process_id, PostgresServer::folder)?;
    match task.as_str() {
        "wait" => std::future::pending().await,
        "panic" => panic!("as the parent asked"),
        _ => drop(server),
    }
    Ok(())
}

fn start_child(task: &str) -> Result<Child> {
    // A server given by URL would not be the child's own.
    Child::start("postgres::child", task, &[("INBOX_TEST_POSTGRES_URL", "")])
}

#[tokio::test]
async fn a_killed_process_leaves_no_server() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    let mut child = start_child("wait")?;
    let (pid, folder) = child.server()?;
    assert!(runs(pid) && folder.exists());

    child.kill()?;

    eventually("the server is gone", async || !runs(pid) && !folder.exists()).await;
    Ok(())
}

#[tokio::test]
async fn a_process_that_ends_leaves_no_server() -> Result {
    needs!("postgres", PostgresOptions::OWN);
    for task in ["exit", "panic"] {
        let mut child = start_child(task)?;
        let (pid, folder) = child.server()?;
        child.wait()?;
        eventually("the server is gone", async || !runs(pid) && !folder.exists()).await;
    }
    Ok(())
}
