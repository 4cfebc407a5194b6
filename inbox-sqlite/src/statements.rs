//! The SQL of one table: the texts in `sql/` with the table's name and the clock filled in.

use inbox_core::TableName;

/// Microseconds since 1970 by SQLite's clock.
///
/// SQLite counts time in whole milliseconds, so three digits are always zero. `julianday` is a
/// double, precise to about 40 µs today: rounding to the millisecond gives back SQLite's own value.
/// `unixepoch(…, 'subsec')` would say it shorter, but needs 3.42. `'now'` is one instant per step.
const NOW: &str = include_str!("sql/now.sql");

/// The statements for one table, each prepared once per connection through the statement cache.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) table: TableName,
    pub(crate) create_table: String,
    pub(crate) insert: String,
    pub(crate) read_original: String,
    pub(crate) still_registered: String,
    pub(crate) forget: String,
}

impl Statements {
    pub(crate) fn new(table: TableName) -> Self {
        let quoted = table.quoted();
        let fill = |sql: &str| sql.replace("{table}", &quoted).replace("{now}", NOW.trim());
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
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_databases_clock_is_the_unix_clock_to_the_millisecond() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        let millis =
            || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();

        let before = millis();
        let now: i64 = conn.query_row(&format!("SELECT {NOW}"), [], |row| row.get(0)).unwrap();
        let after = millis();

        assert!((before - 1..=after + 1).contains(&(now / 1000)), "{before} {now} {after}");
        assert_eq!(now % 1000, 0);
    }

    #[test]
    fn every_placeholder_is_filled() {
        let sql = Statements::new(TableName::new("main", "inbox").unwrap());
        for text in [&sql.create_table, &sql.insert, &sql.read_original, &sql.still_registered, &sql.forget] {
            assert!(text.contains("\"main\".\"inbox\"") && !text.contains('{'), "{text}");
        }
    }
}
