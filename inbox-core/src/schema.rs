//! Names of tables, and what `verify` reports of them.

use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind};

/// A name of a schema, a table or a column: 1 to 48 ASCII letters, digits and underscores, no digit first.
///
/// Narrower than what the engines allow, so that one rule holds everywhere and no name needs
/// escaping; 48 leaves room for the names of indexes and constraints under PostgreSQL's 63 bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identifier(Arc<str>);

impl Identifier {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 48;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] if it breaks the rule above.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, Error> {
        let name = name.into();
        let fits = (1..=Self::MAX_BYTES).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.as_bytes()[0].is_ascii_digit();
        if fits {
            return Ok(Self(name));
        }
        Err(Error::new(ErrorKind::Schema, format!("use {name:?} as a name in SQL")).with_detail(
            "a name has 1 to 48 ASCII letters, digits and underscores and does not start with a digit",
        ))
    }

    /// The name, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identifier({:?})", &*self.0)
    }
}

/// A table in a schema, always named with both: an unqualified name could be taken by a temporary
/// table (R15).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableName {
    schema: Identifier,
    table: Identifier,
}

impl TableName {
    /// Checks both names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] as [`Identifier::new`].
    pub fn new(schema: &str, table: &str) -> Result<Self, Error> {
        Ok(Self { schema: Identifier::new(schema)?, table: Identifier::new(table)? })
    }

    /// The schema (PostgreSQL), database (MySQL) or attached database (SQLite).
    pub fn schema(&self) -> &Identifier {
        &self.schema
    }

    /// The table.
    pub fn table(&self) -> &Identifier {
        &self.table
    }

    /// The table of kept messages that belongs to this inbox table: in the same schema, with
    /// `_messages` after the name.
    #[must_use]
    pub fn messages(&self) -> Self {
        // Of 57 bytes at most, which leaves room for the names of indexes as well.
        let table = Identifier(format!("{}_messages", self.table).into());
        Self { schema: self.schema.clone(), table }
    }

    /// Both names in double quotes, joined by a dot: the standard's form.
    pub fn quoted(&self) -> String {
        format!("\"{}\".\"{}\"", self.schema, self.table)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// The contract cannot be kept; `verify` is an error.
    Refused,
    /// The contract is kept, but something weakens it.
    Warning,
}

/// One thing that `verify` found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found, why it matters, and what to do.
    pub text: String,
}

/// All that `verify` found of a table (R16).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaReport {
    findings: Vec<Finding>,
}

impl SchemaReport {
    /// An empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a refusal.
    pub fn refuse(&mut self, text: impl Into<String>) {
        self.findings.push(Finding { severity: Severity::Refused, text: text.into() });
    }

    /// Adds a refusal if `wrong`.
    pub fn refuse_if(&mut self, wrong: bool, text: impl Into<String>) {
        if wrong {
            self.refuse(text);
        }
    }

    /// Adds a warning.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.findings.push(Finding { severity: Severity::Warning, text: text.into() });
    }

    /// What was found, in the order of looking.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The texts of the warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.texts(Severity::Warning)
    }

    /// The report if nothing was refused; warnings go to `tracing` as well.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] with the text of every refusal.
    pub fn into_result(self, table: &TableName) -> Result<Self, Error> {
        for warning in self.warnings() {
            tracing::warn!(%table, warning, "inbox table verified with a warning");
        }
        let refusals: Vec<&str> = self.texts(Severity::Refused).collect();
        if refusals.is_empty() {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::Schema, format!("accept the inbox table {table}"))
            .with_detail(refusals.join("; ")))
    }

    fn texts(&self, severity: Severity) -> impl Iterator<Item = &str> {
        self.findings.iter().filter(move |finding| finding.severity == severity).map(|finding| &*finding.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_need_escaping_is_refused() {
        let too_long = "x".repeat(49);
        for bad in ["", "1st", "a b", "a\"b", "a;b", "é", "a.b", too_long.as_str()] {
            assert_eq!(Identifier::new(bad).unwrap_err().kind(), ErrorKind::Schema, "{bad:?}");
        }
        assert_eq!(TableName::new("app", "inbox_2").unwrap().quoted(), "\"app\".\"inbox_2\"");
    }

    #[test]
    fn a_refusal_is_an_error_and_a_warning_is_not() {
        let table = TableName::new("public", "inbox").unwrap();
        let mut report = SchemaReport::new();
        report.warn("commits are asynchronous");
        assert!(report.clone().into_result(&table).is_ok());
        report.refuse("the unique key is missing");
        let error = report.into_result(&table).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("the unique key is missing"), "{error}");
    }
}
