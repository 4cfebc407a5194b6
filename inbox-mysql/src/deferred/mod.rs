//! The deferred inbox: whole messages, kept beside their ids, and what workers and operators do with them.
//!
//! Everything but keeping and completing is a short transaction of the store's own.

mod claim;
mod complete;
mod keep;
mod operate;
mod packet;
mod row;
mod schema;
mod settle;
mod short;
mod statements;
mod verify;

use async_trait::async_trait;
use inbox_core::{
    Claim, Complete, Consumer, Count, Deferred, Error, Fail, MessageRow, Release, Renew, Renewal, Replay,
    Select, StateCount, Unblock, Watch,
};

use crate::MySqlStore;

pub(crate) use complete::{any_done, prove};
pub use schema::{MESSAGES_SCHEMA_VERSION, message_grants, messages_ddl};
pub(crate) use statements::MessageStatements;

#[async_trait]
impl Deferred for MySqlStore {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        claim::claim(self, request).await
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        settle::renew(self, request).await
    }

    async fn complete(&self, tx: &mut Self::Tx, request: &Complete<'_>) -> Result<Vec<bool>, Error> {
        complete::complete(self, tx, request).await
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        settle::fail(self, request).await
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        settle::release(self, request).await
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        settle::unblock(self, request).await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        operate::replay(self, request).await
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        operate::select(self, consumer, which).await
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        operate::count(self, request).await
    }

    /// `None`: neither server tells of rows that are written, so a worker looks at intervals.
    async fn watch(&self, _consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        Ok(None)
    }
}
