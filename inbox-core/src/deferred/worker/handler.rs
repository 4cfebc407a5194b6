//! [`MessageHandler`]: what a worker calls, several at a time.

use std::future::Future;

use crate::{Begin, BoxFuture, HandlerError, StoredMessage};

/// An asynchronous function of a transaction and a message, or several, which can run several times at once.
///
/// Implemented for every `async |tx, message| …` closure and `async fn` item of the right shape; there is
/// nothing to implement by hand. A closure may capture by reference; leave `move` out and let the task
/// around it own what it captures, as with [`Handler`](crate::Handler).
pub trait MessageHandler<T, M>:
    AsyncFn(T, M) -> Result<(), HandlerError> + Fn(T, M) -> <Self as MessageHandler<T, M>>::Fut
{
    /// The handler's future.
    type Fut: Future<Output = Result<(), HandlerError>>;
}

impl<F, T, M, Fut> MessageHandler<T, M> for F
where
    F: AsyncFn(T, M) -> Result<(), HandlerError> + Fn(T, M) -> Fut,
    Fut: Future<Output = Result<(), HandlerError>>,
{
    type Fut = Fut;
}

/// A handler as the worker's loop calls it: with one message or with many.
pub(super) trait Work<S: Begin>: Sync {
    fn handle<'a>(
        &'a self,
        tx: &'a mut S::Tx,
        messages: &'a [StoredMessage],
    ) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// Calls the handler for each message.
pub(super) struct OneByOne<F>(pub(super) F);

impl<S, F> Work<S> for OneByOne<F>
where
    S: Begin,
    F: for<'t, 'm> AsyncFn(&'t mut S::Tx, &'m StoredMessage) -> Result<(), HandlerError>
        + for<'t, 'm> MessageHandler<&'t mut S::Tx, &'m StoredMessage, Fut: Send>
        + Sync,
{
    fn handle<'a>(
        &'a self,
        tx: &'a mut S::Tx,
        messages: &'a [StoredMessage],
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            for message in messages {
                (self.0)(&mut *tx, message).await?;
            }
            Ok(())
        })
    }
}

/// Calls the handler once for all.
pub(super) struct Together<F>(pub(super) F);

impl<S, F> Work<S> for Together<F>
where
    S: Begin,
    F: for<'t, 'm> AsyncFn(&'t mut S::Tx, &'m [StoredMessage]) -> Result<(), HandlerError>
        + for<'t, 'm> MessageHandler<&'t mut S::Tx, &'m [StoredMessage], Fut: Send>
        + Sync,
{
    fn handle<'a>(
        &'a self,
        tx: &'a mut S::Tx,
        messages: &'a [StoredMessage],
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin((self.0)(tx, messages))
    }
}
