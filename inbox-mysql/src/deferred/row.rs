//! Reading a kept message's row, as `sql/messages/columns.sql` lists it.

use inbox_core::MessageRow;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::script::Answer;

/// The rows of a statement.
pub(crate) fn read_all(answer: &Answer) -> Result<Vec<MessageRow>, sqlx::Error> {
    answer.rows.iter().map(read).collect()
}

fn read(row: &MySqlRow) -> Result<MessageRow, sqlx::Error> {
    // A time that is none (of zeros, say) is no reason to hide the row.
    let time = |at: usize| row.try_get::<Option<i64>, _>(at).map(Option::unwrap_or_default);
    Ok(MessageRow {
        sequence: row.try_get(0)?,
        message_id: row.try_get(1)?,
        event_type: row.try_get(2)?,
        fingerprint: row.try_get(3)?,
        payload: row.try_get(4)?,
        headers: row.try_get(5)?,
        content_type: row.try_get(6)?,
        ordering_key: row.try_get(7)?,
        state: row.try_get(8)?,
        leased: row.try_get::<i64, _>(9)? != 0,
        due_at: time(10)?,
        attempts: row.try_get(11)?,
        allowed: row.try_get(12)?,
        history: row.try_get(13)?,
        received_at: time(14)?,
        state_since: time(15)?,
    })
}
