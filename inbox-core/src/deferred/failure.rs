//! [`HandlerError`]: why a handler failed, and whether to try again.

use std::fmt;

use crate::BoxError;

/// The error that a worker's handler returns: `?` makes one of any error, and the message is tried
/// again after the worker's backoff. [`never_retry`](Self::never_retry) makes it a dead letter at once.
///
/// It is no `std::error::Error` itself, so that `?` can make it of every one. What is none either, such as an
/// `anyhow::Error`, goes in by `map_err(HandlerError::new)`.
///
/// ```
/// use inbox_core::HandlerError;
///
/// fn amount(payload: &[u8]) -> Result<i64, HandlerError> {
///     let text = std::str::from_utf8(payload).map_err(HandlerError::never_retry)?; // cannot get better
///     Ok(text.parse::<i64>()?) // tried again
/// }
/// # assert!(amount(b"\xff").unwrap_err().is_never_retry());
/// # assert!(!amount(b"x").unwrap_err().is_never_retry());
/// ```
pub struct HandlerError {
    source: BoxError,
    never_retry: bool,
}

impl HandlerError {
    /// A failure that another attempt may not meet.
    pub fn new(source: impl Into<BoxError>) -> Self {
        Self { source: source.into(), never_retry: false }
    }

    /// A failure that every attempt would meet: the message becomes a dead letter now.
    pub fn never_retry(source: impl Into<BoxError>) -> Self {
        Self { source: source.into(), never_retry: true }
    }

    /// Whether the message is not to be tried again.
    pub fn is_never_retry(&self) -> bool {
        self.never_retry
    }

    /// The error that the handler met, if it is of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }

    /// What went wrong, with its causes, as it is kept in the message's history.
    pub(crate) fn text(&self) -> String {
        Self::text_of(&*self.source)
    }

    /// An error and its causes in one line.
    pub(crate) fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let source_text = source.to_string();
            // Many errors quote their cause already.
            if !text.contains(&source_text) {
                text = format!("{text}: {source_text}");
            }
            cause = source.source();
        }
        text
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(source: E) -> Self {
        Self::new(source)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerError")
            .field("source", &self.source)
            .field("never_retry", &self.never_retry)
            .finish()
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}
