//! A test's database on PostgreSQL, and the SQL that makes and removes it.

use sqlx::postgres::{PgConnection, PgPool, Postgres};
use sqlx::{AssertSqlSafe, Error};

use super::PostgresServer;
use crate::servers::ServerError;
use crate::servers::database::{Engine, Fresh};

/// A database of one test alone, removed when this is dropped, on panic too, with all connections
/// to it. Keeps its server running.
///
/// The removal happens in the background. To be sure that it is done, [`close`](Self::close) it.
#[derive(Debug)]
pub struct Database {
    // Dropped before the server, which it is removed from.
    fresh: Fresh,
    server: PostgresServer,
}

impl Database {
    pub(super) fn new(server: PostgresServer, fresh: Fresh) -> Self {
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
    pub fn server(&self) -> &PostgresServer {
        &self.server
    }

    /// Ends all connections to the database, removes it, and waits for that.
    ///
    /// # Errors
    ///
    /// [`ServerError::Maintenance`], such as when prepared transactions are left in it.
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
    pub(super) major: u32,
}

/// The first key of the owners' advisory locks, which tells them from anybody else's.
const LOCKS: i32 = i32::from_be_bytes(*b"inbx");

#[derive(Debug)]
pub(crate) struct PostgresEngine;

impl Engine for PostgresEngine {
    type Driver = Postgres;
    type Version = Version;
    const NAME: &str = "PostgreSQL";
    const PORT: u16 = 5432;

    async fn version(connection: &mut PgConnection) -> Result<Version, Error> {
        let (text, number): (String, i32) = sqlx::query_as(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int4",
        )
        .fetch_one(connection)
        .await?;
        Ok(Version { text, major: number.unsigned_abs() / 10_000 })
    }

    async fn lock(connection: &mut PgConnection, run: u32) -> Result<(), Error> {
        let lock = sqlx::query("SELECT pg_advisory_lock($1, $2)").bind(LOCKS).bind(run.cast_signed());
        lock.execute(connection).await.map(drop)
    }

    async fn is_locked(pool: &PgPool, run: u32) -> Result<bool, Error> {
        // Of any database on the server: an owner may have been given another URL.
        sqlx::query_scalar(
            "SELECT EXISTS (
                 SELECT FROM pg_locks
                 WHERE locktype = 'advisory' AND objsubid = 2 AND granted
                   AND classid::int8 = $1 AND objid::int8 = $2
             )",
        )
        .bind(i64::from(LOCKS))
        .bind(i64::from(run))
        .fetch_one(pool)
        .await
    }

    async fn databases(pool: &PgPool) -> Result<Vec<String>, Error> {
        sqlx::query_scalar(r"SELECT datname FROM pg_database WHERE datname LIKE 'inbox\_test\_%'")
            .fetch_all(pool)
            .await
    }

    async fn create(pool: &PgPool, name: &str) -> Result<(), Error> {
        // template0: whatever the server's owner put into template1 is not for tests.
        let sql =
            format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.map(drop)
    }

    async fn remove(pool: &PgPool, name: &str) -> Result<(), Error> {
        let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.map(drop)
    }
}
