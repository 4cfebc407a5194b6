//! The inbox on MySQL 8.0.13 or later and MariaDB 10.6 or later, through sqlx: `INSERT IGNORE`.
//!
//! [`MySqlStore`] is the store, one for both servers; `inbox-core` has the vocabulary and what to do with it.
//!
//! ```no_run
//! # async fn example(pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
//! use inbox_core::{Consumer, Inbox, Message, MessageId, Registered};
//! use inbox_mysql::MySqlStore;
//!
//! let store = MySqlStore::new(pool.clone())?; // the table `inbox` in the database of the pool's URL
//! store.create_schema().await?; // makes the table, or verifies it
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
//! | R1 to R5 | the primary key (consumer, message_id) and `INSERT IGNORE`; a second insert of an uncommitted id waits for its transaction | of several that wait, InnoDB may choose one as the victim of a deadlock when the holder rolls back: `Retryable` (1213); so is an id that was registered after the snapshot on MariaDB with `innodb_snapshot_isolation` (1020) |
//! | R6 the bound of a wait | MariaDB: `SET STATEMENT … FOR`; MySQL: the session's `innodb_lock_wait_timeout`, set and restored in the same round trip | MySQL counts in whole seconds and for each row anew, unless there is a [side pool](MySqlStore::with_side_pool); a lock on the whole table is waited for under the session's own `lock_wait_timeout` there |
//! | R7 ids byte for byte | `VARBINARY`; values are sent as hexadecimal literals, past every character set | |
//! | R8 duplicates are proved | after 0 rows the original is read with a lock, which sees past the snapshot | |
//! | R9 errors condemn | a statement's error does not end a transaction here, so the session is ended: `KILL CONNECTION_ID()` | a call by reference that is *cancelled* cannot be condemned: roll back, or use the handle of `Inbox::begin`, which refuses to commit; a guarded commit on an ended session is `UnknownOutcome` |
//! | R10 batches | multi-row inserts of up to 999, sorted by bytes, each with a mark that tells its rows | a rollback among waiters can still be a deadlock (retryable) |
//! | R12 certain commits | a savepoint that dies with the transaction is released by the commit, and what a savepoint of yours may have undone is counted, in one round trip; a registration first proves that a transaction is open | after a deadlock, DDL or a raw COMMIT the server commits every later statement alone: the commit says so (`TransactionLost`), but cannot undo them |
//! | R13 kinds | by the server's number, see [`kind_of`] | |
//! | R15 no traces | no DDL; names are qualified; settings are restored | a `TEMPORARY TABLE` of the same name hides the table here, qualified or not; a call on MySQL that is given up leaves its bound in the session until the next call |
//! | R16 | [`MySqlStore::verify`] | |
//! | R17 cancelling | transactions begin in a task of their own; the inbox prepares nothing | a handler's prepared statement that is dropped while it is prepared (a timeout around it) leaves sqlx 0.9 out of step with the server: what comes next on the connection, the commit too, may panic in sqlx, or wait for ever. It is no `Ok`. Let `after_release` of the pool bound a `ping` |
//! | D2 received whole, claimed once | `LONGBLOB`, sent as text without quotes or backslashes; a claim locks by the index `claim` with `FOR UPDATE SKIP LOCKED`, at READ COMMITTED, and takes what it locked in the same transaction: two round trips | a payload takes four thirds of its length in a packet of the server's `max_allowed_packet`: 16 MiB where MariaDB's default stands, 64 MiB on MySQL; what is longer is refused with the number, before it is sent |
//! | D3 fenced by the token | completing matches the token, and locks the row; the commit counts the completions with its guard | |
//! | D7 order | a claim locks a window of 200, then looks in a new snapshot for the first message of each key, one entry of the index `ordering_key` each | at most 50 windows of waiting messages a claim |
//! | D9 the past costs nothing | each statement names its index (`FORCE INDEX`): InnoDB locks what it reads. A claim of 10 reads 30 rows, with 240,000 others beside as without | without one of the indexes the statements fail (1176, `Schema`); a claim in order reads each of 20,000 waiting messages of a key three or four times for each lease |
//! | waking | neither server tells of rows that are written | a worker looks at intervals |
//!
//! # Proxies
//!
//! A call sends several statements as one query, so a proxy must pass multi-statements on, and must keep
//! a transaction on one server.

mod admin;
mod batch;
mod begin;
mod commit;
mod condemn;
mod deferred;
mod dialect;
mod errors;
mod guard;
mod in_transaction;
mod literal;
mod mark;
mod original;
mod register;
mod schema;
mod script;
mod side;
mod statements;
mod store;
mod transaction;
mod verify;
mod wait;

pub use deferred::{MESSAGES_SCHEMA_VERSION, message_grants, messages_ddl};
pub use errors::{is_retryable, kind_of};
pub use in_transaction::InTransaction;
pub use schema::{Account, SCHEMA_VERSION, ddl, grants, operator_grants};
/// The driver, in the version whose transactions this crate takes.
pub use sqlx;
pub use store::MySqlStore;

/// The transaction of [`MySqlStore`], which a handler gets: for handlers that are functions of their own.
pub type MySqlTx = sqlx::Transaction<'static, sqlx::MySql>;
