//! [`InTransaction`]: registering where only a `&mut MySqlConnection` is at hand.

use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use inbox_core::{Capabilities, Error, ErrorKind, InboxStore, Register, RegisterBatch, Registration};
use sqlx::{Connection, MySqlConnection};

use crate::{MySqlStore, batch, condemn, register};

/// A borrowed connection on which a transaction is open, for nested code that is not given the
/// transaction itself. Whoever began the transaction commits it.
///
/// ```no_run
/// # use inbox_core::{Error, Inbox, Message, Registration};
/// # use inbox_mysql::{InTransaction, MySqlStore};
/// async fn is_new(
///     inbox: &Inbox<MySqlStore>,
///     conn: &mut sqlx::MySqlConnection,
///     message: &Message,
/// ) -> Result<bool, Error> {
///     Ok(inbox.register_if_new(&mut InTransaction::new(conn)?, message).await?.is_new())
/// }
/// ```
#[derive(Debug)]
pub struct InTransaction<'c> {
    conn: &'c mut MySqlConnection,
}

impl<'c> InTransaction<'c> {
    /// Wraps a connection, if sqlx has a transaction open on it. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TransactionLost`] if none is open: the registration would be committed without
    /// the effect. A `BEGIN` sent as a statement does not count, since sqlx does not see it.
    pub fn new(conn: &'c mut MySqlConnection) -> Result<Self, Error> {
        if conn.is_in_transaction() {
            return Ok(Self { conn });
        }
        Err(Error::new(ErrorKind::TransactionLost, "use a connection as a transaction")
            .with_detail("sqlx has no transaction open on it; begin one with the driver's begin"))
    }
}

impl Deref for InTransaction<'_> {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        self.conn
    }
}

impl DerefMut for InTransaction<'_> {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        self.conn
    }
}

#[async_trait]
impl<'c> InboxStore<InTransaction<'c>> for MySqlStore {
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
        batch::register_batch(self, tx, request).await
    }

    async fn condemn(&self, tx: &mut InTransaction<'c>) {
        condemn::condemn(tx).await;
    }

    fn capabilities(&self) -> Capabilities {
        self.all_capabilities()
    }
}
