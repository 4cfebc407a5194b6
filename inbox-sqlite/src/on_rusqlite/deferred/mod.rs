//! The deferred inbox on rusqlite's connections.

mod schema;
mod store;
#[cfg(test)]
mod tests;
mod verify;
mod watch;

pub use schema::create_message_schema_on;
pub use verify::verify_messages_on;
pub(crate) use watch::News;
