//! What an operator does: look for a registration, forget one on purpose.

use std::sync::Arc;

use async_trait::async_trait;
use inbox_core::{Administer, Consumer, Deadline, End, Error, MessageId, Original};
use rusqlite::params;

use super::commit::commit_on;
use super::connections::Missing;
use super::driver::read_original;
use super::errors::{statement_error, to_error};
use super::offload::offload;
use super::store::SqliteStore;

#[async_trait]
impl Administer for SqliteStore {
    async fn find(&self, consumer: &Consumer, id: &MessageId) -> Result<Option<Original>, Error> {
        let doing = format!("find message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let (sql, consumer, id) = (Arc::clone(&self.sql), consumer.clone(), id.clone());
        let deadline = Deadline::after(self.wait);
        let turn = self.connections.reader().turn(deadline).await;
        let turn = turn.map_err(|source| to_error(&doing, source))?;
        let found = offload(move || {
            let lease =
                turn.connect(deadline.left(), Missing::Fail).map_err(|source| to_error(&doing, source))?;
            read_original(lease.conn(), &sql, &consumer, &id)
                .map_err(|source| statement_error(lease.conn(), &sql, &doing, source))
        });
        found.await.map_err(|source| to_error("find a message", source))?
    }

    async fn forget(&self, consumer: &Consumer, id: &MessageId) -> Result<bool, Error> {
        let doing = format!("forget message {:?} of consumer {:?}", id.as_str(), consumer.as_str());
        let (sql, consumer, id) = (Arc::clone(&self.sql), consumer.clone(), id.clone());
        let lease = self.begin_lease(Deadline::after(self.wait), Missing::Fail).await;
        let lease = lease.map_err(|source| to_error(&doing, source))?;
        let forgotten = offload(move || {
            let conn = lease.conn();
            let rows = conn
                .execute(&sql.forget, params![consumer.as_str(), id.as_str()])
                .map_err(|source| statement_error(conn, &sql, &doing, source))?;
            commit_on(conn, &sql, &End::new(&consumer, &[]))?;
            Ok(rows > 0)
        });
        forgotten.await.map_err(|source| to_error("forget a message", source))?
    }
}
