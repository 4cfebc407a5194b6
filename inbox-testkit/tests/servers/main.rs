//! Throw-away servers start, answer, and leave nothing behind.
#![allow(clippy::print_stdout)] // a child process tells its parent; a skip is said

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod common;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
