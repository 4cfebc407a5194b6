//! MySQL and MariaDB: each test on every one of them.

use std::path::PathBuf;

use inbox_testkit::servers::{Flavour, MySqlDatabase, MySqlOptions, MySqlServer, MySqlWanted, ServerError};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::common::{Child, Result, eventually, needs, report, runs, task};

/// A test of each name below for every server, so that a failure names it.
macro_rules! on_every_server {
    ($($test:ident),+ $(,)?) => {
        on_every_server!(@ mariadb_10_11 MariaDb10_11 $($test)+);
        on_every_server!(@ mariadb_11_8 MariaDb11_8 $($test)+);
        on_every_server!(@ mysql MySql $($test)+);
    };
    (@ $module:ident $wanted:ident $($test:ident)+) => {
        mod $module {
            $(#[tokio::test]
            async fn $test() -> super::Result {
                super::$test(super::MySqlWanted::$wanted).await
            })+
        }
    };
}

on_every_server! {
    the_shared_server_is_started_once,
    the_server_is_the_one_asked_for,
    fresh_databases_are_independent,
    a_dropped_database_is_removed_with_its_connections,
    a_closed_database_is_removed_at_once,
    databases_of_a_dead_run_are_swept_and_those_of_a_living_one_kept,
    a_run_whose_lock_was_lost_takes_it_again,
    a_durable_server_flushes_and_takes_settings,
    a_setting_that_the_server_refuses_is_in_the_error,
    a_stopped_server_leaves_no_process_and_no_folder,
    a_killed_process_leaves_no_server,
    a_program_that_says_to_be_another_server_is_not_started,
}

async fn connect(database: &MySqlDatabase) -> Result<MySqlConnection, sqlx::Error> {
    MySqlConnection::connect(database.url()).await
}

async fn run(connection: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

async fn exists(server: &MySqlServer, database: &str) -> Result<bool, sqlx::Error> {
    let mut connection = MySqlConnection::connect(server.url()).await?;
    let found: i64 =
        sqlx::query_scalar("SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?")
            .bind(database)
            .fetch_one(&mut connection)
            .await?;
    Ok(found > 0)
}

async fn the_shared_server_is_started_once(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    // Spawned, as a test may do: its future has to be `Send`.
    let one = tokio::spawn(MySqlServer::shared(wanted));
    let other = tokio::spawn(MySqlServer::shared(wanted));
    assert_eq!(one.await??.url(), other.await??.url());
    Ok(())
}

async fn the_server_is_the_one_asked_for(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    let server = MySqlServer::shared(wanted).await?;
    let database = server.fresh_database().await?;

    let version: String =
        sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut connect(&database).await?).await?;

    assert_eq!(server.version(), version);
    let (major, minor) = server.release();
    assert!(version.starts_with(&format!("{major}.{minor}.")), "{version}");
    match wanted {
        MySqlWanted::MariaDb10_11 => {
            assert_eq!((server.flavour(), (major, minor)), (Flavour::MariaDb, (10, 11)))
        }
        MySqlWanted::MariaDb11_8 => {
            assert!(server.flavour() == Flavour::MariaDb && (major, minor) >= (11, 8))
        }
        _ => assert!(server.flavour() == Flavour::MySql && !version.contains("MariaDB"), "{version}"),
    }
    println!("{} {version}", server.flavour());
    Ok(())
}

async fn fresh_databases_are_independent(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    let server = MySqlServer::shared(wanted).await?;
    let (one, other) = tokio::join!(server.fresh_database(), server.fresh_database());
    let (one, other) = (one?, other?);

    run(&mut connect(&one).await?, "CREATE TABLE mark (id int)".to_owned()).await?;

    let seen = sqlx::query("SHOW TABLES").fetch_all(&mut connect(&other).await?).await?;
    assert!(seen.is_empty());
    Ok(())
}

async fn a_dropped_database_is_removed_with_its_connections(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    let server = MySqlServer::shared(wanted).await?;
    let database = server.fresh_database().await?;
    let name = database.name().to_owned();
    let mut open = connect(&database).await?;
    // A removal waits for the transactions that use a table, as long as they are there.
    run(&mut open, "CREATE TABLE mark (id int); START TRANSACTION; INSERT INTO mark VALUES (1)".to_owned())
        .await?;

    drop(database);

    eventually("the database is removed", async || !exists(&server, &name).await.expect("an answer")).await;
    assert!(open.ping().await.is_err());
    Ok(())
}

async fn a_closed_database_is_removed_at_once(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    let server = MySqlServer::shared(wanted).await?;
    let database = server.fresh_database().await?;
    let name = database.name().to_owned();

    database.close().await?;

    assert!(!exists(&server, &name).await?);
    Ok(())
}

async fn databases_of_a_dead_run_are_swept_and_those_of_a_living_one_kept(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    let server = MySqlServer::shared(wanted).await?;
    let mut connection = MySqlConnection::connect(server.url()).await?;
    let (dead, somebodys) = ("inbox_test_1_1_00000001", "inbox_test_of_somebody");
    for name in [dead, somebodys] {
        run(&mut connection, format!("CREATE DATABASE IF NOT EXISTS {name}")).await?;
    }
    let living = server.fresh_database().await?;

    let _another_run = MySqlServer::at(server.url()).await?;

    eventually("the dead run's database is removed", async || {
        !exists(&server, dead).await.expect("an answer")
    })
    .await;
    let kept = (exists(&server, living.name()).await?, exists(&server, somebodys).await?);
    run(&mut connection, format!("DROP DATABASE {somebodys}")).await?;
    assert_eq!(kept, (true, true));
    Ok(())
}

async fn a_run_whose_lock_was_lost_takes_it_again(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand());
    let server = MySqlServer::at(MySqlServer::shared(wanted).await?.url()).await?;
    let database = server.fresh_database().await?;
    let run_of_it = database.name().rsplit('_').next().ok_or("no run")?;
    let mut connection = MySqlConnection::connect(server.url()).await?;
    let owner = async |connection: &mut MySqlConnection| -> Result<Option<i64>, sqlx::Error> {
        sqlx::query_scalar("SELECT CAST(IS_USED_LOCK(?) AS SIGNED)")
            .bind(format!("inbox_test_{run_of_it}"))
            .fetch_one(connection)
            .await
    };
    let lost = owner(&mut connection).await?.ok_or("no lock")?;
    run(&mut connection, format!("KILL {lost}")).await?;

    let another = server.fresh_database().await?;

    let found = owner(&mut connection).await?;
    assert!(found.is_some_and(|owner| owner != lost), "{found:?} after {lost}");
    another.close().await?;
    Ok(())
}

async fn a_durable_server_flushes_and_takes_settings(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand(), wanted.own_stand());
    let options = MySqlOptions::new(wanted).durable(true).setting("innodb-lock-wait-timeout", "3");
    let server = options.start().await?;
    let mut connection = MySqlConnection::connect(server.url()).await?;
    let seen: (i64, i64, i64) = sqlx::query_as(
        "SELECT CAST(@@innodb_flush_log_at_trx_commit AS SIGNED), @@innodb_doublewrite IN ('1', 'ON'),
                CAST(@@innodb_lock_wait_timeout AS SIGNED)",
    )
    .fetch_one(&mut connection)
    .await?;
    assert_eq!(seen, (1, 1, 3));
    Ok(())
}

async fn a_setting_that_the_server_refuses_is_in_the_error(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand(), wanted.own_stand());
    let outcome = MySqlOptions::new(wanted).setting("no-such-setting", "1").start().await;
    let error = outcome.expect_err("the server cannot start");
    assert!(matches!(error, ServerError::Start { .. }), "{error}");
    assert!(error.to_string().contains("no-such-setting"), "{error}");
    Ok(())
}

async fn a_stopped_server_leaves_no_process_and_no_folder(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand(), wanted.own_stand());
    let server = MySqlOptions::new(wanted).start().await?;
    let (pid, folder) = (server.process_id().expect("a process"), server.folder().expect("a folder"));
    assert!(runs(pid) && folder.exists());

    server.stop().await;

    assert!(!runs(pid) && !folder.exists());
    Ok(())
}

async fn a_killed_process_leaves_no_server(wanted: MySqlWanted) -> Result {
    needs!(wanted.stand(), wanted.own_stand());
    let mut child = Child::start("mysql::child", &format!("wait {}", wanted.stand()), &[])?;
    let (pid, folder) = child.server()?;
    assert!(runs(pid) && folder.exists());

    child.kill()?;

    eventually("the server is gone", async || !runs(pid) && !folder.exists()).await;
    Ok(())
}

/// Not a test by itself: others run it in a process of its own.
#[tokio::test]
async fn child() -> Result {
    let Some(task) = task() else { return Ok(()) };
    let (task, stand) = task.split_once(' ').ok_or("no stand")?;
    let wanted =
        MySqlWanted::ALL.into_iter().find(|wanted| wanted.stand() == stand).ok_or("no such stand")?;
    let started = match task {
        "wait" => MySqlOptions::new(wanted).start().await,
        _ => MySqlServer::shared(wanted).await,
    };
    let _server = report(started, MySqlServer::process_id, MySqlServer::folder)?;
    std::future::pending().await
}

#[tokio::test]
async fn a_url_of_another_server_is_refused() -> Result {
    needs!("mariadb_10_11", "mysql");
    let mariadb = MySqlServer::shared(MySqlWanted::MariaDb10_11).await?;
    let mysql = MySqlServer::shared(MySqlWanted::MySql).await?;
    for (stand, variable, server) in [
        ("mysql", "INBOX_TEST_MYSQL_URL", &mariadb),
        ("mariadb_11_8", "INBOX_TEST_MARIADB_11_8_URL", &mariadb),
        ("mariadb_10_11", "INBOX_TEST_MARIADB_10_11_URL", &mysql),
    ] {
        let mut child =
            Child::start("mysql::child", &format!("shared {stand}"), &[(variable, server.url())])?;
        let error = child.line("error ")?;
        child.wait()?;
        for word in [variable, server.version(), &server.flavour().to_string()] {
            assert!(error.contains(word), "{word} is not in: {error}");
        }
    }
    Ok(())
}

async fn a_program_that_says_to_be_another_server_is_not_started(wanted: MySqlWanted) -> Result {
    let says = match wanted.flavour() {
        Flavour::MariaDb => "mysqld  Ver 8.4.6 for Linux on x86_64 (MySQL Community Server - GPL)",
        _ => "mysqld  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu on x86_64 (Debian 12)",
    };
    let folder = folder_with_mysqld(wanted.stand(), &format!("#!/bin/sh\necho '{says}'\n"))?;

    let outcome = MySqlOptions::new(wanted).programs_in([&folder]).start().await;

    std::fs::remove_dir_all(&folder)?;
    let error = outcome.expect_err("it is another server");
    assert!(matches!(error, ServerError::NotFound { .. }), "{error}");
    Ok(())
}

fn folder_with_mysqld(name: &str, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;

    let folder = std::env::temp_dir().join(format!("inbox-programs-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("mysqld");
    std::fs::write(&program, text)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_says_what_to_do() {
    let nowhere = std::env::temp_dir().join("inbox-no-such-folder");
    for (wanted, hints) in [
        (
            MySqlWanted::MariaDb11_8,
            ["INBOX_TEST_MARIADB_11_8_URL", "mariadb-server", "INBOX_TEST_SKIP=mariadb_11_8"],
        ),
        (MySqlWanted::MySql, ["INBOX_TEST_MYSQL_URL", "mysql-server", "INBOX_TEST_SKIP=mysql"]),
    ] {
        let error =
            MySqlOptions::new(wanted).programs_in([&nowhere]).start().await.expect_err("nothing is there");
        assert!(matches!(error, ServerError::NotFound { .. }), "{error}");
        for hint in hints.into_iter().chain(["cargo xtask servers"]) {
            assert!(error.to_string().contains(hint), "{hint} is not in: {error}");
        }
    }
}
