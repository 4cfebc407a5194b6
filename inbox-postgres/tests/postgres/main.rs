//! What is particular to PostgreSQL, on a real server. The contract's portable cases are the
//! conformance suite's.

// Clippy knows a test by its attribute, and takes the helpers beside it for other code.
#![allow(clippy::unwrap_used)]

mod batch;
mod begin;
mod commit;
mod deferred;
mod deferred_plans;
mod deferred_verify;
mod errors;
mod register;
mod schema;
mod stand;
mod verify;
mod wait;
