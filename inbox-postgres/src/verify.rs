//! Refusing a table that cannot keep the contract, before it breaks it (R16).

use inbox_core::{Consumer, Error, EventType, MessageId, SchemaReport};
use sqlx::PgConnection;

use crate::schema::SCHEMA_VERSION;
use crate::{PostgresStore, begin, errors};

/// The oldest server that the statements run on: the first with COMMIT AND CHAIN.
const OLDEST_SERVER: u32 = 12;

impl PostgresStore {
    /// Looks at the server, the table and this role's rights, on a connection of the pool, and
    /// refuses what cannot keep the contract. The report has the warnings.
    ///
    /// All of it is in one query of the catalogue, `sql/verify.sql`: what is looked at, why, and
    /// what to do about it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`](inbox_core::ErrorKind::Schema) naming everything that was refused;
    /// `Unavailable`, or what the server reports.
    pub async fn verify(&self) -> Result<SchemaReport, Error> {
        let doing = format!("verify the inbox table {}", self.table());
        let mut tx = begin::begin(self.pool(), &doing).await?;
        self.verify_on(&mut tx, &doing).await
    }

    pub(crate) async fn verify_on(
        &self,
        conn: &mut PgConnection,
        doing: &str,
    ) -> Result<SchemaReport, Error> {
        let mut report = SchemaReport::new();
        if let Some(text) = too_old(conn.server_version_num()) {
            // The query below would not even be understood.
            report.refuse(text);
            return report.into_result(self.table());
        }
        let findings: Vec<(bool, String)> = sqlx::query_as(include_str!("sql/verify.sql"))
            .persistent(self.prepared())
            .bind(self.table().schema().as_str())
            .bind(self.table().table().as_str())
            .bind(limit(Consumer::MAX_BYTES))
            .bind(limit(MessageId::MAX_BYTES))
            .bind(limit(EventType::MAX_BYTES))
            .bind(limit(SCHEMA_VERSION as usize))
            .fetch_all(conn)
            .await
            .map_err(|source| errors::error(doing, source))?;
        for (refused, text) in findings {
            if refused { report.refuse(text) } else { report.warn(text) }
        }
        report.into_result(self.table())
    }
}

pub(crate) fn limit(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// The refusal of a server that is too old; sqlx has the version from the connection's start.
pub(crate) fn too_old(server_version_num: Option<u32>) -> Option<String> {
    let major = server_version_num? / 10_000;
    (major < OLDEST_SERVER).then(|| {
        format!("the server is PostgreSQL {major}, which has no COMMIT AND CHAIN; use version {OLDEST_SERVER} or later")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r16_a_server_before_version_12_is_refused() {
        assert!(too_old(Some(110_022)).is_some());
        assert!(too_old(Some(120_000)).is_none());
        assert!(too_old(None).is_none(), "a server that names no version is judged by its catalogue");
    }
}
