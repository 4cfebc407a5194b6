//! Which of the two servers this is, where they differ: in how a wait is bounded.

use std::sync::OnceLock;

use sqlx::{MySqlConnection, Row};

/// A server's dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    MySql,
    MariaDb,
}

/// A comment to MySQL, and code to MariaDB: asked of the server itself, since versions are spelt as
/// forks and proxies like.
const PROBE: &str = "SELECT 0 /*M! + 1 */ LIMIT 1";

/// The dialect of a store's servers, asked once.
#[derive(Debug, Default)]
pub(crate) struct Known(OnceLock<Dialect>);

impl Known {
    /// The dialect; one more round trip on a store's first call.
    pub(crate) async fn ask(&self, conn: &mut MySqlConnection) -> Result<Dialect, sqlx::Error> {
        if let Some(known) = self.0.get() {
            return Ok(*known);
        }
        // As text: a call that is dropped while its statement is prepared leaves sqlx 0.9 out of step
        // with the server, and the connection hangs in its pool (R17).
        let answer: i64 = sqlx::raw_sql(PROBE).fetch_one(conn).await?.try_get(0)?;
        let dialect = if answer == 1 { Dialect::MariaDb } else { Dialect::MySql };
        Ok(*self.0.get_or_init(|| dialect))
    }
}
