//! What is particular to MySQL and MariaDB, on real servers: each test as `mariadb_10_11::…`,
//! `mariadb_11_8::…` and `mysql::…`. The contract's portable cases are the conformance suite's.

// Clippy knows a test by its attribute, and takes the helpers beside it for other code.
#![allow(clippy::unwrap_used)]

mod admin;
mod batch;
mod begin;
mod commit;
mod condemn;
#[path = "../stand/damages.rs"]
mod damages;
mod deferred;
mod deferred_end;
mod deferred_reads;
mod deferred_verify;
mod errors;
mod lost;
mod register;
mod schema;
mod side;
mod stand;
mod verify;
mod wait;
