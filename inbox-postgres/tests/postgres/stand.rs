//! A fresh database with the inbox's table and a table for effects, and what tests ask a server.

use std::future::Future;
use std::time::{Duration, Instant};

use inbox_core::{Consumer, Error, ErrorKind, Inbox, Message, MessageId};
use inbox_postgres::PostgresStore;
use inbox_testkit::servers::{Database, PostgresServer, Wanted, skip_requested};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

pub(crate) struct Stand {
    pub(crate) pool: PgPool,
    pub(crate) store: PostgresStore,
    pub(crate) inbox: Inbox<PostgresStore>,
    database: Database,
}

impl Stand {
    /// None if the server is to be left out by request, and only then.
    pub(crate) async fn new() -> Option<Self> {
        if skip_requested(&Wanted::Any.stand()) {
            eprintln!("skipped, as INBOX_TEST_SKIP asks");
            return None;
        }
        let server = PostgresServer::shared(Wanted::Any).await.expect("a PostgreSQL server");
        let database = server.fresh_database().await.expect("a fresh database");
        let pool = PgPoolOptions::new().max_connections(20).connect(database.url()).await.expect("a pool");
        let store = PostgresStore::new(pool.clone());
        store.create_schema().await.expect("the schema");
        let stand = Self { inbox: Inbox::new(store.clone(), consumer()), pool, store, database };
        stand.sql("CREATE TABLE effect (id text NOT NULL)").await;
        Some(stand)
    }

    /// Another inbox, on a pool of its own with these options of the session.
    pub(crate) async fn inbox_with(
        &self,
        options: &[(&str, &str)],
        connections: u32,
    ) -> Inbox<PostgresStore> {
        let session: PgConnectOptions = self.database.url().parse().expect("a URL");
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(2))
            .connect_with(session.options(options.iter().copied()))
            .await
            .expect("a pool");
        Inbox::new(PostgresStore::new(pool), consumer())
    }

    /// A connection outside any pool.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(self.database.url()).await.expect("a connection")
    }

    /// Runs statements beside any transaction.
    pub(crate) async fn sql(&self, sql: &str) {
        run(&mut self.pool.acquire().await.expect("a connection"), sql).await;
    }

    /// Creates a role. Roles belong to the server, so it has the database's name in its own.
    pub(crate) async fn role(&self, name: &str) -> String {
        let role = format!("{}_{name}", self.database.name());
        self.sql(&format!("CREATE ROLE {role}")).await;
        role
    }

    pub(crate) async fn registered(&self) -> i64 {
        self.ask("SELECT count(*) FROM public.inbox").await
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.ask("SELECT count(*) FROM effect").await
    }

    pub(crate) async fn ask(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.expect(sql)
    }

    /// Waits until a backend waits for a lock of another one.
    pub(crate) async fn until_waiting(&self, pid: i32) {
        self.until("a backend waits", "SELECT cardinality(pg_blocking_pids($1)) > 0", pid).await;
    }

    /// How long a backend's last statement ran, by the server's own clock.
    pub(crate) async fn last_statement_took(&self, pid: i32) -> Duration {
        let took: f64 = sqlx::query_scalar(
            "SELECT extract(epoch FROM state_change - query_start)::float8
             FROM pg_stat_activity
             WHERE pid = $1 AND state LIKE 'idle%'",
        )
        .bind(pid)
        .fetch_one(&self.pool)
        .await
        .expect("an idle backend");
        Duration::from_secs_f64(took)
    }

    /// Waits until a backend waits for this other one.
    pub(crate) async fn until_waiting_for(&self, pid: i32, holder: i32) {
        eventually("a backend waits for another one", async || {
            let blockers: Vec<i32> = sqlx::query_scalar("SELECT pg_blocking_pids($1)")
                .bind(pid)
                .fetch_one(&self.pool)
                .await
                .expect("the blockers");
            blockers.contains(&holder)
        })
        .await;
    }

    pub(crate) async fn until_gone(&self, pid: i32) {
        self.until(
            "a backend is gone",
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)",
            pid,
        )
        .await;
    }

    pub(crate) async fn until_idle(&self, pid: i32) {
        self.until("a backend is idle", "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $1", pid)
            .await;
    }

    /// Ends a backend, and waits for it.
    pub(crate) async fn kill(&self, pid: i32) {
        sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&self.pool).await.expect("a kill");
        self.until_gone(pid).await;
    }

    async fn until(&self, what: &str, sql: &'static str, pid: i32) {
        eventually(what, async || sqlx::query_scalar(sql).bind(pid).fetch_one(&self.pool).await.expect(sql))
            .await;
    }
}

/// Asks again and again; a condition that never comes true is a failed test.
pub(crate) async fn eventually<F>(what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs statements by the simple protocol.
pub(crate) async fn run(conn: &mut PgConnection, sql: &str) {
    try_run(conn, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub(crate) async fn try_run(conn: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await.map(drop)
}

pub(crate) async fn effect(conn: &mut PgConnection) {
    run(conn, "INSERT INTO effect VALUES ('e')").await;
}

pub(crate) async fn pid(conn: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await.expect("a process id")
}

pub(crate) async fn show(conn: &mut PgConnection, setting: &str) -> String {
    sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(conn).await.expect(setting)
}

pub(crate) fn consumer() -> Consumer {
    Consumer::new("loyalty").unwrap()
}

pub(crate) fn message(id: &str) -> Message {
    Message::new(MessageId::new(id).unwrap(), "PaymentConfirmed").unwrap()
}

pub(crate) fn kind<T: std::fmt::Debug>(answer: Result<T, Error>) -> ErrorKind {
    answer.expect_err("an error").kind()
}
