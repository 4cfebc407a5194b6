//! The inbox on SQLite, through [rusqlite](https://docs.rs/rusqlite) or [sqlx](https://docs.rs/sqlx):
//! `INSERT OR IGNORE`, and every "0 rows" proved by reading the original back.
//!
//! | you are | see |
//! |---|---|
//! | async | [`SqliteStore`] with [`Inbox::process`](inbox_core::Inbox::process); the effect goes through [`SqliteTx::call`] |
//! | not async | [`Blocking`], on a [`rusqlite::Connection`] of your own |
//! | migrating | [`SqliteStore::create_schema`], [`create_schema_on`], [`ddl`]; then [`SqliteStore::verify`] |
//! | on sqlx throughout | `on_sqlx`, with the feature `sqlx` |
//! | retrying your own errors | [`is_retryable`] |
//!
//! ```
//! use inbox_core::{Consumer, Inbox, Message, MessageId, Outcome};
//! # #[cfg(feature = "rusqlite")]
//! use inbox_sqlite::SqliteStore;
//!
//! # #[cfg(not(feature = "rusqlite"))] fn main() {}
//! # #[cfg(feature = "rusqlite")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let store = SqliteStore::in_memory()?; // SqliteStore::open("app.sqlite").await? in earnest
//! store.create_schema().await?;
//! store.call(|conn| conn.execute_batch("CREATE TABLE points (customer TEXT, amount INTEGER)")).await?;
//!
//! let inbox = Inbox::new(store, Consumer::new("loyalty")?);
//! let message = Message::new(MessageId::new("payment-4711")?, "PaymentConfirmed")?;
//! for delivery in 1..=2 {
//!     let outcome = inbox
//!         .process(&message, async |tx| {
//!             tx.call(|conn| conn.execute("INSERT INTO points VALUES ('ann', 10)", [])).await?;
//!             Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//!         })
//!         .await?;
//!     assert_eq!(outcome.is_processed(), delivery == 1);
//! }
//! # Ok(()) }
//! ```
//!
//! # How the rules are kept, on rusqlite
//!
//! | rule | how |
//! |---|---|
//! | R1 to R3 | the table's primary key decides; the table is STRICT, ids go in as TEXT |
//! | R4, R17, R18 | whoever drops the connection of an open transaction rolls back, a blocking thread whose caller is gone included |
//! | R5, R6 | transactions begin as the writer (`BEGIN IMMEDIATE`), so the wait is at begin. In one store it is a fair queue; for other connections SQLite polls, at most every 100 ms. The bound covers both |
//! | R8 | 0 rows, and no original either, twice: `Unconfirmed` |
//! | R9 | an error of the inbox rolls a [`SqliteTx`] back at once; a [`BlockingTx`] refuses to commit |
//! | R10 | prepared single inserts in one call, without a bind limit |
//! | R12 | a savepoint set at begin must still be there at commit, and so must every id; `sqlite3_get_autocommit` is asked after every call; of a transaction that is over the ids tell how it ended |
//! | R13 | by result code, see [`kind_of`] |
//! | R14 | the time of registering has a resolution of 1 ms, SQLite's own |
//! | R15 | the caller's busy timeout is put back; the table is always named with its schema |
//! | R16 | [`SqliteStore::verify`] |
//!
//! # The deferred inbox
//!
//! [`Inbox::receive`](inbox_core::Inbox::receive) keeps messages in the table `inbox_messages`
//! ([`SqliteStore::create_message_schema`], [`messages_ddl`]), from which a [`Worker`](inbox_core::Worker)
//! handles them.
//!
//! | rule | how |
//! |---|---|
//! | D1 | a STRICT table with a CHECK on the states, and that only what is pending bears a lease |
//! | D2, D4 | a claim is one transaction that is the writer, so nobody comes between its reading and its writing; SQLite's clock has milliseconds, a sender's not-before time keeps its microseconds |
//! | D3, R12 | the completion is in the handler's transaction; the commit proves it by the guard and by the row |
//! | D4 | while another transaction is the writer nobody can take over: a renewal waits a sixth of the lease, 1 s at most, and then says that the row is locked |
//! | D7 | a claim looks at 200 due messages of the order at a time, up to 50 times, and puts off what is blocked |
//! | D9 | a claim reads what it takes and no more, by a partial index: the steps of SQLite's machine are the same with 240,000 rows beside |
//! | D10 | what is received through a store or its clones wakes a worker on them at once; other processes' messages are found at the worker's interval |
//!
//! Handlers take turns, as all writers do, and a claim waits for a handler's end: keep handlers short.
//! A row is written whole each time it changes, so a payload goes through the log three times: received,
//! claimed, done.
//!
//! # What SQLite cannot show
//!
//! - A raw `COMMIT` in a handler commits. The library notices it, refuses what follows and reports
//!   `TransactionLost`; it cannot undo it. A savepoint of the handler's own named `inbox_guard`, set
//!   after a raw `COMMIT; BEGIN`, would hide it.
//! - Whether rows that the call changed in which SQLite rolled back (a full disk) were changed before
//!   that, and are gone, or after it, and are committed: then a failing handler is `TransactionLost`.
//! - An I/O error during COMMIT is `UnknownOutcome`: SQLite goes on as if nothing had been
//!   committed, but after a crash recovery may find the commit record.
//! - Two connections on one file are two transactions: an effect written through another connection
//!   is not protected, and inside a handler it waits for the handler's own lock until it is `BUSY`.
//!   So does a call of the same store outside of `tx`, for any database, and `find` in memory.
//! - Whether a busy timeout of 0 on a caller's connection hides a busy handler ([`Blocking`]).
//! - Network file systems often do not lock. `verify` cannot tell.
//!
//! # Versions and features
//!
//! SQLite 3.37 or newer (STRICT tables).
//!
//! | feature | what it brings |
//! |---|---|
//! | `rusqlite`, on by default | all that is said above. rusqlite 0.32 to 0.43, the one that your application uses if it is in that range |
//! | `bundled`, on by default | compiles SQLite in, for rusqlite; without it the system's library is linked |
//! | `sqlx` | `on_sqlx`, on sqlx 0.9, which compiles SQLite in |
//! | `sqlx-unbundled` | the same, linked to the system's library; its headers are read with libclang |
//!
//! Each driver can be had without the other: `default-features = false, features = ["sqlx"]`. Where
//! both are in one program, rusqlite is 0.39 at most, since only one crate may link SQLite.

#![cfg_attr(
    not(feature = "rusqlite"),
    allow(rustdoc::broken_intra_doc_links, reason = "this page is about the store on rusqlite")
)]
#![cfg_attr(
    not(any(feature = "rusqlite", feature = "_sqlx")),
    allow(dead_code, reason = "without a driver only the text of the table is of use")
)]

mod batch;
mod ddl_words;
mod deferred;
mod driver;
mod errors;
mod guard;
#[cfg(feature = "rusqlite")]
mod on_rusqlite;
#[cfg(feature = "_sqlx")]
pub mod on_sqlx;
mod register;
mod schema;
mod statements;
mod verify;
mod wait;

pub use deferred::messages_ddl;
#[cfg(feature = "rusqlite")]
pub use on_rusqlite::{
    Blocking, BlockingRegistered, BlockingTx, SqliteStore, SqliteTx, create_message_schema_on,
    create_schema_on, is_retryable, kind_of, verify_messages_on, verify_on,
};
/// The driver, in the version whose connections this crate takes.
#[cfg(feature = "rusqlite")]
pub use rusqlite;
pub use schema::{SCHEMA_VERSION, ddl};
/// The other driver, in the version whose transactions [`on_sqlx`] takes.
#[cfg(feature = "_sqlx")]
pub use sqlx;
