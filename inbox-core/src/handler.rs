//! [`Handler`] and [`BatchHandler`]: the bounds under which `async |tx| …` closures work everywhere.

use std::future::Future;

/// An asynchronous function of one argument, whose future can be named and so be required `Send`.
///
/// Implemented for every `async |tx| …` closure and `async fn` item of the right shape; there is
/// nothing to implement by hand. A closure may capture by reference. An `async move` closure, or
/// one that changes what it captured, does not fit: capture a reference (`let sent = &sent;`) and
/// change through it (an atomic, a mutex).
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
