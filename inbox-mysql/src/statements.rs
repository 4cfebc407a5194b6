//! The SQL of a store, made once for its table: the texts are in `sql/`.

use inbox_core::{Consumer, TableName};

use crate::{literal, mark};

/// Every statement on the inbox's table. What is left open in a text is filled with literals.
#[derive(Debug)]
pub(crate) struct Statements {
    register: String,
    pub(crate) originals: OfIds,
    pub(crate) find: OfIds,
    pub(crate) forget: OfIds,
    pub(crate) committed: OfIds,
    prove: OfIds,
}

/// How many ids one statement names. Of a thousand or more MariaDB makes a join
/// (`in_predicate_conversion_threshold`), for which 10.11 reads, and locks, every row of the consumer.
pub(crate) const IDS: usize = 999;

/// A statement on some ids of a consumer.
#[derive(Debug)]
pub(crate) struct OfIds(String);

impl Statements {
    pub(crate) fn new(table: &TableName) -> Self {
        let on_table = |text| without_comments(text).replace("{table}", &quoted(table));
        let of_owner = |text| on_table(text).replace("{owner}", &mark::owner());
        Self {
            register: on_table(include_str!("sql/register.sql")),
            originals: OfIds(on_table(include_str!("sql/originals.sql"))),
            find: OfIds(on_table(include_str!("sql/find.sql"))),
            forget: OfIds(on_table(include_str!("sql/forget.sql"))),
            committed: OfIds(of_owner(include_str!("sql/committed.sql"))),
            prove: OfIds(of_owner(include_str!("sql/prove.sql"))),
        }
    }

    /// Registers rows, each a list of literals in parentheses.
    pub(crate) fn register(&self, rows: &[String]) -> String {
        self.register.replace("{rows}", &rows.join(",\n"))
    }

    /// Fails unless all of these ids are registered.
    pub(crate) fn prove(&self, consumer: &Consumer, ids: &[&str]) -> String {
        self.prove.of(consumer, ids).replace("{expected}", &ids.len().to_string())
    }
}

impl OfIds {
    /// The text for these ids.
    pub(crate) fn of(&self, consumer: &Consumer, ids: &[&str]) -> String {
        self.0
            .replace("{consumer}", &literal::bytes(consumer.as_str()))
            .replace("{ids}", &literal::list(ids.iter().copied()))
    }
}

/// Both names in backticks, which every `sql_mode` takes.
pub(crate) fn quoted(table: &TableName) -> String {
    format!("`{}`.`{}`", table.schema(), table.table())
}

/// A text as it is sent: its comments are for readers, not for each parse and each server log.
pub(crate) fn without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    lines.join("\n")
}
