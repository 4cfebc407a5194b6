//! The deferred inbox: keep the whole message, acknowledge the broker, process later (D1 to D11).

mod backoff;
mod envelope;
mod failure;
mod guarded;
mod headers;
mod history;
mod operate;
mod receive;
mod row;
mod shared;
mod store;
mod worker;

pub use backoff::Backoff;
pub use envelope::{ContentType, Envelope, NotBefore, OrderingKey};
pub use failure::HandlerError;
pub use headers::Headers;
pub use history::{Incident, IncidentKind};
pub use operate::{DamagedMessage, Filter, Listing, MessageCounts};
pub use receive::{BatchReceived, DEFAULT_MAX_PAYLOAD, Received};
pub use row::{MessageRow, State, StoredMessage};
pub use store::{
    AfterDead, Claim, Complete, Count, Deferred, Fail, KeepMessages, KeepRequest, Lease, LeaseToken, Release,
    Renew, Renewal, Replay, Select, StateCount, Unblock, Watch, duration_micros, micros_of,
};
pub use worker::{MessageHandler, Worker, WorkerReport};
