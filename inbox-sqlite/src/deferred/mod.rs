//! The deferred inbox, written once over a driver's connection (D1 to D11).
//!
//! SQLite has one writer, and each function here that writes runs in a transaction that is the writer.
//! So nothing comes between reading and writing, and no row is ever locked alone.

mod claim;
mod complete;
mod keep;
mod operate;
pub(crate) mod schema;
mod settle;
pub(crate) mod verify;

pub(crate) use claim::claim;
pub(crate) use complete::{complete, prove_completed, still_leased};
pub(crate) use keep::keep;
pub(crate) use operate::{Which, count, replay, select, selecting};
pub use schema::messages_ddl;
pub(crate) use settle::{fail, patience_of_renewal, release, renew, renewals_beside_a_writer, unblock};
