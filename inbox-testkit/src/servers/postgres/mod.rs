//! PostgreSQL: given by URL, installed, unpacked, or in a container.

mod database;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _};
use url::Url;

pub use database::Database;
use database::PostgresEngine;

use super::installation::{Installation, is_root};
use super::server::{Advice, Server, Shared, parse};
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
    server: Arc<Server<PostgresEngine>>,
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
        static SERVERS: Shared<Wanted, PostgresServer> = Shared::new();
        let start = async {
            match Self::given(wanted).await? {
                Some(server) => Ok(server),
                None => PostgresOptions::new(wanted).start().await,
            }
        };
        SERVERS.get(wanted, start).await
    }

    /// A running server by its URL, whose role may create databases. It is never stopped here.
    ///
    /// # Errors
    ///
    /// [`ServerError::Url`], or [`ServerError::Maintenance`] when it cannot be reached.
    pub async fn at(url: &str) -> Result<Self, ServerError> {
        Ok(Server::at(parse(url, "the URL")?).await?.into())
    }

    /// The server that the environment gives, if it does.
    async fn given(wanted: Wanted) -> Result<Option<Self>, ServerError> {
        for variable in [wanted.url_variable(), Wanted::Any.url_variable()] {
            let Some(url) = places::given_url(&variable) else { continue };
            let server = Self::from(Server::at(parse(&url, &variable)?).await?);
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

    /// The URL of the server's maintenance database, with a role that may create databases.
    pub fn url(&self) -> &str {
        self.server.url().as_str()
    }

    /// The version in the server's own words, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.server.version().text
    }

    /// The major version, such as 15.
    pub fn major(&self) -> u32 {
        self.server.version().major
    }

    /// The process id of a server that was started here, for tests that kill it.
    pub fn process_id(&self) -> Option<u32> {
        self.server.process_id()
    }

    /// The folder of a server that was started here: its data in `data`, its log in `log`.
    pub fn folder(&self) -> Option<PathBuf> {
        self.server.folder()
    }

    /// A new, empty database (UTF-8, collation C) of this test alone.
    ///
    /// # Errors
    ///
    /// [`ServerError::Maintenance`], or [`ServerError::Stopped`] after [`stop`](Self::stop).
    pub async fn fresh_database(&self) -> Result<Database, ServerError> {
        Ok(Database::new(self.clone(), self.server.fresh().await?))
    }

    /// Stops a server that was started here, and waits until its process and its folder are gone.
    /// A server given by URL is left running.
    pub async fn stop(self) {
        self.server.stop().await;
    }

    /// The URL of another database on this server.
    pub(super) fn url_of(&self, database: &str) -> Url {
        let mut url = self.server.url().clone();
        url.set_path(database);
        url
    }
}

impl From<Server<PostgresEngine>> for PostgresServer {
    fn from(server: Server<PostgresEngine>) -> Self {
        Self { server: Arc::new(server) }
    }
}

impl std::fmt::Debug for PostgresServer {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresServer").field("version", &self.version()).finish_non_exhaustive()
    }
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
        let server = PostgresServer::from(Server::started(url, own).await?);
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
        let mut attempts = port::Attempts::new();
        loop {
            let port = attempts.port()?;
            let plan = Plan::new(installation.clone(), "postgres");
            let data = plan.path("data");
            let own = plan
                .run("initdb", &initdb(&data))
                .write("data/postgresql.conf", &self.configuration(port))
                // SIGQUIT is the immediate shutdown: there is nothing to flush for later.
                .serve("postgres", &["-D", &data], "QUIT")?;
            match answers(&own, port).await {
                Ok(url) => return Ok((url, own)),
                Err(reason) => {
                    attempts.failed(format!("{} of {installation}", self.wanted), &own, reason)?;
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
        let package = match self.wanted {
            Wanted::Any => "postgresql".to_owned(),
            Wanted::Major(major) => format!("postgresql-{major}"),
        };
        let advice = Advice {
            server: &self.wanted.to_string(),
            package: &package,
            variable: &self.wanted.url_variable(),
            stand: &self.wanted.stand(),
            own_stand: Self::OWN,
            programs: self.programs.as_deref(),
        };
        advice.not_found()
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

/// Waits until the server answers, and is the one with its data. Its URL, or the reason why not.
async fn answers(own: &Supervised, port: u16) -> Result<Url, String> {
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username("postgres")
        .database("postgres")
        .ssl_mode(PgSslMode::Disable);
    let data = own.path("data");
    let ask = || async { Ok((data_directory(&options).await? == data).then_some(())) };
    own.answer(START_TIMEOUT, ask).await?;
    Url::parse(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).map_err(|e| e.to_string())
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
