//! What is particular to PostgreSQL, on a real server. The contract's portable cases are the
//! conformance suite's.

mod batch;
mod commit;
mod errors;
mod register;
mod schema;
mod stand;
mod verify;
mod wait;
