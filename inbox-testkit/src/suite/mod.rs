//! The conformance suite: one named test per case of the contract, on a store of yours.
//!
//! Write a [`Stand`] (a fresh store, write an effect, count effects), call
//! [`conformance!`](crate::conformance) in a test target with `harness = false`, and every rule from
//! R1 to R18 that can be checked from outside becomes tests named
//! `<stand>::<level>::r05_…`. With a [`Probe`] the cases on isolation levels, waits, kills and
//! damaged schemas open as well; with [`Stand::deferred`] those of the deferred inbox, D1 to D11.
//!
//! **The suite writes to and damages the database of the store that it is given**: hand it a
//! throw-away one. Its cases are no stable interface: a new version may add some.

mod adapter;
mod cases;
mod deferred;
mod plan;
mod probe;
mod runner;
mod stage;
mod stand;

pub use cases::{Case, all as all_cases};
pub use deferred::{DeferredStand, KeepsMessages};
pub use plan::Planned;
pub use probe::{Damage, Level, Need, Probe};
pub use runner::{Suite, list, run_case};
pub use stand::{Fresh, Stand};
