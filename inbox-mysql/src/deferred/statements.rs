//! The SQL on the table of kept messages, made once for a store: the texts are in `sql/messages/`.

use inbox_core::{Consumer, Lease, State, TableName};

use crate::literal;
use crate::statements::{quoted, without_comments};

/// How many rows one statement names, by a sequence and a token each. Of lists with a thousand values
/// MariaDB makes a join (`in_predicate_conversion_threshold`), and reads the table for it.
pub(crate) const LEASES: usize = 499;

/// How much of a message's history is kept, in bytes, its latest lines: beyond `max_allowed_packet` CONCAT
/// answers NULL, and a message whose failure cannot be written down would be tried for ever.
const HISTORY: usize = 1 << 20;

/// A statement in which some values are left open.
#[derive(Debug)]
pub(crate) struct Text(String);

impl Text {
    /// The statement with these values, each of them SQL.
    pub(crate) fn with(&self, values: &[(&str, &str)]) -> String {
        values.iter().fold(self.0.clone(), |text, (name, value)| text.replace(name, value))
    }

    /// The statement on some leases of a consumer.
    pub(crate) fn of(&self, consumer: &Consumer, leases: &[Lease]) -> String {
        let pairs = leases
            .iter()
            .map(|lease| format!("({}, {})", lease.sequence, literal::bytes(lease.token.as_bytes())));
        self.with(&[
            ("{consumer}", &literal::bytes(consumer.as_str())),
            ("{sequences}", &sequences(leases.iter().map(|lease| lease.sequence))),
            ("{leases}", &joined(pairs)),
        ])
    }
}

/// Every statement on the table of kept messages.
#[derive(Debug)]
pub(crate) struct MessageStatements {
    /// Whether the clock is the tests'.
    test_clock: bool,
    now: String,
    pub(crate) keep: Text,
    pub(crate) candidates: Text,
    pub(crate) blocked: Text,
    pub(crate) postpone: Text,
    pub(crate) abandon: Text,
    pub(crate) take: Text,
    pub(crate) bury: Text,
    pub(crate) read: Text,
    pub(crate) lock_leases: Text,
    pub(crate) hold_leases: Text,
    pub(crate) see_leases: Text,
    pub(crate) done: Text,
    pub(crate) renew: Text,
    pub(crate) complete: Text,
    pub(crate) prove: Text,
    pub(crate) retry: Text,
    pub(crate) die: Text,
    pub(crate) release: Text,
    pub(crate) head: Text,
    pub(crate) unblock: Text,
    pub(crate) replay_ids: Text,
    pub(crate) replay_state: Text,
    pub(crate) select_ids: Text,
    pub(crate) select_state: Text,
    pub(crate) count: Text,
}

/// Makes a [`Text`] of a file in `sql/messages/`.
macro_rules! text {
    ($make:ident, $name:literal) => {
        Text($make(include_str!(concat!("../sql/messages/", $name, ".sql"))))
    };
}

impl MessageStatements {
    /// The statements on the table that belongs to an inbox's.
    pub(crate) fn new(inbox: &TableName, test_clock: bool) -> Self {
        let now = now(inbox, test_clock);
        let columns = include_str!("../sql/messages/columns.sql").trim_end();
        let of_table = |text: &str| {
            named_states(&without_comments(text))
                .replace("{columns}", columns)
                .replace("{table}", &quoted(&inbox.messages()))
                .replace("{now}", &now)
        };
        // A listing by state may leave payloads out; all others have them.
        let whole = |text: &str| of_table(text).replace("{payload}", "payload");
        Self {
            test_clock,
            keep: text!(of_table, "keep"),
            candidates: text!(of_table, "candidates"),
            blocked: text!(of_table, "blocked"),
            postpone: text!(of_table, "postpone"),
            abandon: text!(of_table, "abandon"),
            take: text!(of_table, "take"),
            bury: text!(of_table, "bury"),
            read: text!(whole, "read"),
            lock_leases: text!(of_table, "lock_leases"),
            hold_leases: text!(of_table, "hold_leases"),
            see_leases: text!(of_table, "see_leases"),
            done: text!(of_table, "done"),
            renew: text!(of_table, "renew"),
            complete: text!(of_table, "complete"),
            prove: text!(of_table, "prove"),
            retry: text!(of_table, "retry"),
            die: text!(of_table, "die"),
            release: text!(of_table, "release"),
            head: text!(of_table, "head"),
            unblock: text!(of_table, "unblock"),
            replay_ids: text!(of_table, "replay_ids"),
            replay_state: text!(of_table, "replay_state"),
            select_ids: text!(whole, "select_ids"),
            select_state: text!(of_table, "select_state"),
            count: text!(of_table, "count"),
            now,
        }
    }

    /// The same on another table.
    pub(crate) fn on(&self, inbox: &TableName) -> Self {
        Self::new(inbox, self.test_clock)
    }

    /// The database's clock, as SQL.
    pub(crate) fn now(&self) -> &str {
        &self.now
    }

    /// The history with a line more. `rest` is what follows in its JSON, from the kind on.
    ///
    /// Of hexadecimal literals and ASCII, so that no character set and no `sql_mode` changes a byte.
    pub(crate) fn line(&self, rest: &str) -> String {
        format!(
            "CONCAT(RIGHT(history, {HISTORY}), {}, CONVERT(attempts USING ascii), {}, \
             CONVERT(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) USING ascii), {})",
            literal::bytes("{\"attempt\":"),
            literal::bytes(",\"at\":"),
            self.now,
            literal::bytes(format!(",{rest}}}\n")),
        )
    }
}

/// The one fragment that reads the clock. In production nothing replaces it.
fn now(inbox: &TableName, test_clock: bool) -> String {
    match test_clock {
        true => format!(
            "(UTC_TIMESTAMP(6) + INTERVAL (SELECT shift_micros FROM `{}`.`inbox_test_clock`) MICROSECOND)",
            inbox.schema()
        ),
        false => "UTC_TIMESTAMP(6)".to_owned(),
    }
}

/// Puts the states in as literals.
pub(crate) fn named_states(text: &str) -> String {
    State::ALL.iter().fold(text.to_owned(), |text, state| {
        text.replace(&format!("{{{}}}", state.as_str()), &literal::bytes(state.as_str()))
    })
}

/// A time in microseconds since 1970, as SQL.
pub(crate) fn time(micros: i64) -> String {
    format!("(TIMESTAMP'1970-01-01 00:00:00.000000' + INTERVAL {micros} MICROSECOND)")
}

/// Sequences, for `IN (…)`.
pub(crate) fn sequences(sequences: impl IntoIterator<Item = i64>) -> String {
    joined(sequences.into_iter().map(|sequence| sequence.to_string()))
}

fn joined(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(", ")
}
