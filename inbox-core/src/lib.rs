//! Register a message's id in the caller's own database transaction, together with the effect.
//!
//! This crate holds the vocabulary, the traits that a backend implements, and the loop that begins,
//! registers, handles, commits and runs again. It knows no database: pick a backend crate
//! (`inbox-postgres`, `inbox-sqlite`) or the facade package `inbox-rs` with a feature per backend.
//!
//! | you want to | see |
//! |---|---|
//! | handle one message exactly once | [`Inbox::process`] |
//! | register in a transaction of your own, by value | [`Inbox::register`] |
//! | register in nested code, by reference | [`Inbox::register_if_new`], [`GuardedTx`] |
//! | many messages in one transaction | [`Inbox::process_batch`], [`Inbox::register_batch`] |
//! | keep messages now, handle them later | [`Inbox::receive`], [`Worker`] |
//! | look at kept messages, replay them | [`Inbox::messages`], [`Inbox::replay`] |
//! | write a store | [`InboxStore`], [`Transactional`], [`Begin`], [`Administer`], [`Deferred`] |
//!
//! Rule numbers (R1 to R18, D1 to D11) are those of `docs/contract.md` in the project's repository.

mod batch;
mod deadline;
mod deferred;
mod error;
mod fingerprint;
mod guarded;
mod handler;
mod inbox;
mod message;
mod own_task;
mod process;
mod process_batch;
mod registration;
mod retry;
mod schema;
mod shared;
mod store;

/// The traits are async; implementors need this attribute.
pub use async_trait::async_trait;
pub use batch::{BatchPlan, register_one_by_one};
pub use deadline::Deadline;
pub use deferred::{
    AfterDead, Backoff, BatchReceived, Claim, Complete, ContentType, Count, DEFAULT_MAX_PAYLOAD,
    DamagedMessage, Deferred, Envelope, Fail, Filter, HandlerError, Headers, Incident, IncidentKind,
    KeepMessages, KeepRequest, Lease, LeaseToken, Listing, MessageCounts, MessageHandler, MessageRow,
    NotBefore, OrderingKey, Received, Release, Renew, Renewal, Replay, Select, State, StateCount,
    StoredMessage, Unblock, Watch, Worker, WorkerReport, duration_micros, micros_of,
};
pub use error::{BoxError, Error, ErrorKind};
pub use fingerprint::Fingerprint;
pub use guarded::{GuardedTx, Registered};
pub use handler::{BatchHandler, Handler};
pub use inbox::Inbox;
pub use message::{Consumer, EventType, Message, MessageId};
pub use own_task::in_own_task;
pub use process::Outcome;
pub use process_batch::BatchOutcome;
pub use registration::{Original, Registration};
pub use retry::{RetryPolicy, RetryState};
pub use schema::{Finding, Identifier, SchemaReport, Severity, TableName};
pub use store::{
    Administer, Begin, BoxFuture, Capabilities, DEFAULT_WAIT, End, Guard, InboxStore, Register,
    RegisterBatch, Transactional, Waits,
};
