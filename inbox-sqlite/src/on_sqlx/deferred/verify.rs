//! [`SqlxSqliteStore::verify_messages`].

use inbox_core::{Error, SchemaReport};

use super::super::store::SqlxSqliteStore;
use crate::deferred::verify::{look, verifying};
use crate::errors::to_error;

impl SqlxSqliteStore {
    /// As [`verify`](Self::verify), for the table of kept messages; a missing index is a warning that
    /// says what it costs, that of the claims is refused.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub async fn verify_messages(&self) -> Result<SchemaReport, Error> {
        let doing = || verifying(self.sql());
        let failed = |source: sqlx::Error| to_error(doing(), source);
        let mut tx = self.begin_for(self.wait(), doing()).await?;
        let mut report = SchemaReport::new();
        look(&mut *tx, self.sql(), &mut report).await.map_err(failed)?;
        self.of_the_pool(&mut tx, &mut report).await.map_err(failed)?;
        tx.rollback().await.map_err(failed)?;
        report.into_result(self.messages_table())
    }
}
