//! The deferred inbox, written once over a driver's connection (D1 to D11).
//!
//! SQLite has one writer, and each function here that writes runs in a transaction that is the writer.
//! So nothing comes between reading and writing, and no row is ever locked alone.

pub(crate) mod claim;
pub(crate) mod complete;
pub(crate) mod keep;
pub(crate) mod operate;
pub(crate) mod schema;
pub(crate) mod settle;
pub(crate) mod verify;

pub use schema::messages_ddl;
