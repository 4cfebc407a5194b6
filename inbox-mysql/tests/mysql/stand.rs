//! A fresh database with the inbox's table and a table for effects on one of the servers, and what
//! tests ask that server.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use inbox_core::{Consumer, Error, ErrorKind, GuardedTx, Inbox, Message, MessageId};
use inbox_mysql::MySqlStore;
use inbox_testkit::mysql as blocks;
use inbox_testkit::servers::{
    Flavour, MySqlDatabase, MySqlOptions, MySqlServer, MySqlWanted, skip_requested,
};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlConnection, MySqlPool, Transaction};

/// Makes of each test, a function of a [`Stand`], one for each server: `mariadb_10_11::…`,
/// `mariadb_11_8::…`, `mysql::…`.
macro_rules! on_each_server {
    ($($test:ident),+ $(,)?) => {
        $crate::stand::on_each_server!(@ mariadb_10_11 MariaDb10_11 shared $($test)+);
        $crate::stand::on_each_server!(@ mariadb_11_8 MariaDb11_8 shared $($test)+);
        $crate::stand::on_each_server!(@ mysql MySql shared $($test)+);
    };
    (@ $module:ident $wanted:ident $stand:ident $($test:ident)+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    let wanted = inbox_testkit::servers::MySqlWanted::$wanted;
                    if let Some(stand) = $crate::stand::Stand::$stand(wanted).await {
                        super::$test(stand).await;
                    }
                }
            )+
        }
    };
}
pub(crate) use on_each_server;

/// The same on servers of the tests' own, one for each test, which may change and end it.
macro_rules! on_own_servers {
    ($($test:ident),+ $(,)?) => {
        mod own {
            $(use super::$test;)+
            $crate::stand::on_each_server!(@ mariadb_10_11 MariaDb10_11 own $($test)+);
            $crate::stand::on_each_server!(@ mariadb_11_8 MariaDb11_8 own $($test)+);
            $crate::stand::on_each_server!(@ mysql MySql own $($test)+);
        }
    };
}
pub(crate) use on_own_servers;

pub(crate) type Guarded<'i> = GuardedTx<'i, MySqlStore, Transaction<'static, MySql>>;

pub(crate) struct Stand {
    pub(crate) pool: MySqlPool,
    pub(crate) store: MySqlStore,
    pub(crate) inbox: Inbox<MySqlStore>,
    pub(crate) wanted: MySqlWanted,
    pub(crate) database: MySqlDatabase,
}

impl Stand {
    /// On the server that tests share. None if it is to be left out by request, and only then.
    pub(crate) async fn shared(wanted: MySqlWanted) -> Option<Self> {
        if skip_requested(wanted.stand()) {
            eprintln!("skipped, as INBOX_TEST_SKIP asks");
            return None;
        }
        let server = MySqlServer::shared(wanted).await.unwrap_or_else(|error| panic!("{wanted}: {error}"));
        Some(Self::on(wanted, &server).await)
    }

    /// On a server of its own.
    pub(crate) async fn own(wanted: MySqlWanted) -> Option<Self> {
        if skip_requested(wanted.stand()) || skip_requested(wanted.own_stand()) {
            eprintln!("skipped, as INBOX_TEST_SKIP asks");
            return None;
        }
        let server = MySqlOptions::new(wanted).start().await;
        Some(Self::on(wanted, &server.unwrap_or_else(|error| panic!("{wanted}: {error}"))).await)
    }

    async fn on(wanted: MySqlWanted, server: &MySqlServer) -> Self {
        assert_eq!(server.flavour(), wanted.flavour(), "{wanted}: the server says {}", server.version());
        let database = server.fresh_database().await.expect("a fresh database");
        let pool = MySqlPoolOptions::new().max_connections(10).connect(database.url()).await.expect("a pool");
        let store = MySqlStore::new(pool.clone()).expect("a database in the URL");
        store.create_schema().await.expect("the schema");
        let stand = Self { inbox: Inbox::new(store.clone(), consumer()), pool, store, wanted, database };
        stand.sql("CREATE TABLE effect (id VARBINARY(64) NOT NULL) ENGINE = InnoDB").await;
        stand
    }

    pub(crate) fn is_mysql(&self) -> bool {
        self.wanted.flavour() == Flavour::MySql
    }

    /// Whether a write to a row that is newer than the snapshot is refused with 1020.
    pub(crate) fn isolates_snapshots(&self) -> bool {
        self.wanted == MySqlWanted::MariaDb11_8
    }

    pub(crate) fn options(&self) -> MySqlConnectOptions {
        self.database.url().parse().expect("a URL")
    }

    /// Another inbox, on a pool of its own, of one connection on which these statements were run.
    pub(crate) async fn inbox_on_one(&self, session: &'static str) -> Inbox<MySqlStore> {
        let pool = MySqlPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(2))
            .after_connect(move |conn, _| Box::pin(try_run(conn, session)))
            .connect(self.database.url())
            .await
            .expect("a pool");
        Inbox::new(MySqlStore::new(pool).expect("a database in the URL"), consumer())
    }

    /// A connection outside any pool.
    pub(crate) async fn connection(&self) -> MySqlConnection {
        MySqlConnection::connect(self.database.url()).await.expect("a connection")
    }

    /// Runs statements beside any transaction.
    pub(crate) async fn sql(&self, sql: &str) {
        run(&mut self.pool.acquire().await.expect("a connection"), sql).await;
    }

    /// Inserts a registration beside the library.
    pub(crate) async fn insert(&self, id: &str) {
        self.sql(&format!(
            "INSERT INTO inbox (consumer, message_id, event_type) VALUES ('loyalty', '{id}', 't')"
        ))
        .await;
    }

    /// The URL of a new account without any right, and its name as SQL has it. Accounts belong to the
    /// server, so it has the database's name in its own.
    pub(crate) async fn account(&self, limits: &str) -> (MySqlConnectOptions, String) {
        let name = &self.database.name()["inbox_test_".len()..];
        let account = format!("'{name}'@'127.0.0.1'");
        self.sql(&format!("DROP USER IF EXISTS {account}; CREATE USER {account} {limits}")).await;
        (self.options().username(name), account)
    }

    pub(crate) async fn registered(&self) -> i64 {
        self.ask("SELECT count(*) FROM inbox").await
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.ask("SELECT count(*) FROM effect").await
    }

    /// How many registrations and effects are committed.
    pub(crate) async fn committed(&self) -> (i64, i64) {
        (self.registered().await, self.effects().await)
    }

    pub(crate) async fn ask(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.expect(sql)
    }

    /// Waits until a session waits for a lock of another one.
    pub(crate) async fn until_waiting(&self, session: u64) {
        let session = session.to_string();
        eventually("a session waits", async || {
            blocks::is_waiting(&self.pool, &session).await.expect("the waits")
        })
        .await;
    }

    /// Waits until a session waits for others to be done with a table or database that it changes.
    pub(crate) async fn until_waiting_for_metadata(&self, session: u64) {
        eventually("a session waits for metadata", async || {
            let state: Option<String> = sqlx::query_scalar(
                "SELECT CAST(state AS CHAR) FROM information_schema.processlist WHERE id = ?",
            )
            .bind(session)
            .fetch_one(&self.pool)
            .await
            .expect("the sessions");
            state.is_some_and(|state| state.contains("metadata lock"))
        })
        .await;
    }

    pub(crate) async fn until_gone(&self, session: u64) {
        eventually("a session is gone", async || self.state(session).await.is_none()).await;
    }

    async fn state(&self, session: u64) -> Option<String> {
        sqlx::query_scalar("SELECT CAST(command AS CHAR) FROM information_schema.processlist WHERE id = ?")
            .bind(session)
            .fetch_optional(&self.pool)
            .await
            .expect("the sessions")
    }

    /// Whether a session has a transaction open that has written or read something.
    pub(crate) async fn has_open_transaction(&self, session: u64) -> bool {
        // Not innodb_trx, whose contents may be 100 ms old.
        let row =
            sqlx::raw_sql("SHOW ENGINE INNODB STATUS").fetch_one(&self.pool).await.expect("the monitor");
        let monitor: String = sqlx::Row::get(&row, "Status");
        let thread = format!("thread id {session},");
        monitor
            .split("---TRANSACTION")
            .skip(1) // what precedes the list may tell of the latest deadlock
            .any(|transaction| transaction.contains(&thread) && !transaction.contains("not started"))
    }

    /// Ends a session, and waits for that.
    pub(crate) async fn kill(&self, session: u64) {
        self.sql(&format!("KILL {session}")).await;
        self.until_gone(session).await;
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

/// Runs statements as text.
pub(crate) async fn run(conn: &mut MySqlConnection, sql: &str) {
    try_run(conn, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub(crate) async fn try_run(conn: &mut MySqlConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await.map(drop)
}

/// What a timeout around a statement does once that was sent.
pub(crate) async fn give_up(conn: &mut MySqlConnection, sql: &str) {
    conn.ping().await.unwrap();
    let mut statement = Box::pin(try_run(conn, sql));
    assert!(poll_fn(|cx| Poll::Ready(statement.as_mut().poll(cx))).await.is_pending());
}

pub(crate) async fn effect(conn: &mut MySqlConnection) {
    run(conn, "INSERT INTO effect VALUES ('e')").await;
}

/// The id of a connection's session.
pub(crate) async fn session(conn: &mut MySqlConnection) -> u64 {
    sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(conn).await.expect("a session's id")
}

/// What an expression is in a session, such as `@@sql_mode`.
pub(crate) async fn show(conn: &mut MySqlConnection, expression: &str) -> String {
    let sql = format!("SELECT CAST({expression} AS CHAR)");
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(conn).await.expect(expression)
}

/// The server's number of an error.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(|error| error.number())
}

/// The server's number of the error that one of ours has as its source.
pub(crate) fn source_number(error: &Error) -> Option<u16> {
    std::error::Error::source(error)?.downcast_ref::<sqlx::Error>().and_then(number)
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
