//! The SQL of one table: the texts in `sql/` with the table's name and the clock filled in.

use std::sync::Arc;

use inbox_core::TableName;

/// Microseconds since 1970 by SQLite's clock.
///
/// SQLite counts time in whole milliseconds, so three digits are always zero. `julianday` is a
/// double, precise to about 40 µs today: rounding to the millisecond gives back SQLite's own value.
/// `unixepoch(…, 'subsec')` would say it shorter, but needs 3.42. `'now'` is one instant per step.
pub(crate) const NOW: &str = include_str!("sql/now.sql");

/// What time it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Clock {
    /// SQLite's.
    #[default]
    Own,
    /// SQLite's, and what the table `inbox_test_clock` adds to it.
    #[cfg(feature = "test-clock")]
    Shifted,
}

impl Clock {
    fn now(self, #[allow(unused_variables)] table: &TableName) -> String {
        match self {
            // `||` binds closer than the product.
            Self::Own => format!("({})", NOW.trim()),
            #[cfg(feature = "test-clock")]
            Self::Shifted => format!(
                "({} + (SELECT shift_micros FROM \"{}\".\"inbox_test_clock\"))",
                NOW.trim(),
                table.schema()
            ),
        }
    }
}

/// The statements for one table, each prepared once per connection through the statement cache.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) table: TableName,
    pub(crate) clock: Clock,
    pub(crate) create_table: Arc<str>,
    pub(crate) insert: Arc<str>,
    pub(crate) read_original: Arc<str>,
    pub(crate) still_registered: Arc<str>,
    pub(crate) forget: Arc<str>,
    pub(crate) messages: MessageStatements,
}

/// The statements for the table of kept messages.
#[derive(Debug)]
pub(crate) struct MessageStatements {
    pub(crate) table: TableName,
    pub(crate) create_table: Arc<str>,
    pub(crate) insert: Arc<str>,
    pub(crate) candidates: Arc<str>,
    pub(crate) candidates_in_order: Arc<str>,
    pub(crate) claim: Arc<str>,
    pub(crate) postpone: Arc<str>,
    pub(crate) complete: Arc<str>,
    pub(crate) still_leased: Arc<str>,
    pub(crate) renew: Arc<str>,
    pub(crate) fail: Arc<str>,
    pub(crate) release: Arc<str>,
    pub(crate) unblock: Arc<str>,
    pub(crate) select_id: Arc<str>,
    pub(crate) select_in_state: Arc<str>,
    pub(crate) count: Arc<str>,
    pub(crate) replay_id: Arc<str>,
    pub(crate) replay_in_state: Arc<str>,
}

impl Statements {
    pub(crate) fn new(table: TableName) -> Self {
        Self::with_clock(table, Clock::Own)
    }

    pub(crate) fn with_clock(table: TableName, clock: Clock) -> Self {
        let (quoted, now) = (table.quoted(), clock.now(&table));
        let fill = |sql: &str| sql.replace("{table}", &quoted).replace("{now}", &now).into();
        Self {
            // A default takes no subquery.
            create_table: include_str!("sql/create_table.sql")
                .replace("{table}", &quoted)
                .replace("{now}", NOW.trim())
                .into(),
            insert: fill(include_str!("sql/insert.sql")),
            read_original: fill(include_str!("sql/read_original.sql")),
            still_registered: fill(include_str!("sql/still_registered.sql")),
            forget: fill(include_str!("sql/forget.sql")),
            messages: MessageStatements::new(table.messages(), &now),
            table,
            clock,
        }
    }
}

impl MessageStatements {
    fn new(table: TableName, now: &str) -> Self {
        let fill = |sql: &str| {
            sql.replace("{messages}", &table.quoted())
                .replace("{schema}", table.schema().as_str())
                .replace("{name}", table.table().as_str())
                .replace("{columns}", include_str!("sql/messages/columns.sql").trim())
                .replace("{now}", now)
                .into()
        };
        Self {
            create_table: fill(include_str!("sql/messages/create_table.sql")),
            insert: fill(include_str!("sql/messages/insert.sql")),
            candidates: fill(include_str!("sql/messages/candidates.sql")),
            candidates_in_order: fill(include_str!("sql/messages/candidates_in_order.sql")),
            claim: fill(include_str!("sql/messages/claim.sql")),
            postpone: fill(include_str!("sql/messages/postpone.sql")),
            complete: fill(include_str!("sql/messages/complete.sql")),
            still_leased: fill(include_str!("sql/messages/still_leased.sql")),
            renew: fill(include_str!("sql/messages/renew.sql")),
            fail: fill(include_str!("sql/messages/fail.sql")),
            release: fill(include_str!("sql/messages/release.sql")),
            unblock: fill(include_str!("sql/messages/unblock.sql")),
            select_id: fill(include_str!("sql/messages/select_id.sql")),
            select_in_state: fill(include_str!("sql/messages/select_in_state.sql")),
            count: fill(include_str!("sql/messages/count.sql")),
            replay_id: fill(include_str!("sql/messages/replay_id.sql")),
            replay_in_state: fill(include_str!("sql/messages/replay_in_state.sql")),
            table,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let sql = Statements::new(TableName::new("main", "inbox").unwrap());
        for text in [&sql.create_table, &sql.insert, &sql.read_original, &sql.still_registered, &sql.forget] {
            assert!(text.contains("\"main\".\"inbox\"") && !text.contains('{'), "{text}");
        }
        let messages = format!("{:?}", sql.messages);
        // A brace before a quote is JSON, which the statements write into the history.
        let left =
            messages.match_indices('{').filter(|(at, _)| messages[at + 1..].starts_with(char::is_alphabetic));
        assert_eq!(left.count(), 0, "{messages}");
        assert!(messages.contains("UPDATE \\\"main\\\".\\\"inbox_messages\\\""), "{messages}");
    }
}
