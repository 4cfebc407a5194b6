//! The store on rusqlite.

mod admin;
mod batch;
mod begin;
mod blocking;
mod commit;
mod connections;
mod deferred;
mod driver;
mod errors;
mod file_id;
mod guard;
mod offload;
mod register;
mod schema;
mod store;
mod tx;
mod verify;
mod wait;

pub use blocking::{Blocking, BlockingRegistered, BlockingTx};
pub use deferred::{create_message_schema_on, verify_messages_on};
pub use errors::{is_retryable, kind_of};
pub use schema::create_schema_on;
pub use store::SqliteStore;
pub use tx::SqliteTx;
pub use verify::verify_on;
