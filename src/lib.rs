//! Exactly-once effects from at-least-once delivery: register a message's id in your own database
//! transaction, together with the effect.
//!
//! This package re-exports `inbox-core`, and one module per backend, each behind a feature.

pub use inbox_core::*;

#[cfg(feature = "postgres")]
pub use inbox_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use inbox_sqlite as sqlite;
