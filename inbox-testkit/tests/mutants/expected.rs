//! The tables `expected.txt`: for each fault the cases that it fails.

use std::collections::BTreeSet;

/// The cases under a fault's heading.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Fail in every run.
    pub(crate) always: BTreeSet<String>,
    /// Marked with `?`: whether they fail depends on a race, as the table says.
    pub(crate) sometimes: BTreeSet<String>,
}

/// What a table says of a fault on a server. A line is a case, then the servers on which it fails if
/// these are not all, then a `?` if it fails only sometimes.
pub(crate) fn expected(table: &str, fault: &str, server: &str) -> Expected {
    let mut lines = table.lines().skip_while(|line| *line != fault);
    assert!(lines.next().is_some(), "expected.txt has no block for {fault}");
    let mut expected = Expected::default();
    for line in lines.take_while(|line| line.starts_with(' ')) {
        let mut words = line.split_whitespace();
        let case = words.next().expect("a case").to_owned();
        let (marks, servers): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "?");
        if !servers.is_empty() && !servers.contains(&server) {
            continue;
        }
        let cases = if marks.is_empty() { &mut expected.always } else { &mut expected.sometimes };
        cases.insert(case);
    }
    expected
}

/// A block of a table.
pub(crate) fn block(fault: &str, failed: &BTreeSet<String>) -> String {
    let cases = failed.iter().filter(|name| !name.starts_with("r16_refuses_"));
    cases.fold(format!("\n{fault}\n"), |block, name| block + "    " + name + "\n")
}
