//! The inbox for applications that are on [sqlx](https://docs.rs/sqlx) throughout: the store for
//! `sqlx::Transaction<'_, Sqlite>`. Feature `sqlx`.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use inbox_core::{Consumer, Inbox, Message, MessageId};
//! use inbox_sqlite::on_sqlx::SqlxSqliteStore;
//! use sqlx::sqlite::SqlitePoolOptions;
//!
//! // In earnest a file: SqliteConnectOptions with create_if_missing(true) and journal_mode(Wal).
//! let one = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
//! let pool = one.connect("sqlite::memory:").await?;
//! sqlx::raw_sql("CREATE TABLE points (customer TEXT, amount INTEGER)").execute(&pool).await?;
//! let store = SqlxSqliteStore::new(pool);
//! store.create_schema().await?;
//!
//! let inbox = Inbox::new(store, Consumer::new("loyalty")?);
//! let message = Message::new(MessageId::new("payment-4711")?, "PaymentConfirmed")?;
//! for delivery in 1..=2 {
//!     let outcome = inbox
//!         .process(&message, async |tx| {
//!             sqlx::query("INSERT INTO points VALUES ('ann', 10)").execute(&mut **tx).await?;
//!             Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//!         })
//!         .await?;
//!     assert_eq!(outcome.is_processed(), delivery == 1);
//! }
//! # Ok(()) }
//! ```
//!
//! # How the rules are kept
//!
//! The statements, the schema, what `verify` refuses and the kinds of errors are those of the store on
//! rusqlite: one code, two drivers. What is particular to sqlx:
//!
//! | rule | how |
//! |---|---|
//! | R5, R6 | transactions begin as the writer (`BEGIN IMMEDIATE`), so the wait is at begin: for the begins of this store before it, in order; for a connection of the pool; for the writer, inside SQLite. One bound covers all; the connection's own `busy_timeout` is put back (a busy handler that was set through sqlx's raw handle is not) |
//! | R9 | by reference, an error has SQLite refuse the transaction's COMMIT: see [below](#after-an-error-by-reference) |
//! | R12 | a savepoint set at begin, or when the inbox gets a transaction of yours, must still be there at the end, and so must every id. Before a registration a `BEGIN`, which fails inside a transaction, proves that SQLite has one open, whatever sqlx believes |
//! | R17 | transactions begin in a task of their own |
//! | D1 to D10 | as on rusqlite, by the same statements; a worker looks at intervals, since nothing tells it of what was received |
//!
//! # A transaction of yours
//!
//! Begin it with `pool.begin_with("BEGIN IMMEDIATE")`. What `pool.begin()` begins becomes the writer
//! with its first write, and waits for that as long as the connection's own
//! [`busy_timeout`](sqlx::sqlite::SqliteConnectOptions::busy_timeout) says, 5 s by default, not the
//! store's. If it has read before, it cannot wait: the error is `Busy`, or `Retryable` with code 517
//! (`BUSY_SNAPSHOT`) in its source, at once, and the transaction must be run again from its begin.
//!
//! A savepoint that you set before the inbox had the transaction must not be released after it: that
//! releases the guard, and the commit is `TransactionLost`, a false alarm.
//!
//! # When SQLite ends the transaction
//!
//! A full disk, an I/O error, a conflict under `OR ROLLBACK` make SQLite roll back by itself. sqlx 0.9
//! does not see it: **what the handler runs after it is committed statement by statement**, so return
//! at such an error. Nothing of the inbox is committed: registering and committing are
//! `TransactionLost`, and so is the rollback after a handler's error, since nothing tells what ran
//! after the end. (The store on rusqlite sees the end, and keeps the handler's error.)
//!
//! The same goes for a nested `begin` that failed or was cancelled: sqlx then rolls back the outer
//! transaction. `tx.begin_with(…)` always fails so.
//!
//! Where such a transaction is not ended by the inbox but dropped, sqlx goes on counting it as open on
//! its connection. The store mends that when it begins on the connection; for others `begin_with` on
//! it is `InvalidSavePointStatement`, until it is closed.
//!
//! # After an error by reference
//!
//! [`Inbox::register_if_new`](inbox_core::Inbox::register_if_new) on a plain transaction condemns it
//! after an error: a commit hook makes SQLite turn each COMMIT into a rollback (code 531,
//! `CONSTRAINT_COMMITHOOK`), and a rollback hook lifts that with the rollback. Of a deferred transaction
//! that has not become the writer (`Busy`, say) COMMIT succeeds and lifts nothing, so the connection's
//! next write meets the hook: one 531. Commit and rollback hooks of yours on that connection are replaced. It condemns the outermost transaction, also if
//! a nested one was passed. A call that is *dropped* while it runs condemns nothing: roll back, or
//! use the handle of `Inbox::begin` or `Inbox::guard`, which refuses.
//!
//! # What is left
//!
//! - A raw `COMMIT` in a handler commits. It is noticed at the end, and cannot be undone.
//! - A savepoint of the handler's own named `inbox_guard`, set after a raw `COMMIT; BEGIN`, hides it.
//! - An effect written through another connection is not protected, and inside a handler it waits
//!   for the handler's own lock until it is `BUSY`.
//! - In memory, a pool of more than one connection shares a cache, which does not wait for locks: set
//!   `max_connections(1)`, and no `idle_timeout` or `max_lifetime`, or the database goes with its
//!   connection.
//! - Network file systems often do not lock. `verify` cannot tell.

mod admin;
mod begin;
mod commit;
mod condemn;
mod deferred;
mod driver;
mod errors;
mod in_transaction;
mod register;
mod schema;
mod store;
mod transaction;
mod verify;

pub use errors::{is_retryable, kind_of};
pub use in_transaction::InTransaction;
pub use store::SqlxSqliteStore;
