//! PgBouncer in transaction mode, in front of a PostgreSQL server.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _};
use url::Url;

use super::installation::Installation;
use super::supervisor::{Plan, Supervised};
use super::{Database, PostgresServer, ServerError, places, port};

/// How a PgBouncer is run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PgBouncerOptions {
    settings: Vec<(String, String)>,
}

impl Default for PgBouncerOptions {
    /// Two server connections for each database, so that clients have to share them; 500 clients.
    fn default() -> Self {
        let settings = [
            ("pool_mode", "transaction"),
            ("default_pool_size", "2"),
            ("max_client_conn", "500"),
            // Drivers send it, and PgBouncer refuses what it cannot carry over.
            ("ignore_startup_parameters", "extra_float_digits"),
            ("auth_type", "any"),
            ("listen_addr", "127.0.0.1"),
            ("unix_socket_dir", ""),
        ];
        Self { settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec() }
    }
}

impl PgBouncerOptions {
    /// Two server connections for each database, in transaction mode.
    pub fn new() -> Self {
        Self::default()
    }

    /// A setting of the section `[pgbouncer]`, such as `("default_pool_size", "1")`. Later ones win.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    fn configuration(&self, server: &PostgresServer, alias: &str, port: u16) -> String {
        let target = target(server);
        let mut text = format!(
            "[databases]\n{alias} = {target} dbname={}\n* = {target}\n[pgbouncer]\nlisten_port = {port}\n",
            quoted(&path_of(server))
        );
        for (name, value) in &self.settings {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text
    }
}

/// A running PgBouncer. It ends when this is dropped, or with the process.
///
/// Version 1.20 and older know no prepared statements in transaction mode: connect with
/// `statement_cache_capacity=0`, or see what happens without.
#[derive(Debug)]
pub struct PgBouncer {
    own: Supervised,
    port: u16,
    version: String,
    server: PostgresServer,
}

impl PgBouncer {
    /// The name that [`skip_requested`](super::skip_requested) takes.
    pub const STAND: &str = "pgbouncer";

    /// Starts the installed PgBouncer in front of `server`, for all its databases, also for those
    /// that are made later.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotFound`] says what to install; [`ServerError::Start`] has the end of its log.
    pub async fn start(server: &PostgresServer, options: PgBouncerOptions) -> Result<Self, ServerError> {
        let programs = places::installed_pgbouncer().ok_or_else(not_found)?;
        let installation = Installation::installed(programs);
        let mut attempts = port::Attempts::new();
        loop {
            let port = attempts.port()?;
            let alias = format!("inbox_ready_{:016x}", fastrand::u64(..));
            let plan = Plan::new(installation.clone(), "pgbouncer");
            let file = plan.path("pgbouncer.ini");
            let own = plan
                .write("pgbouncer.ini", &options.configuration(server, &alias, port))
                // It keeps nothing, and what a milder signal means depends on its version.
                .serve("pgbouncer", &[&file], "KILL")?;
            match answers(&own, port, &alias).await {
                Ok(()) => {
                    let version = version(&own);
                    return Ok(Self { own, port, version, server: server.clone() });
                }
                Err(reason) => attempts.failed(format!("PgBouncer of {installation}"), &own, reason)?,
            }
        }
    }

    /// The URL of a database of the server, through this PgBouncer.
    pub fn url_of(&self, database: &Database) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}?sslmode=disable", self.port, database.name())
    }

    /// The version in its own words, such as `1.18.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The server behind it.
    pub fn server(&self) -> &PostgresServer {
        &self.server
    }

    /// Stops it, and waits until its process and its folder are gone.
    pub async fn stop(self) {
        self.own.stop().await;
    }
}

fn not_found() -> ServerError {
    ServerError::NotFound {
        server: "PgBouncer".to_owned(),
        advice: "install it (package `pgbouncer`; `cargo xtask servers` does in a checkout of inbox), or leave its \
                 tests out with INBOX_TEST_SKIP=pgbouncer"
            .to_owned(),
    }
}

/// How to reach the server, in the words of PgBouncer's configuration.
fn target(server: &PostgresServer) -> String {
    let url = server.url_of("");
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut words = format!(
        "host={} port={} user={}",
        url.host_str().unwrap_or("127.0.0.1"),
        url.port().unwrap_or(5432),
        quoted(&decoded(url.username()))
    );
    if let Some(password) = url.password() {
        words.push_str(&format!(" password={}", quoted(&decoded(password))));
    }
    words
}

fn path_of(server: &PostgresServer) -> String {
    Url::parse(server.url()).map(|url| url.path().trim_start_matches('/').to_owned()).unwrap_or_default()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Waits until it answers for a name that only it knows: another process may have taken the port,
/// with a PgBouncer of its own.
async fn answers(own: &Supervised, port: u16, alias: &str) -> Result<(), String> {
    const TIMEOUT: Duration = Duration::from_secs(30);
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username("postgres")
        .database(alias)
        .ssl_mode(PgSslMode::Disable);
    own.answer(TIMEOUT, || async { ask(&options).await.map(Some) }).await
}

async fn ask(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut connection = options.connect().await?;
    sqlx::raw_sql("SELECT 1").execute(&mut connection).await?;
    connection.close().await
}

/// The version from its first words in the log: `process up: PgBouncer 1.18.0, …`.
fn version(own: &Supervised) -> String {
    let log = own.log_tail();
    let words = log.split("PgBouncer ").nth(1).unwrap_or("unknown");
    words.split([',', ' ', '\n']).next().unwrap_or("unknown").to_owned()
}
