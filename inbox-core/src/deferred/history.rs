//! [`Incident`]: what happened to a message besides being handled: one line of JSON each.

use std::time::SystemTime;

use serde_json::Value;

use crate::registration::time_of_micros;

/// One thing that happened to a message. The history of a message has one for each attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// The number of the attempt, from 1, over all replays.
    pub attempt: u32,
    /// When, by the database's clock.
    pub at: SystemTime,
    /// What happened.
    pub kind: IncidentKind,
    /// The error's text, at most [`MAX_ERROR_BYTES`](Self::MAX_ERROR_BYTES).
    pub error: Option<String>,
}

/// What happened to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IncidentKind {
    /// The handler failed, or panicked.
    Failed,
    /// The lease ran out: the worker died, or could not reach the database.
    Abandoned,
    /// An operator gave it another attempt.
    Replayed,
}

impl Incident {
    /// The longest error text that is kept.
    pub const MAX_ERROR_BYTES: usize = 4096;

    /// A store appends `{"attempt":3,"at":1730000000000000,"kind":"failed","error":"…"}` and a line
    /// feed to the history, with the time in microseconds since 1970 by its own clock.
    pub(crate) fn read_all(history: &[u8]) -> Vec<Self> {
        let lines = history.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // A line that somebody else wrote is no reason to hide the others.
        lines.filter_map(Self::read).collect()
    }

    fn read(line: &[u8]) -> Option<Self> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let kind = match line["kind"].as_str()? {
            "failed" => IncidentKind::Failed,
            "abandoned" => IncidentKind::Abandoned,
            "replayed" => IncidentKind::Replayed,
            _ => return None,
        };
        Some(Self {
            attempt: line["attempt"].as_u64()?.try_into().ok()?,
            at: time_of_micros(line["at"].as_i64()?),
            kind,
            error: line["error"].as_str().map(str::to_owned),
        })
    }
}

/// An error's text as a JSON string, quotes included, cut to what is kept.
pub(crate) fn error_json(text: &str) -> String {
    let mut end = text.len().min(Incident::MAX_ERROR_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Value::from(&text[..end]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_line_by_line_past_what_somebody_else_wrote() {
        let history = "{\"attempt\":1,\"at\":1000000,\"kind\":\"failed\",\"error\":\"a\\u0000b\"}\nnonsense\n\
                       {\"attempt\":2,\"at\":2000000,\"kind\":\"abandoned\"}\n\n";
        let read = Incident::read_all(history.as_bytes());
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].attempt, read[0].kind), (1, IncidentKind::Failed));
        assert_eq!(read[0].error.as_deref(), Some("a\0b"));
        assert_eq!((read[1].attempt, read[1].kind), (2, IncidentKind::Abandoned));
        assert_eq!(read[1].at, SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(2));
    }

    #[test]
    fn a_long_error_is_cut_at_a_character_and_stays_json() {
        let json = error_json(&"é\n".repeat(5000));
        let text: String = serde_json::from_str(&json).unwrap();
        assert!(text.len() <= Incident::MAX_ERROR_BYTES && text.len() > 4000);
        assert!(!json.contains('\n'));
    }
}
