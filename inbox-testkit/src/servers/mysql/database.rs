//! A test's database on MySQL or MariaDB, and the SQL that makes and removes it.

use sqlx::mysql::{MySql, MySqlConnection, MySqlPool};
use sqlx::{AssertSqlSafe, Error};

use super::{Flavour, MySqlServer};
use crate::servers::ServerError;
use crate::servers::database::{Engine, Fresh};
use crate::servers::places::MySqlVersion;

/// A database of one test alone, removed when this is dropped, on panic too, with all connections
/// to it. Keeps its server running.
///
/// The removal happens in the background. To be sure that it is done, [`close`](Self::close) it.
#[derive(Debug)]
pub struct MySqlDatabase {
    // Dropped before the server, which it is removed from.
    fresh: Fresh,
    server: MySqlServer,
}

impl MySqlDatabase {
    pub(super) fn new(server: MySqlServer, fresh: Fresh) -> Self {
        Self { fresh, server }
    }

    /// The URL of this database.
    pub fn url(&self) -> &str {
        self.fresh.url()
    }

    /// The name of this database, a plain identifier.
    pub fn name(&self) -> &str {
        self.fresh.name()
    }

    /// The server that it is on.
    pub fn server(&self) -> &MySqlServer {
        &self.server
    }

    /// Ends all connections to the database, removes it, and waits for that.
    ///
    /// # Errors
    ///
    /// [`ServerError::Maintenance`], such as when prepared transactions hold one of its tables.
    pub async fn close(self) -> Result<(), ServerError> {
        // Until it is removed, its server has to run.
        let Self { fresh, server: _server } = self;
        fresh.close().await
    }
}

/// What the server says of itself.
#[derive(Debug)]
pub(crate) struct Version {
    pub(super) text: String,
    pub(super) number: (u32, u32),
    pub(super) flavour: Flavour,
}

#[derive(Debug)]
pub(crate) struct MySqlEngine;

impl Engine for MySqlEngine {
    type Driver = MySql;
    type Version = Version;
    const NAME: &str = "MySQL or MariaDB";
    const PORT: u16 = 3306;

    async fn version(connection: &mut MySqlConnection) -> Result<Version, Error> {
        let (text, comment): (String, String) =
            sqlx::query_as("SELECT VERSION(), @@version_comment").fetch_one(connection).await?;
        // A distribution may leave the product's name out of either.
        let parsed = MySqlVersion::parse(&format!("{text} {comment}"))
            .ok_or_else(|| Error::Protocol(format!("a version of MySQL without a number: {text}")))?;
        let flavour = if parsed.mariadb { Flavour::MariaDb } else { Flavour::MySql };
        Ok(Version { text, number: parsed.number, flavour })
    }

    async fn lock(connection: &mut MySqlConnection, run: u32) -> Result<(), Error> {
        // Waits for a lost session's end, which the server may see later than its client.
        let lock = sqlx::query_scalar("SELECT GET_LOCK(?, 60)").bind(lock_of(run));
        match lock.fetch_one(connection).await? {
            Some(1_i64) => Ok(()),
            _ => Err(Error::Protocol("the lock is held by another session".to_owned())),
        }
    }

    async fn is_locked(pool: &MySqlPool, run: u32) -> Result<bool, Error> {
        let free: Option<i64> =
            sqlx::query_scalar("SELECT IS_FREE_LOCK(?)").bind(lock_of(run)).fetch_one(pool).await?;
        Ok(free != Some(1))
    }

    async fn databases(pool: &MySqlPool) -> Result<Vec<String>, Error> {
        sqlx::query_scalar(
            r"SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata
              WHERE schema_name LIKE 'inbox\_test\_%'",
        )
        .fetch_all(pool)
        .await
    }

    async fn create(pool: &MySqlPool, name: &str) -> Result<(), Error> {
        let sql = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.map(drop)
    }

    async fn remove(pool: &MySqlPool, name: &str) -> Result<(), Error> {
        let mut connection = pool.acquire().await?;
        // Without its sessions' end the removal would wait for their transactions. One may have
        // ended meanwhile, or be another role's: the removal tells whether that is in the way.
        let sessions: Vec<i64> =
            sqlx::query_scalar("SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?")
                .bind(name)
                .fetch_all(&mut *connection)
                .await?;
        for session in sessions {
            let kill = AssertSqlSafe(format!("KILL {session}"));
            let _ = sqlx::raw_sql(kill).execute(&mut *connection).await;
        }
        let sql = format!("SET SESSION lock_wait_timeout = 5; DROP DATABASE IF EXISTS {name}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await.map(drop)
    }
}

fn lock_of(run: u32) -> String {
    format!("inbox_test_{run:08x}")
}
