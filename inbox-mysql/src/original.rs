//! Reading originals: the rows that prove a duplicate (R8).

use std::collections::HashMap;

use inbox_core::{Error, ErrorKind, Fingerprint, Original};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::errors;

/// An original, and which statement of a batch inserted it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) original: Original,
    pub(crate) attempt: Option<Vec<u8>>,
}

/// The originals in the rows of a statement, by id.
pub(crate) fn by_id(rows: &[MySqlRow], doing: impl Fn() -> String) -> Result<HashMap<String, Found>, Error> {
    rows.iter().map(|row| read(row, &doing)).collect()
}

fn read(row: &MySqlRow, doing: &impl Fn() -> String) -> Result<(String, Found), Error> {
    let decoded = decode(row).map_err(|source| errors::error(doing(), source))?;
    let (id, event_type, fingerprint, attempt, micros) = decoded;
    let refuse = |detail: &str| Error::new(ErrorKind::Schema, doing()).with_detail(detail);
    let text =
        |bytes| String::from_utf8(bytes).map_err(|_| refuse("the original holds text that is not UTF-8"));
    let fingerprint = fingerprint.map(<[u8; Fingerprint::LEN]>::try_from).transpose();
    let fingerprint = fingerprint
        .map_err(|_| refuse("the original's fingerprint has not the 16 bytes of one"))?
        .map(Fingerprint::from_bytes);
    let Some(micros) = micros else {
        return Err(refuse("the original's registered_at is no time; set it to one"));
    };
    let original = Original::at_micros(text(event_type)?, micros, fingerprint);
    Ok((text(id)?, Found { original, attempt }))
}

/// The id, the event type, the fingerprint, the attempt, and the time in microseconds since 1970.
type Columns = (Vec<u8>, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>);

fn decode(row: &MySqlRow) -> Result<Columns, sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?))
}
