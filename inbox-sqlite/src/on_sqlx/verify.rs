//! [`SqlxSqliteStore::verify`].

use inbox_core::{Error, SchemaReport};
use sqlx::sqlite::SqliteConnection;

use super::store::SqlxSqliteStore;
use crate::errors::to_error;
use crate::verify::{is_on_file, look, verifying};

impl SqlxSqliteStore {
    /// Checks that the table, the database and a connection of the pool keep the contract, and says
    /// what to do about what does not. Writes nothing, but takes the writer's turn.
    ///
    /// # Errors
    ///
    /// `Schema` with every refusal; warnings are in the report and go to `tracing`.
    /// `Busy` if the writer did not come free within the wait, `Unavailable` if there is no file.
    pub async fn verify(&self) -> Result<SchemaReport, Error> {
        let doing = verifying(self.table());
        let failed = |source: sqlx::Error| to_error(verifying(self.table()), source);
        let mut tx = self.begin_for(self.wait(), doing).await?;
        let mut report = SchemaReport::new();
        look(&mut *tx, self.table(), &mut report).await.map_err(failed)?;
        self.of_the_pool(&mut tx, &mut report).await.map_err(failed)?;
        tx.rollback().await.map_err(failed)?;
        report.into_result(self.table())
    }

    /// What the pool makes of the database.
    pub(crate) async fn of_the_pool(
        &self,
        conn: &mut SqliteConnection,
        report: &mut SchemaReport,
    ) -> Result<(), sqlx::Error> {
        if !is_on_file(conn, self.table()).await? {
            self.in_memory(report);
        }
        Ok(())
    }

    /// What a pool makes of a database in memory, which lives as long as its connections (B56).
    fn in_memory(&self, report: &mut SchemaReport) {
        let options = self.pool().options();
        report.refuse_if(
            options.get_max_connections() > 1,
            "the database is in memory, where each of the pool's connections has its own, or they share a cache, \
             which does not wait for locks: set max_connections(1)",
        );
        if options.get_idle_timeout().is_some() || options.get_max_lifetime().is_some() {
            report.warn(
                "the database is in memory, and the pool may close its connection: set idle_timeout(None) and \
                 max_lifetime(None), or the registrations are gone with it",
            );
        }
    }
}
