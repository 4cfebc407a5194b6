//! [`Headers`]: names and values as a broker delivers them, kept as a line of JSON.

use serde_json::Value;

use crate::{Error, ErrorKind};

/// Header names and values, in the order received; a name may come several times.
///
/// Kept as a JSON array of pairs, so that an operator can read them. A value that is not UTF-8 is an
/// array of its bytes there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// The longest headers allowed, in bytes of the JSON in which they are kept: 1 MiB.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Adds a header.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.0.push((name.into(), value.into()));
    }

    /// The first value of a name, compared byte for byte.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    /// All headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a store keeps them.
    pub fn to_json(&self) -> String {
        let pairs = self.iter().map(|(name, value)| {
            let value = match std::str::from_utf8(value) {
                Ok(text) => Value::from(text),
                Err(_) => Value::from(value),
            };
            Value::from(vec![Value::from(name), value])
        });
        Value::from_iter(pairs).to_string()
    }

    /// As a store kept them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backend`] if that is no such JSON: somebody else wrote the row.
    pub fn from_json(text: &[u8]) -> Result<Self, Error> {
        let pairs: Vec<(String, Value)> = serde_json::from_slice(text).map_err(unreadable)?;
        let pairs = pairs.into_iter().map(|(name, value)| {
            let value = match value {
                Value::String(text) => text.into_bytes(),
                bytes => serde_json::from_value(bytes).map_err(unreadable)?,
            };
            Ok((name, value))
        });
        pairs.collect::<Result<_, Error>>().map(Self)
    }
}

fn unreadable(source: serde_json::Error) -> Error {
    Error::new(ErrorKind::Backend, "read a message's headers").with_source(source)
}

impl<N: Into<String>, V: Into<Vec<u8>>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were_also_bytes_repeats_and_nul() {
        let headers: Headers = [
            ("trace", b"abc".to_vec()),
            ("trace", b"second".to_vec()),
            ("", Vec::new()),
            ("bytes", vec![0xff, 0x00, 0x80]),
            ("nul", b"a\0b".to_vec()),
            ("é\"\\", "ü\n".as_bytes().to_vec()),
        ]
        .into_iter()
        .collect();
        let json = headers.to_json();
        assert!(!json.contains('\0'), "PostgreSQL's text has no NUL");
        assert_eq!(Headers::from_json(json.as_bytes()).unwrap(), headers);
        assert_eq!(headers.get("trace"), Some(b"abc".as_slice()));
    }

    #[test]
    fn b79_headers_that_somebody_else_wrote_are_an_error_and_no_panic() {
        for text in ["", "{}", "[1]", "[[1,2]]", "[[\"a\",[256]]]", "[[\"a\",{}]]", "\u{0}"] {
            assert!(Headers::from_json(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
