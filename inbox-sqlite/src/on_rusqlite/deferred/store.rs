//! [`KeepMessages`] and [`Deferred`] on rusqlite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Claim, Complete, Consumer, Count, Deadline, Deferred, Envelope, Error, ErrorKind, Fail, KeepMessages,
    KeepRequest, MessageRow, Release, Renew, Renewal, Replay, Select, StateCount, Unblock, Watch,
};
use rusqlite::Connection;

use super::super::connections::Missing;
use super::super::driver::at_once;
use super::super::errors::to_error;
use super::super::offload::offload;
use super::super::store::SqliteStore;
use super::super::tx::SqliteTx;
use crate::deferred::operate::Which;
use crate::deferred::settle::patience_of_renewal;
use crate::deferred::{claim, complete, keep, operate, settle};
use crate::errors::commit_error;
use crate::statements::Statements;

impl SqliteStore {
    /// Runs `work` in a transaction of the store's own, which is the writer, and commits.
    async fn write<T: Send + 'static>(
        &self,
        wait: Duration,
        doing: String,
        work: impl FnOnce(&Connection, &Statements) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let lease = self.begin_lease(Deadline::after(wait), Missing::Fail).await;
        let mut tx = SqliteTx::new(lease.map_err(|source| to_error(&doing, source))?);
        let (sql, committing) = (Arc::clone(&self.sql), doing.clone());
        tx.run(
            || doing.clone(),
            move |conn| {
                let answer = work(conn, &sql)?;
                conn.execute_batch("COMMIT").map_err(|source| commit_error(committing, source))?;
                Ok(answer)
            },
        )
        .await
    }

    /// Runs `work` on the reader, which sees what is committed.
    async fn read<T: Send + 'static>(
        &self,
        wait: Duration,
        doing: String,
        work: impl FnOnce(&Connection, &Statements) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sql, deadline) = (Arc::clone(&self.sql), Deadline::after(wait));
        let turn = self.connections.reader().turn(deadline).await;
        let turn = turn.map_err(|source| to_error(&doing, source))?;
        let connecting = doing.clone();
        let read = offload(move || {
            let lease = turn.connect(deadline.left(), Missing::Fail);
            let mut lease = lease.map_err(|source| to_error(connecting, source))?;
            work(lease.conn(), &sql).inspect_err(|error| lease.close_after_error(error))
        });
        read.await.map_err(|source| to_error(doing, source))?
    }
}

#[async_trait]
impl KeepMessages<SqliteTx> for SqliteStore {
    async fn keep(&self, tx: &mut SqliteTx, request: &KeepRequest<'_>) -> Result<(), Error> {
        let (sql, consumer) = (Arc::clone(&self.sql), request.consumer.clone());
        let envelopes: Vec<Envelope> = request.envelopes.iter().map(|one| (*one).clone()).collect();
        tx.run(
            || request.doing(),
            move |conn| {
                let envelopes: Vec<&Envelope> = envelopes.iter().collect();
                at_once(keep::keep(&mut &*conn, &sql, &KeepRequest::new(&consumer, &envelopes)))
            },
        )
        .await?;
        tx.note_news();
        Ok(())
    }
}

#[async_trait]
impl Deferred for SqliteStore {
    async fn claim(&self, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
        let consumer = request.consumer.clone();
        let (lease, max_attempts) = (request.lease, request.max_attempts);
        let (limit, order, token) = (request.limit, request.order, request.token);
        self.write(self.wait, request.doing(), move |mut conn, sql| {
            let mut request = Claim::new(&consumer, lease, max_attempts).limit(limit).order(order);
            request.token = token;
            at_once(claim::claim(&mut conn, sql, &request))
        })
        .await
    }

    async fn renew(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        let (consumer, leases, lease) = (request.consumer.clone(), request.leases.to_vec(), request.lease);
        let renew = move |mut conn: &Connection, sql: &Statements| {
            at_once(settle::renew(&mut conn, sql, &Renew::new(&consumer, &leases, lease)))
        };
        let wait = patience_of_renewal(request.lease).min(self.wait);
        match self.write(wait, request.doing(), renew).await {
            Err(busy) if busy.kind() == ErrorKind::Busy => self.look_beside_the_writer(request).await,
            renewed => renewed,
        }
    }

    async fn complete(&self, tx: &mut SqliteTx, request: &Complete<'_>) -> Result<Vec<bool>, Error> {
        let sql = Arc::clone(&self.sql);
        let (consumer, leases) = (request.consumer.clone(), request.leases.to_vec());
        tx.run(
            || request.doing(),
            move |mut conn| at_once(complete::complete(&mut conn, &sql, &Complete::new(&consumer, &leases))),
        )
        .await
    }

    async fn fail(&self, request: &Fail<'_>) -> Result<(), Error> {
        let (consumer, lease, retry_after) = (request.consumer.clone(), request.lease, request.retry_after);
        let error_json = request.error_json.to_owned();
        self.write(self.wait, request.doing(), move |mut conn, sql| {
            at_once(settle::fail(&mut conn, sql, &Fail::new(&consumer, lease, retry_after, &error_json)))
        })
        .await
    }

    async fn release(&self, request: &Release<'_>) -> Result<u64, Error> {
        let (consumer, leases) = (request.consumer.clone(), request.leases.to_vec());
        self.write(self.wait, request.doing(), move |mut conn, sql| {
            at_once(settle::release(&mut conn, sql, &Release::new(&consumer, &leases)))
        })
        .await
    }

    async fn unblock(&self, request: &Unblock<'_>) -> Result<(), Error> {
        let (consumer, keys) = (request.consumer.clone(), request.keys.to_vec());
        self.write(self.wait, request.doing(), move |mut conn, sql| {
            at_once(settle::unblock(&mut conn, sql, &Unblock::new(&consumer, &keys)))
        })
        .await
    }

    async fn replay(&self, request: &Replay<'_>) -> Result<u64, Error> {
        let (consumer, doing) = (request.consumer.clone(), request.doing());
        let which = Which::of(&request.which, &doing)?;
        let replay = move |mut conn: &Connection, sql: &Statements| {
            at_once(operate::replay(&mut conn, sql, &consumer, &which, &doing))
        };
        let replayed = self.write(self.wait, request.doing(), replay).await?;
        self.connections.news().tell();
        Ok(replayed)
    }

    async fn select(&self, consumer: &Consumer, which: &Select<'_>) -> Result<Vec<MessageRow>, Error> {
        let doing = Select::doing(consumer);
        let (consumer, which) = (consumer.clone(), Which::of(which, &doing)?);
        self.read(self.wait, doing, move |mut conn, sql| {
            at_once(operate::select(&mut conn, sql, &consumer, &which))
        })
        .await
    }

    async fn count(&self, request: &Count<'_>) -> Result<Vec<StateCount>, Error> {
        let (consumer, at_most) = (request.consumer.clone(), request.at_most);
        self.read(self.wait, request.doing(), move |mut conn, sql| {
            at_once(operate::count(&mut conn, sql, &Count::new(&consumer, at_most)))
        })
        .await
    }

    /// Tells of what is received through this store and its clones; other processes' messages are
    /// found at the next interval.
    async fn watch(&self, _consumer: &Consumer) -> Result<Option<Box<dyn Watch>>, Error> {
        Ok(Some(self.connections.news().watch()))
    }
}

impl SqliteStore {
    /// What became of leases that could not be renewed, since another transaction is the writer.
    async fn look_beside_the_writer(&self, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
        let (consumer, leases, lease) = (request.consumer.clone(), request.leases.to_vec(), request.lease);
        let look = move |mut conn: &Connection, sql: &Statements| {
            let request = Renew::new(&consumer, &leases, lease);
            at_once(settle::renewals_beside_a_writer(&mut conn, sql, &request))
        };
        match self.read(Duration::ZERO, request.doing(), look).await {
            // In memory the writer's connection is the only one.
            Err(busy) if busy.kind() == ErrorKind::Busy => Ok(vec![Renewal::Locked; request.leases.len()]),
            looked => looked,
        }
    }
}
