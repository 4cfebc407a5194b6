//! The store on real files and in memory. One module per part of the contract.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod commit;
mod deferred;
mod deferred_verify;
mod dropped;
mod register;
mod reopen;
mod stand;
mod verify;
mod wait;
