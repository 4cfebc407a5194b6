//! Refusing a table of kept messages that cannot keep the contract (R16).

use inbox_core::{Consumer, Error, MessageId, SchemaReport};
use sqlx::PgConnection;

use super::schema::MESSAGES_VERSION;
use crate::verify::{limit, too_old};
use crate::{PostgresStore, begin, errors};

impl PostgresStore {
    /// Looks at the table of kept messages as [`verify`](Self::verify) looks at the inbox's own, and
    /// refuses what cannot keep the contract, a missing index for claims included. An index that is
    /// missing for less is a warning that says what it costs.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub async fn verify_messages(&self) -> Result<SchemaReport, Error> {
        let doing = format!("verify the table of kept messages {}", self.messages_table());
        let mut tx = begin::begin(self.pool(), &doing).await?;
        self.verify_messages_on(&mut tx, &doing).await
    }

    pub(crate) async fn verify_messages_on(
        &self,
        conn: &mut PgConnection,
        doing: &str,
    ) -> Result<SchemaReport, Error> {
        let mut report = SchemaReport::new();
        let messages = self.messages_table();
        if let Some(text) = too_old(conn.server_version_num()) {
            report.refuse(text);
            return report.into_result(&messages);
        }
        let findings: Vec<(bool, String)> = sqlx::query_as(include_str!("../sql/messages/verify.sql"))
            .persistent(self.prepared())
            .bind(messages.schema().as_str())
            .bind(messages.table().as_str())
            .bind(limit(Consumer::MAX_BYTES))
            .bind(limit(MessageId::MAX_BYTES))
            .bind(limit(MESSAGES_VERSION as usize))
            .fetch_all(conn)
            .await
            .map_err(|source| errors::error(doing, source))?;
        for (refused, text) in findings {
            if refused { report.refuse(text) } else { report.warn(text) }
        }
        report.into_result(&messages)
    }
}
