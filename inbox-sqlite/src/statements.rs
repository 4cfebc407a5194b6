//! The SQL of one table: the texts in `sql/` with the table's name and the clock filled in.

use std::sync::Arc;

use inbox_core::TableName;

/// Microseconds since 1970 by SQLite's clock.
///
/// SQLite counts time in whole milliseconds, so three digits are always zero. `julianday` is a
/// double, precise to about 40 µs today: rounding to the millisecond gives back SQLite's own value.
/// `unixepoch(…, 'subsec')` would say it shorter, but needs 3.42. `'now'` is one instant per step.
pub(crate) const NOW: &str = include_str!("sql/now.sql");

/// The statements for one table, each prepared once per connection through the statement cache.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) table: TableName,
    pub(crate) create_table: Arc<str>,
    pub(crate) insert: Arc<str>,
    pub(crate) read_original: Arc<str>,
    pub(crate) still_registered: Arc<str>,
    pub(crate) forget: Arc<str>,
}

impl Statements {
    pub(crate) fn new(table: TableName) -> Self {
        let quoted = table.quoted();
        let fill = |sql: &str| sql.replace("{table}", &quoted).replace("{now}", NOW.trim()).into();
        Self {
            create_table: fill(include_str!("sql/create_table.sql")),
            insert: fill(include_str!("sql/insert.sql")),
            read_original: fill(include_str!("sql/read_original.sql")),
            still_registered: fill(include_str!("sql/still_registered.sql")),
            forget: fill(include_str!("sql/forget.sql")),
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
    }
}
