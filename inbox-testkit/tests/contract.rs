//! `docs/contract.md` says what the suite does: the same cases with the same texts, under rules that
//! are on the page, and field cases that a reader can look up.
//!
//! `INBOX_CONTRACT_WRITE=1` writes the list of cases instead of comparing it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use inbox_testkit::suite::{Case, all_cases};

const START: &str =
    "<!-- cases: written by INBOX_CONTRACT_WRITE=1 cargo test -p inbox-testkit --test contract -->\n";
const END: &str = "<!-- end of cases -->";

#[test]
fn the_page_lists_exactly_the_cases_that_exist() {
    let page = page();
    let (before, rest) = page.split_once(START).expect("the page has the start of the list");
    let (listed, after) = rest.split_once(END).expect("the page has the end of the list");
    let list = list();
    if std::env::var_os("INBOX_CONTRACT_WRITE").is_some() {
        fs::write(page_path(), format!("{before}{START}{list}{END}{after}")).expect("the page is written");
        return;
    }
    assert!(listed == list, "the list on the page is out of date: {}", START.trim());
}

#[test]
fn every_case_has_a_rule_of_the_page_and_a_name_of_its_own() {
    let rules = rules();
    let of_the_page: Vec<Rule> = rules.keys().copied().collect();
    let expected = (1..=18).map(Rule::Inbox).chain((1..=11).map(Rule::Deferred));
    assert_eq!(of_the_page, expected.collect::<Vec<_>>(), "rules of the page");
    let mut names = BTreeSet::new();
    for case in all_cases() {
        assert!(rules.contains_key(&rule_of(&case)), "{} is of no rule", case.name);
        assert!(!case.about.trim().is_empty(), "{} says nothing", case.name);
        assert!(names.insert(case.name), "{} is there twice", case.name);
    }
    let shown: BTreeSet<Rule> = all_cases().iter().map(rule_of).collect();
    let without: Vec<Rule> = rules.keys().copied().filter(|rule| !shown.contains(rule)).collect();
    assert_eq!(without, [Rule::Inbox(14)], "rules without a case; the page says why");
}

#[test]
fn every_field_case_that_is_cited_is_explained() {
    let explained: BTreeSet<u32> = field_cases().into_keys().collect();
    for (file, text) in sources() {
        for number in cited(&text) {
            assert!(explained.contains(&number), "{} cites B{number:02}", file.display());
        }
    }
}

#[test]
fn what_shows_a_field_case_is_there() {
    let words: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(file, _)| file.extension().is_some_and(|extension| extension == "rs"))
        .flat_map(|(_, text)| words(&text).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for (number, row) in field_cases() {
        let shown_by = row.rsplit(" | ").next().unwrap_or_default();
        for name in shown_by.split('`').skip(1).step_by(2) {
            assert!(words.contains(name), "B{number:02} is shown by {name}, which is nowhere");
        }
    }
}

/// The list of cases as it stands on the page.
fn list() -> String {
    let mut text = String::new();
    let mut last = None;
    let rules = rules();
    let mut cases = all_cases();
    // Stable: within a rule the order is the suite's.
    cases.sort_by_key(rule_of);
    for case in cases {
        let rule = rule_of(&case);
        if last.replace(rule) != Some(rule) {
            let title = rules.get(&rule).map(String::as_str).unwrap_or_default();
            text.push_str(&format!("\n### {rule}: {title}\n\n"));
        }
        text.push_str(&format!("- `{}`: {}{}\n", case.name, case.about.trim(), conditions(&case)));
    }
    text.push('\n');
    text
}

/// Where and on what a case runs, if that is not "once, on any store".
fn conditions(case: &Case) -> String {
    let needs: Vec<String> = case.needs.iter().map(|need| format!("`{need:?}`")).collect();
    match (case.per_level, needs.is_empty()) {
        (true, true) => " *Every level.*".to_owned(),
        (true, false) => format!(" *Every level; needs {}.*", needs.join(", ")),
        (false, true) => String::new(),
        (false, false) => format!(" *Needs {}.*", needs.join(", ")),
    }
}

/// A rule of the page. Those of the deferred inbox stand after the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// R1 to R18.
    Inbox(u32),
    /// D1 to D11.
    Deferred(u32),
}

impl Rule {
    /// From `R5`, `r05`, `D2` or `d02`.
    fn read(name: &str) -> Option<Self> {
        let number = name.get(1..)?.parse().ok()?;
        match name.as_bytes()[0] {
            b'R' | b'r' => Some(Self::Inbox(number)),
            b'D' | b'd' => Some(Self::Deferred(number)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inbox(number) => write!(f, "R{number}"),
            Self::Deferred(number) => write!(f, "D{number}"),
        }
    }
}

fn rule_of(case: &Case) -> Rule {
    let rule = case.name.split_once('_').and_then(|(rule, _)| Rule::read(rule));
    rule.unwrap_or_else(|| panic!("{} has no rule", case.name))
}

/// The rules of the page with their titles: `**R1 — One is new.** …`.
fn rules() -> BTreeMap<Rule, String> {
    page()
        .lines()
        .filter_map(|line| line.strip_prefix("**")?.split_once(".**"))
        .filter_map(|(head, _)| head.split_once(" — "))
        .filter_map(|(rule, title)| Some((Rule::read(rule)?, title.to_owned())))
        .collect()
}

/// The rows of the page's last table, by number: `| B25 | what went wrong | shown by |`.
fn field_cases() -> BTreeMap<u32, String> {
    page()
        .lines()
        .filter_map(|line| line.strip_prefix("| B")?.split_once(" | "))
        .map(|(number, row)| (number.parse().expect("a case's number"), row.to_owned()))
        .collect()
}

/// The field cases in a text: `B25`, or `b25` as a part of a name such as `r12_b31_…`.
fn cited(text: &str) -> impl Iterator<Item = u32> {
    words(text).flat_map(|word| {
        let in_a_name = word.contains('_');
        word.split('_').filter_map(move |part| {
            let digits = part.strip_prefix('B').or_else(|| part.strip_prefix('b').filter(|_| in_a_name))?;
            let fits = (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            fits.then(|| digits.parse().ok())?
        })
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

fn page() -> String {
    fs::read_to_string(page_path()).expect("docs/contract.md")
}

fn page_path() -> PathBuf {
    workspace().join("docs/contract.md")
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every text of the workspace in which a rule or a case may be cited.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![workspace()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if [".rs", ".sql", ".md"].iter().any(|end| name.ends_with(end)) {
                let text = fs::read_to_string(&path).expect("a text");
                found.push((path, text));
            }
        }
    }
    found
}
