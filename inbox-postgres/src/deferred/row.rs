//! A kept message as a statement answers it: the columns of `sql/messages/columns.sql`, in their order.

use inbox_core::MessageRow;

pub(crate) type Row = (
    i64,
    String,
    String,
    Option<Vec<u8>>,
    Vec<u8>,
    String,
    Option<String>,
    Option<String>,
    String,
    bool,
    i64,
    i64,
    Option<i64>,
    String,
    i64,
    i64,
);

pub(crate) fn message(row: Row) -> MessageRow {
    let (sequence, message_id, event_type, fingerprint, payload, headers, content_type, ordering_key, ..) =
        row;
    let (.., state, leased, due_at, attempts, allowed, history, received_at, state_since) =
        (row.8, row.9, row.10, row.11, row.12, row.13, row.14, row.15);
    MessageRow {
        sequence,
        message_id: message_id.into_bytes(),
        event_type: event_type.into_bytes(),
        fingerprint,
        payload,
        headers: headers.into_bytes(),
        content_type: content_type.map(String::into_bytes),
        ordering_key: ordering_key.map(String::into_bytes),
        state: state.into_bytes(),
        leased,
        due_at,
        attempts,
        allowed,
        history: history.into_bytes(),
        received_at,
        state_since,
    }
}
