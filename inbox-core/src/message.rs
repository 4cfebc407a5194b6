//! [`Message`] and the names in it: checked when they are made, so that no store ever sees a bad one.

use std::sync::Arc;

use uuid::Uuid;

use crate::{Error, ErrorKind, Fingerprint};

/// Defines a checked text type; all follow rule R7 and differ in name and length only.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest text allowed, in bytes of UTF-8.
            pub const MAX_BYTES: usize = $max;

            /// Checks the text and keeps it byte for byte: nothing is trimmed, folded or normalised.
            ///
            /// # Errors
            ///
            /// [`InvalidMessage`](crate::ErrorKind::InvalidMessage) if it is empty, longer than
            /// [`MAX_BYTES`](Self::MAX_BYTES), holds a NUL, or is white space only.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, Error> {
                let text = text.into();
                $crate::message::check($what, &text, Self::MAX_BYTES)?;
                Ok(Self(text))
            }

            /// The text, unchanged.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use checked_text;

checked_text! {
    /// The stable id that a producer gave one event: the same on every redelivery, 1 to 255 bytes.
    ///
    /// Ids are compared byte for byte on every backend (R7): `order-1`, `Order-1` and `order-1 `
    /// are three ids. Cloning is cheap.
    MessageId, "message id", 255
}

checked_text! {
    /// The name of one handler, 1 to 100 bytes. Two consumers of one message are independent.
    ///
    /// It is half of the key, so renaming a consumer makes every message new to it.
    Consumer, "consumer", 100
}

checked_text! {
    /// What kind of event a message carries ("PaymentConfirmed"), 1 to 255 bytes. Kept for operators.
    EventType, "event type", 255
}

impl MessageId {
    /// An id from a UUID, in its canonical spelling (lower case, with hyphens).
    pub fn from_uuid(uuid: Uuid) -> Self {
        let mut buffer = Uuid::encode_buffer();
        Self(Arc::from(&*uuid.hyphenated().encode_lower(&mut buffer)))
    }

    /// An id from the text of a UUID in any usual spelling (case, braces, `urn:uuid:`, no hyphens).
    ///
    /// All spellings of one UUID become one id, which [`MessageId::new`] would keep apart (B100).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidMessage`] if the text is not a UUID.
    pub fn parse_uuid(text: &str) -> Result<Self, Error> {
        let uuid = Uuid::try_parse(text).map_err(|source| {
            Error::new(ErrorKind::InvalidMessage, format!("use {} as a message id", shown(text)))
                .with_detail("it is not a UUID; use MessageId::new for other ids")
                .with_source(source)
        })?;
        Ok(Self::from_uuid(uuid))
    }
}

pub(crate) fn check(what: &str, text: &str, max: usize) -> Result<(), Error> {
    let fault = if text.is_empty() {
        "it is empty".to_owned()
    } else if text.len() > max {
        format!("it has {} bytes, the limit is {max}", text.len())
    } else if text.contains('\0') {
        "it contains a NUL character, which PostgreSQL cannot store".to_owned()
    } else if text.chars().all(char::is_whitespace) {
        "it is white space only".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidMessage, format!("use {} as {what}", shown(text))).with_detail(fault))
}

/// At most 40 characters of a text, quoted: an error message must not carry a megabyte of input.
fn shown(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// One message as the inbox sees it: its id, its event type and, if wanted, its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    id: MessageId,
    event_type: EventType,
    fingerprint: Option<Fingerprint>,
}

impl Message {
    /// A message without a fingerprint.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidMessage`] if the event type breaks its limits (see [`EventType`]).
    pub fn new(id: MessageId, event_type: impl Into<Arc<str>>) -> Result<Self, Error> {
        Ok(Self { id, event_type: EventType::new(event_type)?, fingerprint: None })
    }

    /// Adds the fingerprint of the payload as received, so that another payload under the same id
    /// is an error ([`ErrorKind::Mismatch`]) instead of a duplicate.
    #[must_use]
    pub fn with_payload(self, payload: &[u8]) -> Self {
        self.with_fingerprint(Fingerprint::of(payload))
    }

    /// Adds a fingerprint that was computed elsewhere.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// The message's id.
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// The event type.
    pub fn event_type(&self) -> &EventType {
        &self.event_type
    }

    /// The fingerprint, if one was given.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(text: &str) -> Option<ErrorKind> {
        MessageId::new(text).err().map(|error| error.kind())
    }

    #[test]
    fn r07_ids_outside_the_limits_are_invalid_before_any_sql() {
        let too_long = "x".repeat(256);
        for bad in ["", " ", "\t\n", "\u{a0}\u{2003}", "a\0b", too_long.as_str()] {
            assert_eq!(kind_of(bad), Some(ErrorKind::InvalidMessage), "{bad:?}");
        }
        for good in [" a ", "a", "\u{feff}", "0042", &"é".repeat(127)] {
            assert_eq!(kind_of(good), None, "{good:?}");
        }
    }

    #[test]
    fn r07_limits_count_bytes_not_characters() {
        assert_eq!(kind_of(&"é".repeat(128)), Some(ErrorKind::InvalidMessage));
        assert!(Consumer::new("c".repeat(100)).is_ok());
        assert!(Consumer::new("c".repeat(101)).is_err());
        assert!(EventType::new("t".repeat(255)).is_ok());
        assert!(EventType::new("t".repeat(256)).is_err());
    }

    #[test]
    fn b100_every_spelling_of_a_uuid_is_one_id() {
        let canonical = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for spelling in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(MessageId::parse_uuid(spelling).unwrap().as_str(), canonical);
            assert_eq!(MessageId::new(spelling).unwrap().as_str(), spelling);
        }
        let error = MessageId::parse_uuid("order-1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMessage);
    }

    #[test]
    fn an_error_quotes_no_more_than_the_start_of_a_long_text() {
        let error = MessageId::new("é".repeat(1_000_000)).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
