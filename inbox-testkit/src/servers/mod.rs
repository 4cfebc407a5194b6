//! Throw-away database servers for tests.
//!
//! A test asks for a server and gets a fresh database on it:
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example() -> Result<(), inbox_testkit::servers::ServerError> {
//! use inbox_testkit::servers::{PostgresServer, Wanted};
//!
//! let server = PostgresServer::shared(Wanted::Major(18)).await?;   // started once per process
//! let database = server.fresh_database().await?;                   // removed when dropped
//! println!("{} has {}", server.version(), database.url());
//! # Ok(())
//! # }
//! ```
//!
//! PostgreSQL and PgBouncer come with the cargo feature `postgres`, MySQL and MariaDB
//! (`MySqlServer::shared(MySqlWanted::MySql)`) with `mysql`. Both are on by default, and neither builds
//! the other's driver.
//!
//! # Where a server comes from
//!
//! The first of these that is there:
//!
//! 1. **A URL in the environment**: `INBOX_TEST_POSTGRES_18_URL` for version 18 (any major version
//!    alike), else `INBOX_TEST_POSTGRES_URL` where its version is the wanted one. Its role needs
//!    `CREATEDB`. `INBOX_TEST_MARIADB_10_11_URL`, `INBOX_TEST_MARIADB_11_8_URL` and
//!    `INBOX_TEST_MYSQL_URL` give those; a server that says to be another is an error. Its user may
//!    create databases, see the sessions in them (`PROCESS`) and end these (`CONNECTION ADMIN`). What a
//!    killed run left on such a server, a later run removes.
//! 2. **An installed server**: PostgreSQL of Debian's `/usr/lib/postgresql`, of the PostgreSQL
//!    project's RPMs, of Homebrew, or on `PATH`; MySQL or MariaDB on `PATH`, in `/usr/sbin`,
//!    `/usr/libexec` or of Homebrew, whose program says which of both it is. It runs on a free port of
//!    the loopback interface, with all its files in a temporary folder, and reads no configuration of
//!    the machine's own. Engines refuse to run as root: started by root, it runs as `nobody`.
//! 3. **An unpacked server**, for versions that cannot be installed: a root folder such as
//!    `postgres-18`, `mariadb-11.8` or `mysql` in `INBOX_SERVERS_DIR`, else in the folder `servers` of
//!    the cargo target folder that holds the running program. It needs root. The command
//!    `cargo xtask servers` of this project's repository makes these.
//! 4. **A container**, with the cargo feature `containers`.
//!
//! A server that is found nowhere is an error, never a silent skip, and the error says what to
//! install or to set. `INBOX_TEST_SKIP=postgres_18,mysql` names what may be left out: see
//! [`skip_requested`].
//!
//! # How it ends
//!
//! A server that was started here ends with the process that started it, however that ends: a
//! small shell process holds the other end of a pipe, and once the pipe closes, stops the server
//! and removes its folder. Under a runner with one process per test, such as `cargo nextest`, every
//! test would start its own: give the servers by URL there.

mod error;
#[cfg_attr(
    not(all(feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "it knows of each engine, and without one only skips are asked for")
)]
mod places;
pub use error::ServerError;

// What engines share. Only an engine's feature makes use of it.
#[cfg(all(feature = "containers", any(feature = "postgres", feature = "mysql")))]
mod container;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod database;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod installation;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod port;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod server;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod supervisor;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod pgbouncer;
#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "mysql")]
pub use mysql::{Flavour, MySqlDatabase, MySqlOptions, MySqlServer, MySqlWanted};
#[cfg(feature = "postgres")]
pub use pgbouncer::{PgBouncer, PgBouncerOptions};
#[cfg(feature = "postgres")]
pub use postgres::{Database, PostgresOptions, PostgresServer, Wanted};

/// True when `INBOX_TEST_SKIP`, a list with commas, names this stand: `postgres`, `postgres_18`,
/// `pgbouncer`, `mariadb_10_11`, `mariadb_11_8`, `mysql`, or one of them with `_own`, such as
/// `postgres_own` and `mysql_own` (tests for which a server by URL is not enough).
///
/// This is the only way to leave a server out. A test harness asks before it asks for the server,
/// and reports the stand as skipped; without the name in the list a missing server is a failed test.
pub fn skip_requested(stand: &str) -> bool {
    places::skipped().iter().any(|name| name == stand)
}
