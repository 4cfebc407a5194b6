//! The deferred inbox on sqlx's connections.

mod schema;
mod store;
mod verify;
