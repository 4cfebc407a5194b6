//! [`Handler`] and [`BatchHandler`]: the bounds under which `async |tx| …` closures work everywhere.

use std::future::Future;

/// An asynchronous function of one argument, whose future can be named and so be required `Send`.
///
/// Implemented for every `async |tx| …` closure and `async fn` item of the right shape; there is
/// nothing to implement by hand. A closure may capture by reference. Of two forms the compiler says
/// that the closure "does not implement `FnMut`":
///
/// - one that **changes** what it captured. It may run several times, so return the value instead
///   ([`Outcome::Processed`](crate::Outcome::Processed) brings it), or change through a reference;
/// - an **`async move`** one that owns what it captured. Leave `move` out, and let the function or the
///   task around it own that.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// # use inbox_core::{Begin, Error, Inbox, Message};
/// # mod tokio { pub fn spawn(_: impl Future<Output: Send + 'static> + Send + 'static) {} }
/// # async fn credit<Tx>(_: &mut Tx, _: &str) -> Result<u32, Error> { Ok(10) }
/// # fn example<S: Begin + 'static>(inbox: Inbox<S>, message: Message, account: String) {
///
/// tokio::spawn(async move {
///     let runs = AtomicU32::new(0); // the task owns `runs` and `account`, the handler borrows them
///     let handler = async |tx: &mut S::Tx| {
///         runs.fetch_add(1, Ordering::Relaxed); // not `runs += 1`
///         credit(tx, &account).await
///     };
///     inbox.process(&message, handler).await
/// });
/// # }
/// ```
pub trait Handler<T, R>: AsyncFnMut(T) -> R + FnMut(T) -> <Self as Handler<T, R>>::Fut {
    /// The handler's future.
    type Fut: Future<Output = R>;
}

impl<F, T, R, Fut> Handler<T, R> for F
where
    F: AsyncFnMut(T) -> R + FnMut(T) -> Fut,
    Fut: Future<Output = R>,
{
    type Fut = Fut;
}

/// [`Handler`] with two arguments: the transaction and the new messages of a batch.
pub trait BatchHandler<T, M, R>:
    AsyncFnMut(T, M) -> R + FnMut(T, M) -> <Self as BatchHandler<T, M, R>>::Fut
{
    /// The handler's future.
    type Fut: Future<Output = R>;
}

impl<F, T, M, R, Fut> BatchHandler<T, M, R> for F
where
    F: AsyncFnMut(T, M) -> R + FnMut(T, M) -> Fut,
    Fut: Future<Output = R>,
{
    type Fut = Fut;
}
