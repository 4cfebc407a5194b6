//! PostgreSQL: given by URL, installed, unpacked, or in a container.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use super::database::{Database, Maintenance};
use super::installation::{Installation, is_root};
use super::supervisor::{Plan, Supervised};
use super::{ServerError, places, port};

/// Which PostgreSQL a test asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wanted {
    /// Whatever there is; the newest that is installed.
    Any,
    /// This major version, such as 18.
    Major(u32),
}

impl Wanted {
    /// The name that [`skip_requested`](super::skip_requested) takes: `postgres`, `postgres_18`.
    pub fn stand(self) -> String {
        match self {
            Self::Any => "postgres".to_owned(),
            Self::Major(major) => format!("postgres_{major}"),
        }
    }

    fn accepts(self, found: u32) -> bool {
        self == Self::Any || self == Self::Major(found)
    }

    /// The variable that gives exactly this server.
    fn url_variable(self) -> String {
        places::url_variable(&self.stand())
    }

    fn major(self) -> Option<u32> {
        match self {
            Self::Any => None,
            Self::Major(major) => Some(major),
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("PostgreSQL"),
            Self::Major(major) => write!(f, "PostgreSQL {major}"),
        }
    }
}

/// A running PostgreSQL on which tests may do as they like. A clone is the same server.
///
/// A server that was started here ends with its last clone and last [`Database`], or with the process.
#[derive(Clone)]
pub struct PostgresServer {
    inner: Arc<Inner>,
}

struct Inner {
    url: Url,
    version: String,
    major: u32,
    maintenance: Maintenance,
    own: Mutex<Option<Supervised>>,
    #[cfg(feature = "containers")]
    _container: Option<super::container::Running>,
}

impl PostgresServer {
    /// The server that all tests of this process share, from the first place in the
    /// [module's list](super) that has one. Starts it in about two seconds if needed, once; a
    /// server that failed to start is not tried again.
    ///
    /// Every test wants a [`fresh_database`](Self::fresh_database). One that changes or ends the
    /// server itself starts its own: [`PostgresOptions::start`].
    ///
    /// # Errors
    ///
    /// Any [`ServerError`]; [`ServerError::NotFound`] when there is no such server, and then the
    /// test fails unless [`skip_requested`](super::skip_requested) names its stand.
    pub async fn shared(wanted: Wanted) -> Result<Self, ServerError> {
        type Shared = Arc<OnceCell<Result<PostgresServer, ServerError>>>;
        static SERVERS: LazyLock<Mutex<HashMap<Wanted, Shared>>> = LazyLock::new(Mutex::default);

        let server: Shared =
            SERVERS.lock().unwrap_or_else(PoisonError::into_inner).entry(wanted).or_default().clone();
        let started = server.get_or_init(async || match Self::given(wanted).await? {
            Some(server) => Ok(server),
            None => PostgresOptions::new(wanted).start().await,
        });
        started.await.clone()
    }

    /// A running server by its URL, whose role may create databases. It is never stopped here.
    ///
    /// # Errors
    ///
    /// [`ServerError::Url`], or [`ServerError::Maintenance`] when it cannot be reached.
    pub async fn at(url: &str) -> Result<Self, ServerError> {
        Self::connect(parse(url, "the URL")?, None).await
    }

    /// The server that the environment gives, if it does.
    async fn given(wanted: Wanted) -> Result<Option<Self>, ServerError> {
        for variable in [wanted.url_variable(), Wanted::Any.url_variable()] {
            let Some(url) = places::given_url(&variable) else { continue };
            let server = Self::connect(parse(&url, &variable)?, None).await?;
            if wanted.accepts(server.major()) {
                return Ok(Some(server));
            }
            // The general variable may well give another version than the wanted one.
            if variable == wanted.url_variable() {
                return Err(ServerError::WrongVersion {
                    server: wanted.to_string(),
                    place: format!("the server that {variable} gives"),
                    version: server.version().to_owned(),
                });
            }
        }
        Ok(None)
    }

    async fn connect(url: Url, own: Option<Supervised>) -> Result<Self, ServerError> {
        let (maintenance, version) = Maintenance::start(&url).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                major: version.major,
                version: version.text,
                maintenance,
                own: Mutex::new(own),
                #[cfg(feature = "containers")]
                _container: None,
            }),
        })
    }

    #[cfg(feature = "containers")]
    pub(super) async fn in_container(
        url: Url,
        container: super::container::Running,
    ) -> Result<Self, ServerError> {
        let (maintenance, version) = Maintenance::start(&url).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                major: version.major,
                version: version.text,
                maintenance,
                own: Mutex::new(None),
                _container: Some(container),
            }),
        })
    }

    /// The URL of the server's maintenance database, with a role that may create databases.
    pub fn url(&self) -> &str {
        self.inner.url.as_str()
    }

    /// The version in the server's own words, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    /// The major version, such as 15.
    pub fn major(&self) -> u32 {
        self.inner.major
    }

    /// The process id of a server that was started here, for tests that kill it.
    pub fn process_id(&self) -> Option<u32> {
        self.own().as_ref().and_then(Supervised::pid)
    }

    /// The folder of a server that was started here: its data in `data`, its log in `log`.
    pub fn folder(&self) -> Option<PathBuf> {
        self.own().as_ref().map(|own| own.folder().to_path_buf())
    }

    /// A new, empty database (UTF-8, collation C) of this test alone.
    ///
    /// # Errors
    ///
    /// [`ServerError::Maintenance`], or [`ServerError::Stopped`] after [`stop`](Self::stop).
    pub async fn fresh_database(&self) -> Result<Database, ServerError> {
        let name = self.inner.maintenance.create().await?;
        Ok(Database::new(self.clone(), name))
    }

    /// Stops a server that was started here, and waits until its process and its folder are gone.
    /// A server given by URL is left running.
    pub async fn stop(self) {
        let own = self.own().take();
        if let Some(own) = own {
            own.stop().await;
        }
    }

    pub(super) fn maintenance(&self) -> &Maintenance {
        &self.inner.maintenance
    }

    /// The URL of another database on this server.
    pub(super) fn url_of(&self, database: &str) -> Url {
        let mut url = self.inner.url.clone();
        url.set_path(database);
        url
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Option<Supervised>> {
        self.inner.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for PostgresServer {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresServer").field("version", &self.inner.version).finish_non_exhaustive()
    }
}

fn parse(url: &str, place: &str) -> Result<Url, ServerError> {
    Url::parse(url).map_err(|source| ServerError::Url { place: place.to_owned(), source })
}

/// What a test server is told: `(name, value, reason)`, appended to its `postgresql.conf`.
///
/// Settings that a test may want to change stay out of the command line, which `ALTER SYSTEM` cannot override.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("listen_addresses", "127.0.0.1", "nobody else's business"),
    ("unix_socket_directories", "", "a temporary folder's path can be too long for one"),
    ("max_connections", "200", "tests run side by side, each with its pools"),
    ("jit", "off", "compiling a query costs more than these queries"),
    ("deadlock_timeout", "100ms", "tests provoke deadlocks and wait for the answer"),
    ("dynamic_shared_memory_type", "mmap", "an unpacked server's root has no /dev/shm"),
    ("logging_collector", "off", "the log is the file `log` in the server's folder"),
];

/// Told to a server whose data need not outlive a crash of the machine.
const NOT_DURABLE: &[(&str, &str, &str)] =
    &[("fsync", "off", "nothing here is kept"), ("full_page_writes", "off", "nothing here is kept")];

/// How long a server may take until it answers, `initdb` included. Seconds are usual; a machine
/// that compiles on all cores takes longer.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A PostgreSQL of a test's own, to be configured, stopped or killed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    wanted: Wanted,
    durable: bool,
    settings: Vec<(String, String)>,
    programs: Option<Vec<PathBuf>>,
}

impl PostgresOptions {
    /// The name that [`skip_requested`](super::skip_requested) takes for tests that start a server of
    /// their own: where the environment gives servers by URL and none is installed, they cannot run.
    pub const OWN: &str = "postgres_own";

    /// A server without fsync, as installed, unpacked, or in a container: a server by URL is
    /// shared, and not for this.
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, durable: false, settings: Vec::new(), programs: None }
    }

    /// True keeps fsync and full page writes on, for tests that need a real commit. Off by default.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// A setting for `postgresql.conf`, such as `("max_prepared_transactions", "10")`. Later ones win.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Looks for the programs `postgres` and `initdb` in these folders only.
    pub fn programs_in<P: Into<PathBuf>>(mut self, folders: impl IntoIterator<Item = P>) -> Self {
        self.programs = Some(folders.into_iter().map(Into::into).collect());
        self
    }

    /// Starts the server, in about two seconds; gives up after 60 seconds.
    ///
    /// # Errors
    ///
    /// Any [`ServerError`]; [`ServerError::NotFound`] says what to install or to set.
    pub async fn start(self) -> Result<PostgresServer, ServerError> {
        let Some(installation) = self.installation() else {
            #[cfg(feature = "containers")]
            if self.programs.is_none() {
                return super::container::postgres(self.wanted, &self.all_settings()).await;
            }
            return Err(self.not_found());
        };
        let (url, own) = self.run(&installation).await?;
        let server = PostgresServer::connect(url, Some(own)).await?;
        if !self.wanted.accepts(server.major()) {
            return Err(ServerError::WrongVersion {
                server: self.wanted.to_string(),
                place: installation.to_string(),
                version: server.version().to_owned(),
            });
        }
        Ok(server)
    }

    async fn run(&self, installation: &Installation) -> Result<(Url, Supervised), ServerError> {
        let mut attempts = port::ATTEMPTS;
        loop {
            let port = port::free()?;
            let plan = Plan::new(installation.clone(), "postgres");
            let data = plan.path("data");
            let own = plan
                .run("initdb", &initdb(&data))
                .write("data/postgresql.conf", &self.configuration(port))
                // SIGQUIT is the immediate shutdown: there is nothing to flush for later.
                .serve("postgres", &["-D", &data], "QUIT")?;
            attempts -= 1;
            match answers(&own, port, &data).await {
                Ok(url) => return Ok((url, own)),
                Err(_) if attempts > 0 && port::was_taken(&own.log_tail()) => {}
                Err(reason) => {
                    let server = format!("{} of {installation}", self.wanted);
                    return Err(ServerError::Start { server, reason, log: own.log_tail() });
                }
            }
        }
    }

    fn configuration(&self, port: u16) -> String {
        let mut text = format!("\nport = {port}\n");
        for (name, value) in self.all_settings() {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        text
    }

    fn all_settings(&self) -> Vec<(String, String)> {
        let not_durable = if self.durable { &[][..] } else { NOT_DURABLE };
        SETTINGS
            .iter()
            .chain(not_durable)
            .map(|(name, value, _)| ((*name).to_owned(), (*value).to_owned()))
            .chain(self.settings.iter().cloned())
            .collect()
    }

    fn installation(&self) -> Option<Installation> {
        let major = self.wanted.major();
        if let Some(folders) = &self.programs {
            return places::postgres_in(folders, major).map(Installation::installed);
        }
        places::installed_postgres(major).map(Installation::installed).or_else(|| match major {
            Some(major) => unpacked(major),
            None => places::postgres_versions().find_map(unpacked),
        })
    }

    fn not_found(&self) -> ServerError {
        let server = self.wanted.to_string();
        let package = match self.wanted {
            Wanted::Any => "postgresql".to_owned(),
            Wanted::Major(major) => format!("postgresql-{major}"),
        };
        let variable = self.wanted.url_variable();
        // Whoever gave a URL is not to be told to give one.
        let (instead, stand) = match places::given_url(&variable) {
            Some(_) => (
                format!(
                    "the one that {variable} gives is shared, and not for tests that change or end theirs: "
                ),
                Self::OWN.to_owned(),
            ),
            None => (
                format!("set {variable} to the URL of a server that tests may use, or "),
                self.wanted.stand(),
            ),
        };
        let root = if is_root() { "" } else { " (as root: only root can run an unpacked server)" };
        let looked = match &self.programs {
            Some(folders) => format!("; looked in {folders:?} only"),
            None => String::new(),
        };
        ServerError::NotFound {
            advice: format!(
                "{instead}install {server} (package `{package}`), or run `cargo xtask servers` in a checkout of \
                 inbox{root}, or enable the feature `containers` of inbox-testkit where a container engine runs, \
                 or leave its tests out with INBOX_TEST_SKIP={stand}{looked}"
            ),
            server,
        }
    }
}

fn initdb(data: &str) -> [&str; 8] {
    [
        "--pgdata",
        data,
        "--username=postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]
}

/// A server that `cargo xtask servers` unpacked.
fn unpacked(major: u32) -> Option<Installation> {
    let root = places::unpacked_postgres(major).filter(|_| is_root())?;
    Some(Installation::unpacked(root, places::unpacked_postgres_programs(major)))
}

/// Waits until the server answers, and is the one with this data: another process may have taken
/// the port, with a PostgreSQL of its own. Its URL, or the reason why not.
async fn answers(own: &Supervised, port: u16, data: &str) -> Result<Url, String> {
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username("postgres")
        .database("postgres")
        .ssl_mode(PgSslMode::Disable);
    let deadline = Instant::now() + START_TIMEOUT;
    let mut last = "it does not answer".to_owned();
    while Instant::now() < deadline {
        if own.ended() {
            return Err("it ended".to_owned());
        }
        match tokio::time::timeout(Duration::from_secs(5), data_directory(&options)).await {
            Ok(Ok(found)) if found == data => {
                let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
                return Url::parse(&url).map_err(|e| e.to_string());
            }
            Ok(Ok(_)) => last = format!("another server answers on port {port}"),
            Ok(Err(e)) => last = e.to_string(),
            Err(e) => last = e.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("no answer within {} s ({last})", START_TIMEOUT.as_secs()))
}

async fn data_directory(options: &PgConnectOptions) -> Result<String, sqlx::Error> {
    let mut connection: PgConnection = options.connect().await?;
    let data = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_own_stand_and_variable() {
        assert_eq!(Wanted::Any.url_variable(), "INBOX_TEST_POSTGRES_URL");
        assert_eq!(Wanted::Major(18).url_variable(), "INBOX_TEST_POSTGRES_18_URL");
        assert_eq!(Wanted::Major(18).stand(), "postgres_18");
    }

    #[test]
    fn a_setting_of_the_options_comes_last_and_wins() {
        let options = PostgresOptions::new(Wanted::Any).setting("jit", "it's on");
        assert!(options.configuration(1).ends_with("jit = 'it''s on'\n"));
    }

    #[test]
    fn a_durable_server_keeps_fsync() {
        assert!(PostgresOptions::new(Wanted::Any).configuration(1).contains("fsync = 'off'"));
        assert!(!PostgresOptions::new(Wanted::Any).durable(true).configuration(1).contains("fsync"));
    }
}
