//! Reading originals: the rows that prove a duplicate (R8).

use std::collections::HashMap;

use inbox_core::{Consumer, Error, ErrorKind, Fingerprint, Original};
use sqlx::PgConnection;

use crate::{PostgresStore, errors};

/// An original as it stands in a row; the time is in microseconds since 1970, or none if it is infinite.
#[derive(Debug)]
pub(crate) struct OriginalRow {
    pub(crate) event_type: String,
    pub(crate) fingerprint: Option<Vec<u8>>,
    pub(crate) registered_at: Option<i64>,
}

impl OriginalRow {
    /// The original, unless the fingerprint or the time is none.
    pub(crate) fn check(self, doing: impl Fn() -> String) -> Result<Original, Error> {
        let refuse = |detail: String| Error::new(ErrorKind::Schema, doing()).with_detail(detail);
        let fingerprint = self.fingerprint.map(<[u8; Fingerprint::LEN]>::try_from).transpose();
        let fingerprint = fingerprint.map_err(|bytes| {
            refuse(format!(
                "the original's fingerprint has {} bytes instead of {}",
                bytes.len(),
                Fingerprint::LEN
            ))
        })?;
        let Some(micros) = self.registered_at else {
            return Err(refuse("the original's registered_at is infinite; set it to a time".to_owned()));
        };
        Ok(Original::at_micros(self.event_type, micros, fingerprint.map(Fingerprint::from_bytes)))
    }
}

/// The id, the event type, the fingerprint, and the time.
type Row = (String, String, Option<Vec<u8>>, Option<i64>);

/// The originals of those of `ids` that have one, by id, in a statement and so a snapshot of its own.
pub(crate) async fn read(
    store: &PostgresStore,
    conn: &mut PgConnection,
    consumer: &Consumer,
    ids: &[&str],
    doing: impl Fn() -> String,
) -> Result<HashMap<String, Original>, Error> {
    let rows: Vec<Row> = sqlx::query_as(store.statements().originals.sql())
        .persistent(store.prepared())
        .bind(consumer.as_str())
        .bind(ids)
        .fetch_all(conn)
        .await
        .map_err(|source| errors::error(doing(), source))?;
    rows.into_iter()
        .map(|(id, event_type, fingerprint, registered_at)| {
            let original = OriginalRow { event_type, fingerprint, registered_at }.check(&doing)?;
            Ok((id, original))
        })
        .collect()
}
