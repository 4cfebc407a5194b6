//! The README and the docs show code that is compiled and run elsewhere in this repository, word for word.

use std::fs;
use std::path::Path;

/// Where a page's code comes from: the page, the file, the region in it.
const SHOWN: &[(&str, &str, &str)] = &[
    ("README.md", "tests/consumer.rs", "unit test"),
    ("README.md", "inbox-testkit/tests/custom_store.rs", "stand"),
    ("docs/guide.md", "tests/consumer/sqlite.rs", "own error"),
    ("docs/guide.md", "tests/consumer/sqlite.rs", "at once"),
    ("docs/guide.md", "tests/consumer/postgres.rs", "batch"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "receive"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "receive a batch"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "receive in a transaction"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "work"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "anyhow in a handler"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "work in batches"),
    ("docs/guide.md", "tests/consumer/deferred.rs", "dead letters"),
    ("docs/guide.md", "tests/consumer/mysql.rs", "nested"),
    ("docs/guide.md", "tests/consumer/mysql.rs", "on mysql"),
    ("docs/guide.md", "tests/consumer/sqlite.rs", "on a file"),
    ("docs/guide.md", "tests/consumer/sqlite.rs", "by value on sqlite"),
    ("docs/guide.md", "tests/consumer/sqlite.rs", "blocking"),
    ("docs/guide.md", "tests/consumer/sqlite_sqlx.rs", "sqlite through sqlx"),
    ("docs/guide.md", "tests/consumer/sqlite_sqlx.rs", "in memory through sqlx"),
    ("docs/guide.md", "tests/consumer/postgres.rs", "two databases"),
    ("docs/guide.md", "tests/consumer/postgres.rs", "test on postgres"),
    ("docs/semantics.md", "tests/consumer/mysql.rs", "ping on release"),
    ("docs/semantics.md", "tests/consumer/postgres.rs", "migration"),
];

#[test]
fn what_the_pages_show_is_the_code_that_runs() {
    for (page, file, region) in SHOWN {
        let code = region_of(&read(file), region);
        assert!(read(page).contains(&code), "{page}'s copy of {region:?} in {file} is out of date");
    }
    for file in ["tests/consumer/purge_postgres.sql", "tests/consumer/purge_sqlite.sql"] {
        assert!(read("docs/semantics.md").contains(&read(file)), "the page's copy of {file} is out of date");
    }
}

#[test]
fn a_stand_is_written_in_forty_lines() {
    let stand = region_of(&read("inbox-testkit/tests/custom_store.rs"), "stand");
    let lines = stand.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 40, "{lines} lines");
}

/// The lines between `// region: NAME` and `// endregion: NAME`, without the indentation of the two.
fn region_of(text: &str, name: &str) -> String {
    let start = format!("// region: {name}\n");
    let (before, after) = text.split_once(&start).expect("the region's start");
    let indent = before.rsplit('\n').next().unwrap_or_default();
    let (code, _) = after.split_once(&format!("{indent}// endregion: {name}\n")).expect("the region's end");
    code.lines().map(|line| format!("{}\n", line.strip_prefix(indent).unwrap_or(line))).collect()
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
