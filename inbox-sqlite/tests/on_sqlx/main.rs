//! The store on sqlx. One module per part of the contract.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod begin;
mod commit;
mod condemn;
mod deferred;
mod register;
mod stand;
mod verify;
mod wait;
