//! What an operator does, each call in a transaction of its own.

use async_trait::async_trait;
use inbox_core::{Administer, Consumer, Deadline, Error, MessageId, Original};

use crate::wait::lock_timeout;
use crate::{PostgresStore, begin, errors, original};

#[async_trait]
impl Administer for PostgresStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let doing = || format!("find message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        // A transaction, because a pooler in transaction mode may serve an unprepared statement's
        // two round trips from two servers.
        let mut tx = begin::begin(self.pool(), &doing()).await?;
        let mut found = original::read(self, &mut tx, consumer, &[id.as_str()], doing).await?;
        Ok(found.remove(id.as_str()))
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let doing = || format!("forget message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut tx = begin::begin(self.pool(), &doing()).await?;
        let wait = Deadline::after(self.wait());
        let deleted = sqlx::query(self.statements().forget.sql())
            .persistent(self.prepared())
            .bind(consumer.as_str())
            .bind(id.as_str())
            .bind(lock_timeout(&wait))
            .execute(&mut *tx)
            .await
            .map_err(|source| errors::error_within(&wait, doing(), source))?;
        // Nothing in this transaction can have failed unseen, so the driver's own commit will do.
        tx.commit().await.map_err(|source| errors::commit_error(doing(), source))?;
        Ok(deleted.rows_affected() > 0)
    }
}
