//! What can go wrong with a server, and what to do about it.

use std::path::PathBuf;
use std::sync::Arc;

/// Why there is no server, or no database on it.
///
/// Clones, so that each test that shares a server gets the reason why it did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server is found nowhere. The text says what to install, or which variable to set.
    #[error("no {server} was found: {advice}")]
    NotFound {
        /// What was asked for, such as `PostgreSQL 18` or `MariaDB 10.11`.
        server: String,
        /// Each way out, in words.
        advice: String,
    },

    /// The server that answers is not the one asked for. Correct the URL variable or the
    /// installation that the text names.
    #[error("{server} was asked for, but {place} is version {version}")]
    WrongVersion {
        /// What was asked for, such as `PostgreSQL 18`.
        server: String,
        /// Where it came from: a variable or a program.
        place: String,
        /// What the server says that it is.
        version: String,
    },

    /// A URL cannot be read: correct it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[error(
        "{place} is no URL of a server (such as postgres://user@host:5432/postgres or mysql://user@host:3306)"
    )]
    Url {
        /// The variable, or `the URL` of a call. Never the URL itself, which may hold a password.
        place: String,
        /// What is wrong with it.
        #[source]
        source: url::ParseError,
    },

    /// A program or a file that starting a server takes could not be used.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// `run`, `read`, …
        doing: &'static str,
        /// What it was done with.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Arc<std::io::Error>,
    },

    /// The server ended, or did not answer in time. The end of its log usually tells why.
    #[error("{server} did not start: {reason}; its log ends with:\n{log}")]
    Start {
        /// Which server, such as `PostgreSQL 18`.
        server: String,
        /// What was seen.
        reason: String,
        /// The last lines of its log.
        log: String,
    },

    /// The server does not do what the maintenance of test databases asks for. The source tells
    /// why: a role without `CREATEDB`, too many connections, a server that is gone.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[error("could not {doing}")]
    Maintenance {
        /// What was being done, and with what.
        doing: String,
        /// The driver's error.
        #[source]
        source: Arc<sqlx::Error>,
    },

    /// The server was stopped while something was asked of it.
    #[error("the server was stopped")]
    Stopped,

    /// The container engine does not start a container: see the source. Without an engine, install
    /// the server or give it by URL.
    #[cfg(feature = "containers")]
    #[error("could not start {image} in a container")]
    Container {
        /// The image and its tag.
        image: String,
        /// The container client's error.
        #[source]
        source: Arc<testcontainers::TestcontainersError>,
    },
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl ServerError {
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { doing, path: path.into(), source: Arc::new(source) }
    }

    pub(super) fn maintenance(doing: impl Into<String>, source: sqlx::Error) -> Self {
        Self::Maintenance { doing: doing.into(), source: Arc::new(source) }
    }
}
