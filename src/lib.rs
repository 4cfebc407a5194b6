//! Exactly-once effects from at-least-once delivery: register a message's id in your own database
//! transaction, together with the effect.
//!
//! This package re-exports [`inbox_core`] whole, and one module per backend, each behind a feature. No
//! feature is on by default.
//!
//! | feature | module | database |
//! |---|---|---|
//! | `mysql` | `inbox::mysql` | MySQL 8.0.13 or later and MariaDB 10.6 or later, through sqlx |
//! | `postgres` | `inbox::postgres` | PostgreSQL 12 or later, through sqlx |
//! | `sqlite` | `inbox::sqlite` | SQLite 3.37 or later, through rusqlite; compiled in |
//! | `sqlite-sqlx` | `inbox::sqlite::on_sqlx` | the same, through sqlx |
//!
//! Each backend's module re-exports its driver (`inbox::mysql::sqlx`, `inbox::postgres::sqlx`,
//! `inbox::sqlite::rusqlite`), in the version whose transactions it takes.
//!
//! Start at [`Inbox`]: [`Inbox::process`] handles one message exactly once, [`Inbox::register`] takes a
//! transaction of yours, [`Inbox::receive`] keeps a message for a [`Worker`] to handle later. What an error
//! means and what to do about it is in the table of [`ErrorKind`].
//!
//! To write a store of your own, implement [`Begin`], [`Transactional`], [`InboxStore`] and
//! [`Administer`], for kept messages also [`KeepMessages`] and [`Deferred`], and run the conformance suite of the
//! crate `inbox-testkit` on it.

pub use inbox_core::*;

#[cfg(feature = "mysql")]
pub use inbox_mysql as mysql;
#[cfg(feature = "postgres")]
pub use inbox_postgres as postgres;
#[cfg(any(feature = "sqlite", feature = "sqlite-sqlx"))]
pub use inbox_sqlite as sqlite;

/// Compiles the README's Rust, and runs what needs no server.
#[cfg(all(doctest, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
