//! Refusing a table that cannot keep the contract, before it breaks it (R16).

use inbox_core::{Error, SchemaReport};

use crate::{MySqlStore, errors};

impl MySqlStore {
    /// Looks at the server and the table and refuses what cannot keep the contract.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`](inbox_core::ErrorKind::Schema) naming everything that was refused;
    /// `Unavailable`, or what the server reports.
    pub async fn verify(&self) -> Result<SchemaReport, Error> {
        let doing = format!("verify the inbox table {}", self.table());
        let mut report = SchemaReport::new();
        let there: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
        )
        .bind(self.table().schema().as_str())
        .bind(self.table().table().as_str())
        .fetch_one(self.pool())
        .await
        .map_err(|source| errors::error(&*doing, source))?;
        report.refuse_if(there == 0, "the table does not exist; call create_schema, or run the text of ddl");
        report.into_result(self.table())
    }
}
