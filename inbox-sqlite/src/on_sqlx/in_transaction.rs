//! [`InTransaction`]: registering where only a `&mut SqliteConnection` is at hand.

use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use inbox_core::{Capabilities, Error, InboxStore, Register, RegisterBatch, Registration};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::store::{self, SqlxSqliteStore};
use super::{condemn, register};
use crate::errors::lost;

/// A borrowed connection on which a transaction is open, for nested code that is not given the
/// transaction itself. Whoever began the transaction commits it.
///
/// ```no_run
/// # use inbox_core::{Error, Inbox, Message, Registration};
/// # use inbox_sqlite::on_sqlx::{InTransaction, SqlxSqliteStore};
/// async fn is_new(
///     inbox: &Inbox<SqlxSqliteStore>,
///     conn: &mut sqlx::SqliteConnection,
///     message: &Message,
/// ) -> Result<bool, Error> {
///     Ok(inbox.register_if_new(&mut InTransaction::new(conn)?, message).await?.is_new())
/// }
/// ```
#[derive(Debug)]
pub struct InTransaction<'c> {
    conn: &'c mut SqliteConnection,
}

impl<'c> InTransaction<'c> {
    /// Wraps a connection, if sqlx has a transaction open on it. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`TransactionLost`](inbox_core::ErrorKind::TransactionLost) if none is open: the registration
    /// would be committed without the effect. A `BEGIN` sent as a statement does not count, since sqlx
    /// does not see it.
    pub fn new(conn: &'c mut SqliteConnection) -> Result<Self, Error> {
        if conn.is_in_transaction() {
            return Ok(Self { conn });
        }
        Err(lost(
            "use a connection as a transaction",
            "sqlx has no transaction open on it; begin one with the driver's begin",
        ))
    }
}

impl Deref for InTransaction<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.conn
    }
}

impl DerefMut for InTransaction<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.conn
    }
}

#[async_trait]
impl<'c> InboxStore<InTransaction<'c>> for SqlxSqliteStore {
    async fn register_if_new(
        &self,
        tx: &mut InTransaction<'c>,
        request: &Register<'_>,
    ) -> Result<Registration, Error> {
        register::register_if_new(self, tx, request).await
    }

    async fn register_batch(
        &self,
        tx: &mut InTransaction<'c>,
        request: &RegisterBatch<'_>,
    ) -> Result<Vec<Registration>, Error> {
        register::register_batch(self, tx, request).await
    }

    async fn condemn(&self, tx: &mut InTransaction<'c>) {
        condemn::condemn(tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        store::capabilities()
    }
}
