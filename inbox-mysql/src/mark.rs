//! [`Mark`]: what a row bears in its column `attempt`, for as long as its transaction is open: whose it
//! is, and which statement inserted it.

use std::sync::OnceLock;

use uuid::Uuid;

use crate::literal;

/// How many bytes tell the process, and how many the statement. The session's four are in between.
const PROCESS: usize = 4;
const STATEMENT: usize = 8;

/// The mark of one statement that inserts.
#[derive(Debug)]
pub(crate) struct Mark {
    statement: [u8; STATEMENT],
}

impl Mark {
    pub(crate) fn new() -> Self {
        Self { statement: random() }
    }

    /// As a value in the text of the statement.
    pub(crate) fn literal(&self) -> String {
        format!("CONCAT({}, {})", owner(), literal::bytes(self.statement))
    }

    /// Whether a row bears it.
    pub(crate) fn is_on(&self, attempt: Option<&[u8]>) -> bool {
        attempt.is_some_and(|attempt| attempt.starts_with(process()) && attempt.ends_with(&self.statement))
    }
}

/// What the marks of a session's rows begin with: a row of the same id that another transaction has
/// registered, once ours was undone, begins with something else.
///
/// The server fills in its number of the session, which the driver does not know.
pub(crate) fn owner() -> String {
    format!("{}, UNHEX(LPAD(HEX(CONNECTION_ID() & 4294967295), 8, '0'))", literal::bytes(process()))
}

/// Tells sessions apart that have the same number on two servers of a cluster.
fn process() -> &'static [u8] {
    static PROCESS_MARK: OnceLock<[u8; PROCESS]> = OnceLock::new();
    PROCESS_MARK.get_or_init(random)
}

fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes.copy_from_slice(&Uuid::new_v4().as_bytes()[..LENGTH]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_another_statement_or_process_does_not_bear_the_mark() {
        let (mark, other) = (Mark::new(), Mark::new());
        let row = |process: &[u8], mark: &Mark| [process, b"1234", &mark.statement].concat();
        assert!(mark.is_on(Some(&row(process(), &mark))));
        assert!(!mark.is_on(Some(&row(process(), &other))));
        assert!(!mark.is_on(Some(&row(&[!process()[0], 0, 0, 0], &mark))));
        assert!(!mark.is_on(None));
    }
}
