//! A fresh PostgreSQL database per test, and the removal of those that killed runs left.
//!
//! A database's name tells whose it is: `inbox_test_<process id>_<number>_<run>`. The run is a
//! random number, and its owner holds an advisory lock with that number for as long as it lives.
//! The lock ends with the owner's session, so a database whose lock nobody holds is left over.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use url::Url;

use super::{PostgresServer, ServerError};

/// A database of one test alone, removed when this is dropped, on panic too, with all connections
/// to it. Keeps its server running.
///
/// The removal happens in the background. To be sure that it is done, [`close`](Self::close) it.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    server: PostgresServer,
    closed: bool,
}

impl Database {
    pub(super) fn new(server: PostgresServer, name: String) -> Self {
        let url = server.url_of(&name).into();
        Self { name, url, server, closed: false }
    }

    /// The URL of this database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of this database, a plain identifier.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is on.
    pub fn server(&self) -> &PostgresServer {
        &self.server
    }

    /// Ends all connections to the database, removes it, and waits for that.
    ///
    /// # Errors
    ///
    /// [`ServerError::Maintenance`], such as when prepared transactions are left in it.
    pub async fn close(mut self) -> Result<(), ServerError> {
        self.closed = true;
        self.server.maintenance().remove(&self.name).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.closed {
            self.server.maintenance().remove_later(&self.name);
        }
    }
}

/// Creates and removes databases, in a thread with a runtime of its own: each test has its own
/// runtime, which takes its connections with it, and a drop must not wait.
#[derive(Debug)]
pub(super) struct Maintenance {
    requests: mpsc::UnboundedSender<Request>,
}

#[derive(Debug)]
enum Request {
    Create { reply: oneshot::Sender<Result<String, ServerError>> },
    Remove { name: String, reply: Option<oneshot::Sender<Result<(), ServerError>>> },
}

/// What the server says of itself.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) text: String,
    pub(super) major: u32,
}

impl Maintenance {
    pub(super) async fn start(url: &Url) -> Result<(Self, Version), ServerError> {
        let url = url.clone();
        let (requests, inbox) = mpsc::unbounded_channel();
        let (ready, started) = oneshot::channel();
        std::thread::Builder::new()
            .name("inbox-databases".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(work(&url, inbox, ready)),
                    Err(e) => drop(ready.send(Err(ServerError::io("make", "a runtime", e)))),
                }
            })
            .map_err(|e| ServerError::io("start", "a thread", e))?;
        let version = started.await.map_err(|_| ServerError::Stopped)??;
        Ok((Self { requests }, version))
    }

    pub(super) async fn create(&self) -> Result<String, ServerError> {
        let (reply, created) = oneshot::channel();
        let _ = self.requests.send(Request::Create { reply });
        created.await.map_err(|_| ServerError::Stopped)?
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), ServerError> {
        let (reply, removed) = oneshot::channel();
        let _ = self.requests.send(Request::Remove { name: name.to_owned(), reply: Some(reply) });
        removed.await.map_err(|_| ServerError::Stopped)?
    }

    pub(super) fn remove_later(&self, name: &str) {
        let _ = self.requests.send(Request::Remove { name: name.to_owned(), reply: None });
    }
}

/// How many databases are created or removed at the same time: each is mostly copying files.
const AT_ONCE: u32 = 4;

async fn work(
    url: &Url,
    mut requests: mpsc::UnboundedReceiver<Request>,
    ready: oneshot::Sender<Result<Version, ServerError>>,
) {
    let (mut run, version, options) = match open(url).await {
        Ok(open) => open,
        Err(e) => return drop(ready.send(Err(e))),
    };
    let pool = PgPoolOptions::new().max_connections(AT_ONCE).connect_lazy_with(options);
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep(pool.clone()));
    let _ = ready.send(Ok(version));

    let mut number = 0_u64;
    while let Some(request) = requests.recv().await {
        let pool = pool.clone();
        match request {
            Request::Create { reply } => {
                if let Err(e) = run.keep_lock().await {
                    let _ = reply.send(Err(e));
                    continue;
                }
                number += 1;
                let name = run.database(number);
                tasks.spawn(async move {
                    let created = create(&pool, &name).await.map(|()| name.clone());
                    // Nobody waits for it any more: the test was cancelled.
                    if let Err(Ok(_)) = reply.send(created) {
                        let _ = remove(&pool, &name).await;
                    }
                });
            }
            Request::Remove { name, reply } => {
                tasks.spawn(async move {
                    let removed = remove(&pool, &name).await;
                    if let Some(reply) = reply {
                        let _ = reply.send(removed);
                    }
                });
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    tasks.join_all().await;
}

async fn open(url: &Url) -> Result<(Run, Version, PgConnectOptions), ServerError> {
    let doing = || format!("connect to PostgreSQL at {}", place(url));
    let options = PgConnectOptions::from_url(url).map_err(|e| ServerError::maintenance(doing(), e))?;
    let mut connection = options.connect().await.map_err(|e| ServerError::maintenance(doing(), e))?;
    let (text, number): (String, i32) = sqlx::query_as(
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int4",
    )
    .fetch_one(&mut connection)
    .await
    .map_err(|e| ServerError::maintenance("ask for the server's version", e))?;
    let version = Version { text, major: number.unsigned_abs() / 10_000 };
    let mut run = Run { number: fastrand::u32(..), options: options.clone(), connection };
    run.lock().await?;
    Ok((run, version, options))
}

/// A URL's host and port, without its user and password.
fn place(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or("a local socket"), url.port().unwrap_or(5432))
}

/// The first key of the owners' advisory locks, which tells them from anybody else's.
const LOCKS: i32 = i32::from_be_bytes(*b"inbx");

/// The owner of the databases that this process makes on one server.
struct Run {
    number: u32,
    options: PgConnectOptions,
    connection: PgConnection,
}

impl Run {
    fn database(&self, number: u64) -> String {
        format!("inbox_test_{}_{number}_{:08x}", std::process::id(), self.number)
    }

    /// Takes the lock that marks this run's databases as in use, before there is one.
    async fn lock(&mut self) -> Result<(), ServerError> {
        sqlx::query("SELECT pg_advisory_lock($1, $2)")
            .bind(LOCKS)
            .bind(self.number.cast_signed())
            .execute(&mut self.connection)
            .await
            .map_err(|e| ServerError::maintenance("lock the run's test databases", e))?;
        Ok(())
    }

    /// Takes the lock again if its session was lost, such as to a test that ends all sessions.
    async fn keep_lock(&mut self) -> Result<(), ServerError> {
        if self.connection.ping().await.is_ok() {
            return Ok(());
        }
        let connection = self.options.connect().await;
        self.connection = connection.map_err(|e| ServerError::maintenance("connect again", e))?;
        self.lock().await
    }
}

async fn create(pool: &PgPool, name: &str) -> Result<(), ServerError> {
    // template0: whatever the server's owner put into template1 is not for tests.
    let sql =
        format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(pool)
        .await
        .map_err(|e| ServerError::maintenance(format!("create the database {name}"), e))?;
    Ok(())
}

async fn remove(pool: &PgPool, name: &str) -> Result<(), ServerError> {
    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    let mut attempts = 3;
    loop {
        attempts -= 1;
        match sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(pool).await {
            Ok(_) => return Ok(()),
            // FORCE ends the sessions that it sees: a client that connects meanwhile is in the way.
            Err(_) if attempts > 0 => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(e) => return Err(ServerError::maintenance(format!("remove the database {name}"), e)),
        }
    }
}

/// Removes the databases of runs that are over.
///
/// The list is read first and the locks afterwards: an owner locks before it creates, so a listed
/// database without a lock has no owner any more. Another run may remove the same database at the
/// same time, and a role may lack the right to: both fail here, and harm nobody.
async fn sweep(pool: PgPool) {
    let names: Vec<String> =
        sqlx::query_scalar(r"SELECT datname FROM pg_database WHERE datname LIKE 'inbox\_test\_%'")
            .fetch_all(&pool)
            .await
            .unwrap_or_default();
    if names.is_empty() {
        return;
    }
    // Of any database on the server: an owner may have been given another URL.
    let locks = sqlx::query_scalar(
        "SELECT objid::int8 FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid::int8 = $1",
    );
    let Ok(owners) = locks.bind(i64::from(LOCKS)).fetch_all(&pool).await else { return };
    let owners: HashSet<i64> = owners.into_iter().collect();
    for name in names {
        if run_of(&name).is_some_and(|run| !owners.contains(&i64::from(run))) {
            let _ = remove(&pool, &name).await;
        }
    }
}

/// The run in a database's name; `None` for a name that nobody here made.
fn run_of(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("inbox_test_")?.split('_');
    let (process, number, run) = (parts.next()?, parts.next()?, parts.next()?);
    process.parse::<u32>().ok()?;
    number.parse::<u64>().ok()?;
    match parts.next() {
        None if run.len() == 8 => u32::from_str_radix(run, 16).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::run_of;

    #[test]
    fn only_a_name_made_here_has_a_run() {
        assert_eq!(run_of("inbox_test_12_3_0000ff00"), Some(0xff00));
        for name in
            ["inbox_test_db", "inbox_test_1_2_3", "inbox_test_1_2_0000ff00_x", "inbox_test_a_2_0000ff00"]
        {
            assert_eq!(run_of(name), None, "{name} may be somebody's");
        }
    }
}
