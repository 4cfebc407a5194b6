//! What an operator does, each call in a transaction of its own.

use async_trait::async_trait;
use inbox_core::{Administer, Consumer, Deadline, Error, Guard, MessageId, Original};

use crate::register::run_bounded;
use crate::{MySqlStore, begin, errors, original, transaction};

#[async_trait]
impl Administer for MySqlStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let doing = || format!("find message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut conn = self.pool().acquire().await.map_err(|source| errors::error(doing(), source))?;
        let begin = transaction::begin_reading();
        let at = begin.len();
        let look = begin.then(self.statements().find.of(consumer, &[id.as_str()])).then(transaction::COMMIT);
        let answers = look.run(&mut conn).await.map_err(|failed| {
            // The server has not come to the COMMIT.
            conn.close_on_drop();
            errors::error(doing(), failed.source)
        })?;
        Ok(original::by_id(&answers[at].rows, doing)?.remove(id.as_str()).map(|found| found.original))
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let doing = || format!("forget message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut tx = begin::begin(self.pool(), &doing()).await?;
        let wait = Deadline::after(self.wait());
        let delete = self.statements().forget.of(consumer, &[id.as_str()]);
        let deleted = run_bounded(self, &mut tx, &wait, Guard::Outside, delete, doing).await?;
        // Nothing in this transaction can have failed unseen, so the driver's own commit will do.
        tx.commit().await.map_err(|source| errors::commit_error(doing(), source))?;
        Ok(deleted.affected > 0)
    }
}
