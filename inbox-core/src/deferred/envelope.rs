//! [`Envelope`]: a message with all that was received with it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::message::checked_text;
use crate::{Error, Headers, Message, duration_micros, micros_of};

checked_text! {
    /// What a message belongs to (an account, an order), 1 to 255 bytes: a worker that keeps the order
    /// handles the messages of one key one after the other, as they were received (D7).
    OrderingKey, "ordering key", 255
}

checked_text! {
    /// How the payload is encoded (`application/json`), 1 to 255 bytes. Kept as it was received.
    ContentType, "content type", 255
}

/// A message as the deferred inbox keeps it: id and event type, payload, headers, and when and in what
/// order to handle it.
///
/// ```
/// use std::time::Duration;
/// use inbox_core::{Envelope, Message, MessageId, OrderingKey};
///
/// let message = Message::new(MessageId::new("payment-17")?, "PaymentConfirmed")?;
/// let envelope = Envelope::new(message, br#"{"account":7,"points":10}"#)
///     .fingerprinted()
///     .with_header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
///     .with_ordering_key(OrderingKey::new("account-7")?)
///     .delayed(Duration::from_secs(60));
/// # Ok::<_, inbox_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    message: Message,
    payload: Vec<u8>,
    headers: Headers,
    content_type: Option<ContentType>,
    ordering_key: Option<OrderingKey>,
    not_before: NotBefore,
}

/// From when on a message may be handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NotBefore {
    /// At once.
    #[default]
    Now,
    /// From a time of the sender's, compared with the database's clock.
    At(SystemTime),
    /// So long after it was received, by the database's clock.
    After(Duration),
}

impl NotBefore {
    /// As a store's statement takes it: a time of the sender's in microseconds since 1970, or a delay from now.
    pub fn at_or_after(self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::Now => (None, Some(0)),
            Self::At(time) => (Some(micros_of(time)), None),
            Self::After(delay) => (None, Some(duration_micros(delay))),
        }
    }
}

impl Envelope {
    /// A message and its payload as received, to be handled at once.
    ///
    /// The message has a fingerprint only if you gave it one ([`Message::with_payload`]), or with
    /// [`fingerprinted`](Self::fingerprinted).
    pub fn new(message: Message, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            message,
            payload: payload.into(),
            headers: Headers::default(),
            content_type: None,
            ordering_key: None,
            not_before: NotBefore::Now,
        }
    }

    /// Takes the payload's fingerprint, so that another payload under the same id is an error
    /// ([`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch)) and not a duplicate. Leave it out if the producer
    /// encodes anew when it sends again.
    #[must_use]
    pub fn fingerprinted(mut self) -> Self {
        self.message = self.message.with_payload(&self.payload);
        self
    }

    /// Adds a header. A name may come several times, and the order is kept.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Sets all headers.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Says how the payload is encoded.
    #[must_use]
    pub fn with_content_type(mut self, content_type: ContentType) -> Self {
        self.content_type = Some(content_type);
        self
    }

    /// Says what the message belongs to; see [`OrderingKey`].
    #[must_use]
    pub fn with_ordering_key(mut self, key: OrderingKey) -> Self {
        self.ordering_key = Some(key);
        self
    }

    /// Handles it not before a time of the sender's, compared with the database's clock.
    #[must_use]
    pub fn not_before(mut self, time: SystemTime) -> Self {
        self.not_before = NotBefore::At(time);
        self
    }

    /// Handles it not before so long after it was received, by the database's clock.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.not_before = NotBefore::After(delay);
        self
    }

    /// The id, the event type and the fingerprint.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The payload as it was received.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// How the payload is encoded, if said.
    pub fn content_type(&self) -> Option<&ContentType> {
        self.content_type.as_ref()
    }

    /// What the message belongs to, if said.
    pub fn ordering_key(&self) -> Option<&OrderingKey> {
        self.ordering_key.as_ref()
    }

    /// From when on it may be handled.
    pub fn when(&self) -> NotBefore {
        self.not_before
    }
}
