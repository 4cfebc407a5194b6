//! The deferred inbox: whole messages in a table beside the inbox's, and what workers do with them.

mod claim;
mod complete;
mod keep;
mod lane;
mod operate;
mod row;
pub(crate) mod schema;
mod settle;
mod statements;
mod store;
mod verify;
mod watch;

pub(crate) use complete::refuse_completed;
pub(crate) use statements::MessageStatements;
pub(crate) use watch::channel_of;
