//! What an operator does: look for a registration, forget one on purpose.

use async_trait::async_trait;
use inbox_core::{Administer, Consumer, Deadline, Error, MessageId, Original};
use sqlx::AssertSqlSafe;

use super::errors::commit_error;
use super::store::SqlxSqliteStore;
use crate::driver::Driver as _;
use crate::errors::statement_error;

#[async_trait]
impl Administer for SqlxSqliteStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let doing = format!("find message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut conn = self.connection(Deadline::after(self.wait()), &doing).await?;
        match conn.original(self.sql(), consumer, id).await {
            Ok(found) => Ok(found),
            Err(source) => Err(statement_error(&mut *conn, self.sql(), doing, source).await),
        }
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let doing = format!("forget message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut tx = self.begin_for(self.wait(), doing.clone()).await?;
        let deleted = sqlx::query(AssertSqlSafe(self.sql().forget.clone()))
            .bind(consumer.as_str())
            .bind(id.as_str())
            .execute(&mut *tx)
            .await;
        match deleted {
            Ok(deleted) => {
                // Nothing in this transaction can have failed unseen, so the driver's own commit will do.
                tx.commit().await.map_err(|source| commit_error(doing, source))?;
                Ok(deleted.rows_affected() > 0)
            }
            Err(source) => Err(statement_error(&mut *tx, self.sql(), doing, source).await),
        }
    }
}
