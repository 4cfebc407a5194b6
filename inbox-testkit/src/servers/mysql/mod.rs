//! MySQL and MariaDB: given by URL, installed, unpacked, or in a container.

mod database;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions as _, Connection as _};
use url::Url;

pub use database::MySqlDatabase;
use database::MySqlEngine;

use super::installation::{Installation, is_root};
use super::places::{MySqlStand, MySqlVersion};
use super::server::{Advice, Server, Shared, parse};
use super::supervisor::{Plan, Supervised};
use super::{ServerError, places, port};

/// The products that speak MySQL's protocol. They differ in what their statements and locks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavour {
    /// MariaDB.
    MariaDb,
    /// MySQL of Oracle, and what calls itself by its versions.
    MySql,
}

impl std::fmt::Display for Flavour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        })
    }
}

/// Which MySQL or MariaDB a test asks for. The server's own word decides whether it is the one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MySqlWanted {
    /// MariaDB 10.11, where `innodb_snapshot_isolation` is off.
    MariaDb10_11,
    /// MariaDB 11.8 or later, where it is on.
    MariaDb11_8,
    /// MySQL 8.0 or later, and never a MariaDB.
    MySql,
}

impl MySqlWanted {
    /// Each of them, for tests that run on all.
    pub const ALL: [Self; 3] = [Self::MariaDb10_11, Self::MariaDb11_8, Self::MySql];

    /// The name that [`skip_requested`](super::skip_requested) takes: `mariadb_10_11`,
    /// `mariadb_11_8`, `mysql`.
    pub fn stand(self) -> &'static str {
        self.description().name
    }

    /// The name that [`skip_requested`](super::skip_requested) takes for tests that start a server of
    /// their own, such as `mysql_own`: where the environment gives this one by URL and none is
    /// installed, they cannot run.
    pub fn own_stand(self) -> &'static str {
        self.description().own
    }

    /// The product that is asked for.
    pub fn flavour(self) -> Flavour {
        if self.description().mariadb { Flavour::MariaDb } else { Flavour::MySql }
    }

    fn description(self) -> &'static MySqlStand {
        match self {
            Self::MariaDb10_11 => &places::MARIADB_10_11,
            Self::MariaDb11_8 => &places::MARIADB_11_8,
            Self::MySql => &places::MYSQL,
        }
    }

    fn url_variable(self) -> String {
        places::url_variable(self.stand())
    }

    /// The server if it is the wanted one; `place` tells where it came from.
    fn accept(self, server: MySqlServer, place: impl FnOnce() -> String) -> Result<MySqlServer, ServerError> {
        let mariadb = server.flavour() == Flavour::MariaDb;
        match self.description().fits(MySqlVersion { mariadb, number: server.release() }) {
            true => Ok(server),
            false => Err(ServerError::WrongVersion {
                server: self.to_string(),
                place: place(),
                version: format!("{} of {}", server.version(), server.flavour()),
            }),
        }
    }
}

impl std::fmt::Display for MySqlWanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.description().server)
    }
}

/// A running MySQL or MariaDB on which tests may do as they like. A clone is the same server.
///
/// A server that was started here ends with its last clone and last [`MySqlDatabase`], or with the
/// process.
#[derive(Clone)]
pub struct MySqlServer {
    server: Arc<Server<MySqlEngine>>,
}

impl MySqlServer {
    /// The server that all tests of this process share, from the first place in the
    /// [module's list](super) that has one. Starts it if needed, once: MariaDB in about one second,
    /// MySQL in about five. A server that failed to start is not tried again.
    ///
    /// Every test wants a [`fresh_database`](Self::fresh_database). One that changes or ends the
    /// server itself starts its own: [`MySqlOptions::start`].
    ///
    /// # Errors
    ///
    /// Any [`ServerError`]; [`ServerError::NotFound`] when there is no such server, and then the
    /// test fails unless [`skip_requested`](super::skip_requested) names its stand.
    pub async fn shared(wanted: MySqlWanted) -> Result<Self, ServerError> {
        static SERVERS: Shared<MySqlWanted, MySqlServer> = Shared::new();
        let start = async {
            match Self::given(wanted).await? {
                Some(server) => Ok(server),
                None => MySqlOptions::new(wanted).start().await,
            }
        };
        SERVERS.get(wanted, start).await
    }

    /// A running server by its URL, whose user may create databases, see the sessions in them and
    /// end these. It is never stopped here.
    ///
    /// # Errors
    ///
    /// [`ServerError::Url`], or [`ServerError::Maintenance`] when it cannot be reached.
    pub async fn at(url: &str) -> Result<Self, ServerError> {
        Ok(Server::at(parse(url, "the URL")?).await?.into())
    }

    /// The server that the environment gives, if it does.
    async fn given(wanted: MySqlWanted) -> Result<Option<Self>, ServerError> {
        let variable = wanted.url_variable();
        let Some(url) = places::given_url(&variable) else { return Ok(None) };
        let server = Self::from(Server::at(parse(&url, &variable)?).await?);
        wanted.accept(server, || format!("the server that {variable} gives")).map(Some)
    }

    /// The URL of the server, with a user that may create databases.
    pub fn url(&self) -> &str {
        self.server.url().as_str()
    }

    /// The version in the server's own words, those of `SELECT VERSION()`: `9.7.4-2`,
    /// `10.11.14-MariaDB-0+deb12u2`.
    pub fn version(&self) -> &str {
        &self.server.version().text
    }

    /// The major and minor version, such as `(10, 11)`.
    pub fn release(&self) -> (u32, u32) {
        self.server.version().number
    }

    /// Which product it is, in its own words. A URL and the name of a program do not tell: many
    /// systems call MariaDB's program `mysqld`.
    pub fn flavour(&self) -> Flavour {
        self.server.version().flavour
    }

    /// The process id of a server that was started here, for tests that kill it.
    pub fn process_id(&self) -> Option<u32> {
        self.server.process_id()
    }

    /// The folder of a server that was started here: its data in `data`, its log in `log`.
    pub fn folder(&self) -> Option<PathBuf> {
        self.server.folder()
    }

    /// A new, empty database (utf8mb4, with the collation that this server gives it) of this test alone.
    ///
    /// # Errors
    ///
    /// [`ServerError::Maintenance`], or [`ServerError::Stopped`] after [`stop`](Self::stop).
    pub async fn fresh_database(&self) -> Result<MySqlDatabase, ServerError> {
        Ok(MySqlDatabase::new(self.clone(), self.server.fresh().await?))
    }

    /// Stops a server that was started here, and waits until its process and its folder are gone.
    /// A server given by URL is left running.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

impl From<Server<MySqlEngine>> for MySqlServer {
    fn from(server: Server<MySqlEngine>) -> Self {
        Self { server: Arc::new(server) }
    }
}

impl std::fmt::Debug for MySqlServer {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlServer")
            .field("flavour", &self.flavour())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

/// What a test server is told: `(name, value, reason)`.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("bind-address", "127.0.0.1", "nobody else's business"),
    ("socket", "", "a temporary folder's path can be too long for one"),
    ("skip-name-resolve", "ON", "the user's host is an address"),
    ("max-connections", "300", "tests run side by side, each with its pools"),
    ("max-connect-errors", "1000000", "tests cut connections, which are not to lock their host out"),
    ("character-set-server", "utf8mb4", "MariaDB 10.11 has latin1, and Debian's configuration this"),
    ("innodb-buffer-pool-size", "64M", "several servers run side by side"),
];

/// Told to MariaDB alone.
const MARIADB: &[(&str, &str, &str)] = &[
    ("innodb-log-file-size", "32M", "it is written in full at the first start"),
    ("performance-schema", "OFF", "as by default"),
];

/// Told to MySQL alone. Its performance schema is on by default, and tests look into it.
const MYSQL: &[(&str, &str, &str)] = &[
    ("mysqlx", "OFF", "a second port, which another server may have"),
    ("secure-file-priv", "NULL", "the folder that was compiled in is not there"),
    ("innodb-redo-log-capacity", "64M", "it is written in full at the first start"),
    ("auto-generate-certs", "OFF", "nobody encrypts on the loopback interface, and keys take time"),
    ("caching-sha2-password-auto-generate-rsa-keys", "OFF", "keys take time, and no password needs them"),
];

/// Told to a server whose data need not outlive a crash of the machine.
const NOT_DURABLE: &[(&str, &str, &str)] = &[
    ("innodb-flush-log-at-trx-commit", "0", "nothing here is kept"),
    ("innodb-doublewrite", "OFF", "nothing here is kept"),
    ("sync-binlog", "0", "nothing here is kept"),
    // Loose: newer versions of MariaDB deprecate it.
    ("loose-innodb-flush-method", "nosync", "nothing here is kept"),
];

/// How long a server may take until it answers, the making of its data included. Seconds are usual;
/// a machine that compiles on all cores takes longer.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A MySQL or MariaDB of a test's own, to be configured, stopped or killed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MySqlOptions {
    wanted: MySqlWanted,
    durable: bool,
    settings: Vec<(String, String)>,
    programs: Option<Vec<PathBuf>>,
}

impl MySqlOptions {
    /// A server that flushes nothing at a commit, as installed, unpacked, or in a container: a server
    /// by URL is shared, and not for this. It has no binary log.
    pub fn new(wanted: MySqlWanted) -> Self {
        Self { wanted, durable: false, settings: Vec::new(), programs: None }
    }

    /// True leaves flushes at a commit and the doublewrite buffer on, for tests that need a real
    /// commit. Off by default.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// An option of the server, such as `("innodb-lock-wait-timeout", "3")`. Later ones win.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Looks for the programs `mariadbd` and `mysqld` in these folders only.
    pub fn programs_in<P: Into<PathBuf>>(mut self, folders: impl IntoIterator<Item = P>) -> Self {
        self.programs = Some(folders.into_iter().map(Into::into).collect());
        self
    }

    /// Starts the server: MariaDB in about one second, MySQL in about five; gives up after 120.
    ///
    /// # Errors
    ///
    /// Any [`ServerError`]; [`ServerError::NotFound`] says what to install or to set.
    pub async fn start(self) -> Result<MySqlServer, ServerError> {
        let Some(program) = self.program() else {
            #[cfg(feature = "containers")]
            if self.programs.is_none() {
                return super::container::mysql(self.wanted, &self.arguments()).await;
            }
            return Err(self.not_found());
        };
        let (url, own) = self.run(&program).await?;
        let server = MySqlServer::from(Server::started(url, own).await?);
        self.wanted.accept(server, || program.installation.to_string())
    }

    async fn run(&self, program: &Program) -> Result<(Url, Supervised), ServerError> {
        let mut attempts = port::Attempts::new();
        loop {
            let port = attempts.port()?;
            let own = self.serve(program, port)?;
            match answers(&own, port).await {
                Ok(url) => return Ok((url, own)),
                Err(reason) => {
                    let server = format!("{} of {}", self.wanted, program.installation);
                    attempts.failed(server, &own, reason)?;
                }
            }
        }
    }

    fn serve(&self, program: &Program, port: u16) -> Result<Supervised, ServerError> {
        let plan = Plan::new(program.installation.clone(), self.wanted.stand()).folder("tmp");
        // What is in a configuration file of the machine is for the machine's own server.
        let mut args = vec![
            "--no-defaults".to_owned(),
            format!("--datadir={}", plan.path("data")),
            // A MariaDB that starts removes the temporary tables that it finds, another server's too.
            format!("--tmpdir={}", plan.path("tmp")),
            format!("--port={port}"),
        ];
        args.extend(self.arguments());
        let plan = match &program.system_tables {
            Some(tables) => with_mariadb_data(plan, &program.name, tables, &args),
            None => with_mysql_data(plan, &program.name, &args),
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // There is nothing to flush for later.
        plan.serve(&program.name, &args, "KILL")
    }

    /// The server's options. Those of a test come last and win.
    fn arguments(&self) -> Vec<String> {
        let product = match self.wanted.flavour() {
            Flavour::MariaDb => MARIADB,
            Flavour::MySql => MYSQL,
        };
        let not_durable = if self.durable { &[][..] } else { NOT_DURABLE };
        let defaults = SETTINGS.iter().chain(product).chain(not_durable);
        ["--skip-log-bin".to_owned()]
            .into_iter()
            .chain(defaults.map(|(name, value, _)| format!("--{name}={value}")))
            .chain(self.settings.iter().map(|(name, value)| format!("--{name}={value}")))
            .collect()
    }

    fn program(&self) -> Option<Program> {
        let stand = self.wanted.description();
        let installed = |path: PathBuf| Program::new(Installation::installed(path.parent()?), &path, stand);
        if let Some(folders) = &self.programs {
            return stand.installed_in(folders).and_then(installed);
        }
        let unpacked = || {
            let (root, path) = (stand.unpacked().filter(|_| is_root())?, Path::new(stand.program));
            Program::new(Installation::unpacked(root, path.parent()?.to_path_buf()), path, stand)
        };
        stand.installed().and_then(installed).or_else(unpacked)
    }

    fn not_found(&self) -> ServerError {
        let stand = self.wanted.description();
        let advice = Advice {
            server: stand.server,
            package: stand.package,
            variable: &self.wanted.url_variable(),
            stand: stand.name,
            own_stand: stand.own,
            programs: self.programs.as_deref(),
        };
        advice.not_found()
    }
}

/// A server's program, and what it takes to make data for it.
struct Program {
    installation: Installation,
    name: String,
    /// Of MariaDB; MySQL makes them by itself.
    system_tables: Option<[String; 3]>,
}

impl Program {
    fn new(installation: Installation, path: &Path, stand: &MySqlStand) -> Option<Self> {
        let system_tables = match stand.mariadb {
            true => {
                let tables = places::system_tables(&installation.outside(path))?;
                Some(tables.map(|file| installation.program(&file)))
            }
            false => None,
        };
        Some(Self { installation, name: path.file_name()?.to_str()?.to_owned(), system_tables })
    }
}

/// MariaDB's system tables, with `root` from 127.0.0.1 as the only user who gets in.
fn with_mariadb_data(plan: Plan, program: &str, tables: &[String; 3], args: &[String]) -> Plan {
    const FIRST: &str = "\
CREATE DATABASE mysql;
USE mysql;
SET @auth_root_socket = NULL;
SET @skip_auth_anonymous = 1;
";
    let mut files = vec![plan.path("bootstrap.sql")];
    files.extend_from_slice(tables);
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.push("--bootstrap");
    plan.folder("data").write("bootstrap.sql", FIRST).run_on(&files, program, &args)
}

/// MySQL's system tables, and a user besides `root@localhost`, whose name no address resolves to.
fn with_mysql_data(plan: Plan, program: &str, args: &[String]) -> Plan {
    const USER: &str = "\
CREATE USER root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
";
    let user = format!("--init-file={}", plan.path("user.sql"));
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend(["--initialize-insecure", &user]);
    plan.write("user.sql", USER).run(program, &args)
}

/// Waits until the server answers, and is the one with its data. Its URL, or the reason why not.
async fn answers(own: &Supervised, port: u16) -> Result<Url, String> {
    let options = MySqlConnectOptions::new()
        .host("127.0.0.1")
        .port(port)
        .username("root")
        .ssl_mode(MySqlSslMode::Disabled);
    let data = own.path("data/");
    let ask = || async { Ok((data_directory(&options).await? == data).then_some(())) };
    own.answer(START_TIMEOUT, ask).await?;
    Url::parse(&format!("mysql://root@127.0.0.1:{port}")).map_err(|e| e.to_string())
}

async fn data_directory(options: &MySqlConnectOptions) -> Result<String, sqlx::Error> {
    let mut connection: MySqlConnection = options.connect().await?;
    let data = sqlx::query_scalar("SELECT @@datadir").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_own_stands_and_variable() {
        let wanted = MySqlWanted::MariaDb10_11;
        assert_eq!(wanted.url_variable(), "INBOX_TEST_MARIADB_10_11_URL");
        assert_eq!((wanted.stand(), wanted.own_stand()), ("mariadb_10_11", "mariadb_10_11_own"));
    }

    #[test]
    fn a_setting_of_the_options_comes_last_and_wins() {
        let options = MySqlOptions::new(MySqlWanted::MySql).setting("sync-binlog", "1");
        assert_eq!(options.arguments().last().map(String::as_str), Some("--sync-binlog=1"));
    }

    #[test]
    fn a_durable_server_keeps_its_flushes() {
        let flushes = |durable| {
            let arguments = MySqlOptions::new(MySqlWanted::MySql).durable(durable).arguments();
            !arguments.iter().any(|argument| argument.starts_with("--innodb-flush-log-at-trx-commit"))
        };
        assert_eq!((flushes(false), flushes(true)), (false, true));
    }
}
