//! The inbox on PostgreSQL 12 or later, through sqlx: `INSERT … ON CONFLICT DO NOTHING`.
//!
//! [`PostgresStore`] is the store; `inbox-core` has the vocabulary and what to do with it.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use inbox_core::{Consumer, Inbox, Message, MessageId, Registered};
//! use inbox_postgres::PostgresStore;
//!
//! let store = PostgresStore::new(pool.clone());
//! store.create_schema().await?;
//! store.verify().await?;
//! let inbox = Inbox::new(store, Consumer::new("loyalty")?);
//! let message = Message::new(MessageId::new("payment-17")?, "PaymentConfirmed")?;
//!
//! let tx = pool.begin().await?;
//! match inbox.register(tx, &message).await? {
//!     Registered::New(tx) => {
//!         // … write the effect through `tx` …
//!         tx.commit().await?;
//!     }
//!     Registered::Duplicate(original) => println!("handled at {:?}", original.registered_at),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is kept, and how
//!
//! | rule | how it is kept | what is left |
//! |---|---|---|
//! | R1 to R5 | the primary key (consumer, message_id) and `ON CONFLICT (consumer, message_id) DO NOTHING`; a second insert of an uncommitted id waits for its transaction | under REPEATABLE READ and SERIALIZABLE an id that was registered after the snapshot is `Retryable` (40001), sometimes only at commit |
//! | R6 the bound of a wait | `lock_timeout`, set and restored inside the insert's statement; in a batch set anew before each row | a lock on the whole table (`ALTER TABLE`, `VACUUM FULL`) is waited for under the session's own `lock_timeout`; one id held by several transactions in a row, each rolled back, is waited for once for each |
//! | R7 ids byte for byte | `text COLLATE "C"` | |
//! | R8 duplicates are proved | the original is read; one that was waited for is too new for the statement's snapshot, and a second statement reads it | |
//! | R9 errors condemn | the server aborts the transaction; where it did not, a statement that fails is sent | rolling back to a savepoint set before the call lifts it; a call by reference that is *cancelled* cannot be condemned: roll back, or use the handle of `Inbox::begin`, which refuses to commit |
//! | R10 batches | three arrays, `unnest`, sorted by bytes | |
//! | R12 certain commits | a setting local to the transaction counts its registrations; the commit proves the count and chains, and so does the rollback | a transaction that was ended and begun again by SQL is not noticed if nothing was registered in it, by reference, or at a rollback if an error has aborted the new one; a rollback takes a registration that a savepoint undid for a lost transaction |
//! | R13 kinds | by SQLSTATE, see [`kind_of`] | |
//! | R15 no traces | no DDL; `lock_timeout` is restored; tables are named with their schema | the setting `inbox.registered` stays known to a session, empty |
//! | R16 | [`PostgresStore::verify`] | |
//! | R17 cancelling | transactions begin in a task of their own | |
//!
//! # The deferred inbox
//!
//! [`PostgresStore::create_message_schema`] makes the table of whole messages, `inbox_messages`. A claim is
//! one statement with `FOR UPDATE SKIP LOCKED`, on a partial index of what is pending; completing counts in
//! the setting that proves registrations; and workers are told of messages by NOTIFY, unless
//! [`PostgresStore::with_notifications`] says otherwise.
//!
//! The store's own calls run at READ COMMITTED. Where `default_transaction_isolation` is another level, as
//! the first of them finds out, each takes two round trips more, for a transaction begun at that level. The
//! transaction in which a worker's handler runs has the session's level all the same: above READ COMMITTED
//! it may fail with 40001 (`Retryable`), like any other there, and so does the attempt.
//!
//! Rows are looked up by the primary key whatever the table's statistics say or do not say. There is one
//! exception, that of any statement by a key: a plan prepared when the table was analysed and had no more than
//! eight pages may read all of it, until the next `ANALYZE`, which autovacuum sees to within a minute or so of
//! a burst.
//!
//! # Poolers
//!
//! Only transaction-level state is used, so a pooler in transaction mode works; where it does not
//! track prepared statements, call [`PostgresStore::unprepared`] on a pool of its own.

mod admin;
mod batch;
mod begin;
mod commit;
mod condemn;
mod deferred;
mod errors;
mod guard;
mod in_transaction;
mod original;
mod register;
mod schema;
mod statements;
mod store;
mod transaction;
mod verify;
mod wait;

pub use deferred::schema::{message_grants, message_operator_grants, messages_ddl};
pub use errors::{is_retryable, kind_of};
pub use in_transaction::InTransaction;
pub use schema::{SCHEMA_VERSION, ddl, grants, operator_grants};
/// The driver, in the version whose transactions this crate takes.
pub use sqlx;
pub use store::PostgresStore;

/// The transaction of [`PostgresStore`], which a handler gets: for handlers that are functions of their own.
pub type PgTx = sqlx::Transaction<'static, sqlx::Postgres>;
