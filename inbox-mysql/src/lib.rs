//! The inbox on MySQL and MariaDB, through sqlx: `INSERT IGNORE`.
//!
//! [`MySqlStore`] is the store; `inbox-core` has the vocabulary and what to do with it.

mod admin;
mod batch;
mod begin;
mod commit;
mod condemn;
mod dialect;
mod errors;
mod guard;
mod in_transaction;
mod literal;
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

pub use errors::{is_retryable, kind_of};
pub use in_transaction::InTransaction;
pub use schema::{Account, SCHEMA_VERSION, ddl, grants, operator_grants};
/// The driver, in the version whose transactions this crate takes.
pub use sqlx;
pub use store::MySqlStore;
