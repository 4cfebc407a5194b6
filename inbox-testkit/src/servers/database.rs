//! A fresh database per test, and the removal of those that killed runs left. The SQL is each engine's.
//!
//! A database's name tells whose it is: `inbox_test_<process id>_<number>_<run>`. The run is a
//! random number, and its owner holds an advisory lock with that number for as long as it lives.
//! The lock ends with the owner's session, so a database whose lock nobody holds is left over.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions, Connection as _, Pool};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use url::Url;

use super::ServerError;

/// How an engine is asked for what the maintenance of test databases takes.
pub(super) trait Engine: Send + 'static {
    type Driver: sqlx::Database;
    /// What a server says of itself.
    type Version: Send + Sync + 'static;
    /// In words.
    const NAME: &str;
    const PORT: u16;

    fn version(connection: &mut Connection<Self>) -> impl Answer<Self::Version>;

    /// Takes the lock that marks a run's databases as in use, and keeps it with the connection.
    fn lock(connection: &mut Connection<Self>, run: u32) -> impl Answer<()>;

    /// True while any session holds this run's lock.
    fn is_locked(pool: &Pool<Self::Driver>, run: u32) -> impl Answer<bool>;

    /// The names of all databases that may be a test's.
    fn databases(pool: &Pool<Self::Driver>) -> impl Answer<Vec<String>>;

    fn create(pool: &Pool<Self::Driver>, name: &str) -> impl Answer<()>;

    /// Ends the sessions in a database and removes it. Fails when a client connects meanwhile.
    fn remove(pool: &Pool<Self::Driver>, name: &str) -> impl Answer<()>;
}

pub(super) trait Answer<T>: Future<Output = Result<T, sqlx::Error>> + Send {}

impl<T, F: Future<Output = Result<T, sqlx::Error>> + Send> Answer<T> for F {}

pub(super) type Connection<E> = <<E as Engine>::Driver as sqlx::Database>::Connection;

type Options<E> = <Connection<E> as sqlx::Connection>::Options;

/// A database of one test alone, removed when this is dropped.
#[derive(Debug)]
pub(super) struct Fresh {
    name: String,
    url: String,
    maintenance: Arc<Maintenance>,
    closed: bool,
}

impl Fresh {
    /// Makes a database on the server of this URL.
    pub(super) async fn create(maintenance: &Arc<Maintenance>, server: &Url) -> Result<Self, ServerError> {
        let name = maintenance.create().await?;
        let mut url = server.clone();
        url.set_path(&name);
        Ok(Self { name, url: url.into(), maintenance: Arc::clone(maintenance), closed: false })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Removes it, and waits for that.
    pub(super) async fn close(mut self) -> Result<(), ServerError> {
        self.closed = true;
        self.maintenance.remove(&self.name).await
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.closed {
            self.maintenance.remove_later(&self.name);
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

impl Maintenance {
    pub(super) async fn start<E: Engine>(url: &Url) -> Result<(Self, E::Version), ServerError> {
        let url = url.clone();
        let (requests, inbox) = mpsc::unbounded_channel();
        let (ready, started) = oneshot::channel();
        std::thread::Builder::new()
            .name("inbox-databases".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(work::<E>(&url, inbox, ready)),
                    Err(e) => drop(ready.send(Err(ServerError::io("make", "a runtime", e)))),
                }
            })
            .map_err(|e| ServerError::io("start", "a thread", e))?;
        let version = started.await.map_err(|_| ServerError::Stopped)??;
        Ok((Self { requests }, version))
    }

    async fn create(&self) -> Result<String, ServerError> {
        let (reply, created) = oneshot::channel();
        let _ = self.requests.send(Request::Create { reply });
        created.await.map_err(|_| ServerError::Stopped)?
    }

    async fn remove(&self, name: &str) -> Result<(), ServerError> {
        let (reply, removed) = oneshot::channel();
        let _ = self.requests.send(Request::Remove { name: name.to_owned(), reply: Some(reply) });
        removed.await.map_err(|_| ServerError::Stopped)?
    }

    fn remove_later(&self, name: &str) {
        let _ = self.requests.send(Request::Remove { name: name.to_owned(), reply: None });
    }
}

/// How many databases are created or removed at the same time: each is mostly copying files.
const AT_ONCE: u32 = 4;

async fn work<E: Engine>(
    url: &Url,
    mut requests: mpsc::UnboundedReceiver<Request>,
    ready: oneshot::Sender<Result<E::Version, ServerError>>,
) {
    let (mut run, version, options) = match open::<E>(url).await {
        Ok(open) => open,
        Err(e) => return drop(ready.send(Err(e))),
    };
    let pool = PoolOptions::new().max_connections(AT_ONCE).connect_lazy_with(options);
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep::<E>(pool.clone()));
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
                    let created = create::<E>(&pool, &name).await.map(|()| name.clone());
                    // Nobody waits for it any more: the test was cancelled.
                    if let Err(Ok(_)) = reply.send(created) {
                        let _ = remove::<E>(&pool, &name).await;
                    }
                });
            }
            Request::Remove { name, reply } => {
                tasks.spawn(async move {
                    let removed = remove::<E>(&pool, &name).await;
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

async fn open<E: Engine>(url: &Url) -> Result<(Run<E>, E::Version, Options<E>), ServerError> {
    let doing = || format!("connect to {} at {}", E::NAME, place::<E>(url));
    let options = Options::<E>::from_url(url).map_err(|e| ServerError::maintenance(doing(), e))?;
    let mut connection = options.connect().await.map_err(|e| ServerError::maintenance(doing(), e))?;
    let version = E::version(&mut connection)
        .await
        .map_err(|e| ServerError::maintenance("ask for the server's version", e))?;
    let mut run =
        Run { number: fastrand::u32(..), options: options.clone(), connection, engine: PhantomData };
    run.lock().await?;
    Ok((run, version, options))
}

/// A URL's host and port, without its user and password.
fn place<E: Engine>(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or("a local socket"), url.port().unwrap_or(E::PORT))
}

/// The owner of the databases that this process makes on one server.
struct Run<E: Engine> {
    number: u32,
    options: Options<E>,
    connection: Connection<E>,
    engine: PhantomData<E>,
}

impl<E: Engine> Run<E> {
    fn database(&self, number: u64) -> String {
        format!("inbox_test_{}_{number}_{:08x}", std::process::id(), self.number)
    }

    /// Takes the lock that marks this run's databases as in use, before there is one.
    async fn lock(&mut self) -> Result<(), ServerError> {
        E::lock(&mut self.connection, self.number)
            .await
            .map_err(|e| ServerError::maintenance("lock the run's test databases", e))
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

async fn create<E: Engine>(pool: &Pool<E::Driver>, name: &str) -> Result<(), ServerError> {
    E::create(pool, name)
        .await
        .map_err(|e| ServerError::maintenance(format!("create the database {name}"), e))
}

async fn remove<E: Engine>(pool: &Pool<E::Driver>, name: &str) -> Result<(), ServerError> {
    let mut attempts = 3;
    loop {
        attempts -= 1;
        match E::remove(pool, name).await {
            Ok(()) => return Ok(()),
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
async fn sweep<E: Engine>(pool: Pool<E::Driver>) {
    for name in E::databases(&pool).await.unwrap_or_default() {
        let Some(run) = run_of(&name) else { continue };
        if let Ok(false) = E::is_locked(&pool, run).await {
            let _ = remove::<E>(&pool, &name).await;
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
