//! Placeholder.

pub mod servers;
