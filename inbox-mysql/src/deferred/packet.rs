//! Packets that the server takes: a payload in the text of a statement, and `max_allowed_packet`.

use inbox_core::{Error, ErrorKind};
use sqlx::{MySqlConnection, Row};

use crate::errors;
use crate::script::{Failed, Script};

/// A packet so long is below the lowest default of `max_allowed_packet` that a server ever had, so that
/// nobody needs to ask.
pub(crate) const SURELY_TAKEN: usize = 1 << 20;

/// What a packet has besides the text of the statement, at the most.
const BESIDE: u64 = 4096;

/// Refuses a text that the server would not take. It answers such a packet by closing the connection, and
/// while that is being written the driver sees no more than a broken pipe, as if trying again helped.
pub(crate) async fn refuse_too_long(
    conn: &mut MySqlConnection,
    text: &str,
    doing: impl Fn() -> String,
) -> Result<(), Error> {
    if text.len() <= SURELY_TAKEN {
        return Ok(());
    }
    let ask = Script::new().then("SELECT CAST(@@max_allowed_packet AS SIGNED) LIMIT 1");
    let answers =
        ask.run(conn).await.map_err(|failed| errors::error(doing(), Failed::into_source(failed)))?;
    let most: i64 = answers[0]
        .rows
        .first()
        .ok_or(sqlx::Error::RowNotFound)
        .and_then(|row| row.try_get(0))
        .map_err(|source| errors::error(doing(), source))?;
    let needed = text.len() as u64 + BESIDE;
    if needed <= most.unsigned_abs() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Backend, doing()).with_detail(format!(
        "it takes a packet of {needed} bytes, and the server's max_allowed_packet is {most}; raise that, or \
         lower the inbox's limit by with_max_payload: a payload takes four thirds of its length"
    )))
}

/// Bytes as SQL that is a third longer, where a hexadecimal literal would be twice as long. As safe as that in
/// the text of a statement.
///
/// Not a parameter: a call that is dropped while its statement is prepared leaves sqlx 0.9 out of step with
/// the server (R17).
pub(crate) fn long_bytes(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len().div_ceil(3) * 4 + 16);
    text.push_str("FROM_BASE64('");
    for group in value.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) as usize & 0x3f;
            text.push(if place <= group.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text.push_str("')");
    text
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b03_bytes_are_written_as_rfc_4648_has_them() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff, 0xfe], "+//+"),
            (&[0, 0, 0, 0], "AAAAAA=="),
        ] {
            assert_eq!(long_bytes(bytes), format!("FROM_BASE64('{text}')"));
        }
    }
}
