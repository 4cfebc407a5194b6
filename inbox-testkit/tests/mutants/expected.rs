//! The table of `expected.txt`: for each fault the cases that it fails.

use std::collections::BTreeSet;

use crate::fault::Fault;

const TABLE: &str = include_str!("expected.txt");

/// The cases under a fault's heading.
pub(crate) struct Expected {
    /// Fail in every run.
    pub(crate) always: BTreeSet<String>,
    /// Marked with `?`: whether they fail depends on a race, as the table says.
    pub(crate) sometimes: BTreeSet<String>,
}

pub(crate) fn expected(fault: Fault) -> Expected {
    let heading = format!("{fault:?}");
    let mut lines = TABLE.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "expected.txt has no block for {heading}");
    let cases = lines.take_while(|line| line.starts_with(' ')).map(str::trim);
    let (sometimes, always): (Vec<&str>, Vec<&str>) = cases.partition(|line| line.ends_with(" ?"));
    Expected {
        always: always.into_iter().map(str::to_owned).collect(),
        sometimes: sometimes.into_iter().map(|line| line.trim_end_matches(" ?").to_owned()).collect(),
    }
}

/// A block of the table.
pub(crate) fn block(fault: Fault, failed: &BTreeSet<String>) -> String {
    let cases = failed.iter().filter(|name| !name.starts_with("r16_refuses_"));
    cases.fold(format!("\n{fault:?}\n"), |block, name| block + "    " + name + "\n")
}
