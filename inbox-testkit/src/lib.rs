//! What tests of an inbox need: the conformance suite, faults, and throw-away servers.
//!
//! - [`suite`]: every rule of the contract as named tests, on a store of yours.
//! - [`servers`]: PostgreSQL, PgBouncer, MySQL and MariaDB from installed binaries, a fresh database
//!   per test, gone afterwards even if the test process is killed.
//! - [`proxy`]: stands in front of a server, counts round trips and cuts connections.
//!
//! This crate is for test code. The suite's cases are no stable interface.

pub mod crash;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod proxy;
pub mod servers;
pub mod suite;

pub use servers::skip_requested;
