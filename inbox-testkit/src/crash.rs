//! Kills workers of the deferred inbox while they hold leases, and counts what became of the messages.
//!
//! [`survive_kills`] runs two worker processes on one database and kills one of them again and again with
//! SIGKILL. A worker process is the test's own program, started once more for the same test; so the test
//! asks first whether it is one:
//!
//! ```ignore
//! #[tokio::test(flavor = "multi_thread")]
//! async fn what_killed_workers_held_is_done_once() {
//!     if crash::work_as_told::<Postgres>().await {
//!         return;
//!     }
//!     // With the tables of the inbox, of kept messages and of effects, all empty.
//!     let database = fresh_database().await;
//!     crash::survive_kills::<Postgres>("what_killed_workers_held_is_done_once", database.url()).await;
//! }
//! ```

mod drill;
mod process;
mod worker;

use std::future::Future;
use std::time::Duration;

use inbox_core::{Begin, Consumer, Deferred, HandlerError, Inbox};

pub use drill::survive_kills;
pub use worker::work_as_told;

/// What differs from engine to engine. Worker processes and the test itself use it alike.
pub trait Engine: 'static {
    /// The store.
    type Store: Deferred + Clone + 'static;

    /// Opens the database of a URL, or of a path, with room for six connections at once.
    fn open(database: &str) -> impl Future<Output = Self::Store> + Send;

    /// Writes the one effect of a message.
    fn write_effect(
        tx: &mut <Self::Store as Begin>::Tx,
        message: &str,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Counts the effects that are committed.
    fn count_effects(store: &Self::Store) -> impl Future<Output = Effects> + Send;
}

/// The effects that are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "each engine's test makes it")]
pub struct Effects {
    /// All of them.
    pub all: i64,
    /// Messages that have an effect.
    pub messages: i64,
    /// Messages that have more than one: groups by message `HAVING count(*) > 1`.
    pub doubled: i64,
}

/// So short that what a killed worker held is taken over while the test goes on.
const LEASE: Duration = Duration::from_secs(1);

/// So many that no kill costs a message its last attempt.
const MAX_ATTEMPTS: u32 = 10_000;

fn inbox<S>(store: S) -> Inbox<S> {
    Inbox::new(store, Consumer::new("killed").expect("a name"))
}
