//! Runs SQLite's blocking calls on tokio's threads for such calls.

use rusqlite::ffi;

use super::errors::raise;

/// Runs `work` off the async threads. A panic in it goes on in the caller (R18).
///
/// If the future is dropped, `work` runs to its end and its result is dropped there: so whatever
/// the result owns, a lease with an open transaction included, cleans up after itself (R17).
///
/// # Errors
///
/// `SQLITE_ABORT` if the runtime shuts down before `work` starts.
pub(crate) async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> rusqlite::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Ok(value),
        Err(end) => match end.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(raise(ffi::SQLITE_ABORT, "the async runtime is shutting down")),
        },
    }
}
