//! [`in_own_task`]: a step of a store that ends although its caller has gone (R17).

use std::future::Future;

use tracing::Instrument;

use crate::{Error, ErrorKind};

/// Runs a step in a tokio task of its own, and unwinds with its panic.
///
/// For `begin` through a driver that leaves a transaction open where it is dropped between sending
/// the statement and reading its answer, as sqlx 0.9 does: a task whose caller has gone goes on, and
/// drops what it has begun.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if the runtime shuts down meanwhile.
pub async fn in_own_task<T: Send + 'static>(
    doing: &str,
    step: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(step.in_current_span()).await {
        Ok(done) => Ok(done),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(failed) => Err(Error::new(ErrorKind::Unavailable, doing)
            .with_detail("the runtime is shutting down")
            .with_source(failed)),
    }
}
