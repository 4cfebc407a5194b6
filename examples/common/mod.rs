//! What the examples share: the file of deliveries, and the databases that a URL can name.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::anyhow;

pub(crate) const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/deliveries.jsonl");
const URLS: &str = "sqlite:FILE, postgres://… or mysql://…";

/// A file of deliveries that is there, and can be read.
pub(crate) struct Input {
    pub(crate) lines: BufReader<File>,
    /// The file's size, for a progress bar.
    #[allow(dead_code)] // not every example has one
    pub(crate) bytes: u64,
}

impl Input {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || {
            let file = File::open(path)?;
            let bytes = file.metadata()?.len();
            let mut lines = BufReader::new(file);
            // A folder opens like a file, and only reading tells. Some editors start a file with a mark.
            if lines.fill_buf()?.starts_with("\u{feff}".as_bytes()) {
                lines.consume("\u{feff}".len());
            }
            Ok(Self { lines, bytes })
        };
        open().map_err(|error: std::io::Error| {
            anyhow::Error::new(error).context(format!("could not read deliveries from {}", path.display()))
        })
    }
}

/// Why this build opens no database for a URL.
pub(crate) fn no_database(url: &str) -> anyhow::Error {
    match url.split_once(':') {
        Some(("sqlite", _)) => anyhow!("this build knows no SQLite: build it with --features sqlite"),
        Some(("postgres" | "postgresql", _)) => {
            anyhow!("this build knows no PostgreSQL: build it with --features postgres")
        }
        Some(("mysql" | "mariadb", _)) => {
            anyhow!("this build knows no MySQL or MariaDB: build it with --features mysql")
        }
        // The URL itself may hold a password.
        Some((scheme, _)) => anyhow!("no database has URLs of the scheme {scheme:?}: use {URLS}"),
        None => anyhow!("{url:?} is no database URL: use {URLS}"),
    }
}

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite {
    use anyhow::bail;
    use inbox::sqlite::SqliteStore;

    pub(crate) fn open(path: &str) -> anyhow::Result<SqliteStore> {
        Ok(match path.strip_prefix("//").unwrap_or(path) {
            "" => bail!("the database URL names no file: use sqlite:FILE"),
            ":memory:" => SqliteStore::in_memory()?,
            file => SqliteStore::new(file)?,
        })
    }
}

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use anyhow::Context;
    use inbox::postgres::PostgresStore;
    use inbox::postgres::sqlx::{Connection, PgConnection, postgres::PgPoolOptions};

    pub(crate) async fn open(url: &str, connections: u32) -> anyhow::Result<PostgresStore> {
        // A pool alone would try again for half a minute, and then not say why.
        let trial = PgConnection::connect(url).await.context("could not connect to PostgreSQL")?;
        trial.close().await?;
        Ok(PostgresStore::new(PgPoolOptions::new().max_connections(connections).connect_lazy(url)?))
    }
}

#[cfg(feature = "mysql")]
pub(crate) mod mysql {
    use anyhow::Context;
    use inbox::mysql::MySqlStore;
    use inbox::mysql::sqlx::{Connection, MySqlConnection, mysql::MySqlPoolOptions};

    pub(crate) async fn open(url: &str, connections: u32) -> anyhow::Result<MySqlStore> {
        let pool = MySqlPoolOptions::new().max_connections(connections).connect_lazy(url)?;
        let store = MySqlStore::new(pool)?;
        // A pool alone would try again for half a minute, and then not say why.
        let trial = MySqlConnection::connect(url).await.context("could not connect to MySQL or MariaDB")?;
        trial.close().await?;
        Ok(store)
    }
}
