//! What an operator does, each call in a transaction of its own.

use async_trait::async_trait;
use inbox_core::{Administer, Consumer, Error, Guard, MessageId, Original};

use crate::register::run_bounded;
use crate::script::Script;
use crate::wait::Wait;
use crate::{MySqlStore, begin, errors, original};

#[async_trait]
impl Administer for MySqlStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let doing = || format!("find message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut conn = self.pool().acquire().await.map_err(|source| errors::error(doing(), source))?;
        let look = Script::new()
            // What somebody left open on the connection would be committed by START TRANSACTION.
            .then("ROLLBACK AND NO CHAIN NO RELEASE")
            // Committed rows only, whatever the session's own level.
            .then("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            .then("START TRANSACTION READ ONLY")
            .then(self.statements().find.of(consumer, &[id.as_str()]))
            .then("COMMIT AND NO CHAIN NO RELEASE");
        let answers = look.run(&mut conn).await.map_err(|failed| {
            // The server has not come to the COMMIT.
            conn.close_on_drop();
            errors::error(doing(), failed.source)
        })?;
        Ok(original::by_id(&answers[3].rows, doing)?.remove(id.as_str()).map(|found| found.original))
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let doing = || format!("forget message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let mut tx = begin::begin(self.pool(), &doing()).await?;
        let wait = Wait::start(self.wait());
        let delete = self.statements().forget.of(consumer, &[id.as_str()]);
        let deleted = run_bounded(self, &mut tx, &wait, Guard::Outside, delete, doing).await?;
        // Nothing in this transaction can have failed unseen, so the driver's own commit will do.
        tx.commit().await.map_err(|source| errors::commit_error(doing(), source))?;
        Ok(deleted.affected > 0)
    }
}
