//! Values in the text of a statement: only as hexadecimal literals, which hold nothing but digits.
//!
//! Several statements are one round trip only as text, and text has no parameters. A hexadecimal
//! literal is a byte string whatever the session's character set or `sql_mode`, so there is no quoting
//! to get wrong.

/// The bytes as a literal: `x'6d2d31'`.
pub(crate) fn bytes(value: impl AsRef<[u8]>) -> String {
    let value = value.as_ref();
    let mut text = String::with_capacity(2 * value.len() + 3);
    text.push_str("x'");
    for byte in value {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0xf)]));
    }
    text.push('\'');
    text
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The bytes as a literal, or NULL.
pub(crate) fn nullable(value: Option<impl AsRef<[u8]>>) -> String {
    value.map_or_else(|| "NULL".to_owned(), bytes)
}

/// A list of literals, for `IN (…)`.
pub(crate) fn list<'v>(values: impl IntoIterator<Item = &'v str>) -> String {
    values.into_iter().map(bytes).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r07_any_bytes_are_digits() {
        assert_eq!(bytes("m-1'\\"), "x'6d2d31275c'");
        assert_eq!(bytes([0, 0xff]), "x'00ff'");
        assert_eq!(nullable(None::<[u8; 16]>), "NULL");
        assert_eq!(list(["a", "b"]), "x'61', x'62'");
    }
}
