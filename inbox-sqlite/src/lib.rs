//! The inbox on SQLite, through rusqlite: `INSERT OR IGNORE`, with every 0 rows proved by reading the original.
mod admin;
mod batch;
mod begin;
mod blocking;
mod commit;
mod connections;
mod ddl_words;
mod errors;
mod offload;
mod register;
mod schema;
mod statements;
mod store;
mod tx;
mod verify;
mod wait;

pub use blocking::{Blocking, BlockingRegistered, BlockingTx};
pub use errors::is_retryable;
/// The driver, in the version whose connections this crate takes.
pub use rusqlite;
pub use schema::{create_schema_on, ddl};
pub use store::SqliteStore;
pub use tx::SqliteTx;
pub use verify::verify_on;
