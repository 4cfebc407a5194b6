//! The table of `expected.txt`: for each fault the cases that it fails.

use std::collections::BTreeSet;

use crate::fault::Fault;

const TABLE: &str = include_str!("expected.txt");

/// The cases under the fault's heading.
pub(crate) fn expected(fault: Fault) -> BTreeSet<String> {
    let heading = format!("{fault:?}");
    let lines = TABLE.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.starts_with(' ')).map(|line| line.trim().to_owned()).collect()
}

/// A block of the table.
pub(crate) fn block(fault: Fault, failed: &BTreeSet<String>) -> String {
    let cases = failed.iter().filter(|name| !name.starts_with("r16_refuses_"));
    cases.fold(format!("\n{fault:?}\n"), |block, name| block + "    " + name + "\n")
}
