//! Runs `examples/loyalty.rs` as its users do: as a process, on real databases, killed and started again.
//!
//! What the example has to print is computed here from the file of deliveries, without an inbox.

mod examples;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use examples::{Database, Folder, died_by_abort, error_text, example, last_line};
use serde::Deserialize;
use serde_json::value::RawValue;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/deliveries.jsonl");
/// Points by customer, with the inbox and without.
const EXACTLY_ONCE: &str = "SELECT customer, points FROM account WHERE book = 'exactly once'";
const NAIVE: &str = "SELECT customer, points FROM account WHERE book = 'naive'";

#[test]
fn the_sample_holds_what_a_broker_does_to_a_service() {
    let sample = Expected::of(&fs::read(SAMPLE).unwrap());

    assert!(sample.deliveries >= 5_000, "{sample:?}");
    assert!(sample.duplicates >= 1_000, "{sample:?}");
    assert_eq!((sample.mismatched, sample.rejected), (1, 2), "{sample:?}");
    assert!(sample.balances.len() >= 150, "{sample:?}");
    assert_ne!(sample.points(), sample.naive_points, "a service without an inbox must be wrong");
}

#[test]
fn every_event_is_credited_once_on_sqlite() {
    let folder = Folder::new("loyalty-clean");
    every_event_is_credited_once(&folder.database());
}

#[test]
fn crashes_change_no_total_on_sqlite() {
    let folder = Folder::new("loyalty-crashes");
    crashes_change_no_total(&folder.database());
}

#[cfg(feature = "postgres")]
#[test]
fn every_event_is_credited_once_on_postgres() {
    examples::postgres::with_fresh_database(|database| every_event_is_credited_once(database));
}

#[cfg(feature = "postgres")]
#[test]
fn crashes_change_no_total_on_postgres() {
    examples::postgres::with_fresh_database(|database| crashes_change_no_total(database));
}

#[cfg(feature = "mysql")]
#[test]
fn every_event_is_credited_once_on_mysql_and_mariadb() {
    examples::mysql::with_fresh_databases(|database| every_event_is_credited_once(database));
}

#[cfg(feature = "mysql")]
#[test]
fn crashes_change_no_total_on_mysql_and_mariadb() {
    examples::mysql::with_fresh_databases(|database| crashes_change_no_total(database));
}

/// One run, the same run again, and the damage without an inbox beside it.
fn every_event_is_credited_once(database: &dyn Database) {
    let sample = Expected::of(&fs::read(SAMPLE).expect("the sample"));
    let Expected { deliveries, processed, duplicates, mismatched, rejected, naive_points, .. } = sample;
    let points = sample.points();

    let first = loyalty(database, &[]);
    assert_eq!(
        last_line(&first),
        format!(
            "deliveries={deliveries} processed={processed} duplicates={duplicates} \
             mismatched={mismatched} rejected={rejected} points={points}"
        )
    );
    assert_totals(database, &sample);
    assert!(error_text(&first).contains("\"evt-001234\""), "the parked delivery is not named");

    let again = loyalty(database, &["--consumers", "7"]);
    let duplicates = processed + duplicates;
    assert_eq!(
        last_line(&again),
        format!(
            "deliveries={deliveries} processed=0 duplicates={duplicates} \
             mismatched={mismatched} rejected={rejected} points={points}"
        )
    );

    let naive = loyalty(database, &["--naive"]);
    let processed = deliveries - rejected;
    assert_eq!(
        last_line(&naive),
        format!(
            "deliveries={deliveries} processed={processed} duplicates=0 \
             mismatched=0 rejected={rejected} points={naive_points}"
        )
    );
    assert_eq!(database.numbers_by_name(NAIVE).values().sum::<i64>(), naive_points);
    assert_totals(database, &sample);
}

/// Many aborted runs on one database, then one that may finish.
fn crashes_change_no_total(database: &dyn Database) {
    let sample = Expected::of(&fs::read(SAMPLE).expect("the sample"));

    crash(database, 1, 1);
    assert_eq!(
        database.numbers_by_name(EXACTLY_ONCE),
        BTreeMap::new(),
        "an effect was committed by a dead process"
    );
    assert_eq!(registered(database), 0, "a registration was committed by a dead process");

    // The longer ones late, since each run reads again what those before it have committed.
    let crashes =
        [(1, 4), (2, 4), (40, 4), (97, 3), (64, 4), (250, 8), (3, 1), (333, 4), (500, 4), (5, 16), (700, 2)];
    for (handlers, consumers) in crashes {
        let before = registered(database);
        crash(database, handlers, consumers);
        let committed = registered(database) - before;
        // Each of the other consumers may have been between its own effect and its commit.
        assert!(committed.abs_diff(handlers) <= consumers, "{committed} commits of {handlers} handlers");
    }
    assert!(registered(database) < sample.processed, "nothing is left for the last run");

    let output = loyalty(database, &[]);
    let points = format!(" points={}", sample.points());
    assert!(last_line(&output).ends_with(&points), "{} but{points}", last_line(&output));
    assert_totals(database, &sample);
}

/// Lets the example abort itself in its `handlers`-th handler, and sees to it that it did.
fn crash(database: &dyn Database, handlers: u64, consumers: u64) {
    let (handlers, consumers) = (handlers.to_string(), consumers.to_string());
    let output = run(database, &["--crash-after", &handlers, "--consumers", &consumers]);
    assert!(died_by_abort(&output), "{}: --crash-after {handlers} ended with {output:?}", database.name());
    assert_eq!(output.stdout, b"", "it went on after its crash");
}

/// The database holds what one clean run leaves: by customer, and by number of registered ids.
fn assert_totals(database: &dyn Database, expected: &Expected) {
    assert_eq!(database.numbers_by_name(EXACTLY_ONCE), expected.balances);
    assert_eq!(registered(database), expected.processed);
}

#[test]
fn blank_lines_line_ends_and_a_byte_order_mark_are_no_deliveries() {
    let folder = Folder::new("loyalty-lines");
    let unix = [
        delivery("m-1", "c-1", 10),
        delivery("m-2", "c-2", -3),
        delivery("m-1", "c-1", 10),
        delivery("m-2", "c-2", 4),
        delivery("", "c-1", 1),
        "not JSON".to_owned(),
        r#"{"id":"m-3","type":"PurchaseCompleted","payload":{"points":1}}"#.to_owned(),
        delivery("m-4", "c-1", 20),
    ]
    .join("\n");
    let windows = format!("\u{feff}\r\n{}\r\n  \r\n\r\n", unix.replace('\n', "\r\n\r\n"));

    for (name, text) in [("unix", &unix), ("windows", &windows)] {
        let input = folder.file(name, text);
        let output = loyalty(&folder.database_named(name), &["--input", &input]);
        assert_eq!(
            last_line(&output),
            "deliveries=8 processed=3 duplicates=1 mismatched=1 rejected=3 points=27",
            "{name}: {output:?}"
        );
    }
}

#[test]
fn an_empty_file_is_no_delivery_and_no_error() {
    let folder = Folder::new("loyalty-empty");
    let input = folder.file("input", "");

    let output = loyalty(&folder.database(), &["--input", &input]);

    assert_eq!(last_line(&output), "deliveries=0 processed=0 duplicates=0 mismatched=0 rejected=0 points=0");
}

#[test]
fn rejected_and_parked_deliveries_are_named_by_line_without_a_progress_bar_in_a_pipe() {
    let folder = Folder::new("loyalty-pipe");
    let text =
        [delivery("m-1", "c-1", 1), delivery("m-1", "c-1", 2), "{".to_owned(), delivery(" ", "c-1", 1)];
    let input = folder.file("input", &text.join("\n"));

    let output = loyalty(&folder.database(), &["--input", &input]);

    let mut lines: Vec<_> = error_text(&output).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("line 2: parked: ") && lines[0].contains("\"m-1\""), "{lines:?}");
    assert!(lines[1].starts_with("line 3: rejected: not a delivery"), "{lines:?}");
    assert!(lines[2].starts_with("line 4: rejected: ") && lines[2].contains("white space"), "{lines:?}");
    assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{output:?}");
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1, "{output:?}");
}

#[test]
fn a_mistake_on_the_command_line_ends_with_its_reason() {
    let folder = Folder::new("loyalty-mistakes");
    let database = folder.database();
    let input = folder.file("input", &delivery("m-1", "c-1", 1));
    let (missing, directory) = (folder.path("missing.jsonl"), folder.path(""));
    let no_folder = format!("sqlite:{}", folder.path("missing/loyalty.db"));
    let no_database = format!("sqlite:{input}");

    let mistakes: &[(&[&str], &str)] = &[
        (&["--input", &missing], "missing.jsonl"),
        (&["--input", &directory], "could not read deliveries from"),
        (&["--consumers", "0"], "--consumers"),
        (&["--crash-after", "0"], "--crash-after"),
        (&["--crash-after", "soon"], "--crash-after"),
        (&["--unknown"], "--unknown"),
        (&["--input", &input, "--database", "sqlite:"], "names no file"),
        (&["--input", &input, "--database", &no_folder], "missing/loyalty.db"),
        (&["--input", &input, "--database", &no_database], "not a database"),
        (&["--input", &input, "--database", "loyalty.db"], "sqlite:FILE"),
        (&["--input", &input, "--database", "oracle://scott:tiger@host/db"], "\"oracle\""),
        #[cfg(feature = "postgres")]
        (
            &["--input", &input, "--database", "postgres://127.0.0.1:1/loyalty"],
            "could not connect to PostgreSQL",
        ),
        #[cfg(not(feature = "postgres"))]
        (&["--input", &input, "--database", "postgres://127.0.0.1:1/loyalty"], "--features postgres"),
        #[cfg(feature = "mysql")]
        (
            &["--input", &input, "--database", "mysql://127.0.0.1:1/loyalty"],
            "could not connect to MySQL or MariaDB",
        ),
        #[cfg(feature = "mysql")]
        (&["--input", &input, "--database", "mysql://127.0.0.1:1"], "names no database"),
        #[cfg(not(feature = "mysql"))]
        (&["--input", &input, "--database", "mysql://127.0.0.1:1/loyalty"], "--features mysql"),
    ];
    for (arguments, reason) in mistakes {
        let output = run(&database, arguments);
        let text = error_text(&output);
        assert!(!output.status.success(), "{arguments:?} ended well");
        assert!(text.contains(reason), "{arguments:?} should say {reason}: {text}");
        assert!(!text.contains("panicked") && !text.contains("tiger"), "{arguments:?}: {text}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
    assert!(!Path::new(&folder.path("example.db")).exists(), "a mistake left a database behind");
}

/// What a file of deliveries leaves, computed with a map instead of a database.
#[derive(Debug, Default)]
struct Expected {
    deliveries: u64,
    processed: u64,
    duplicates: u64,
    mismatched: u64,
    rejected: u64,
    balances: BTreeMap<String, i64>,
    /// The points of a service that credits whatever it can decode.
    naive_points: i64,
}

#[derive(Deserialize)]
struct Line<'a> {
    id: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Payload {
    customer: String,
    points: i64,
}

impl Expected {
    fn of(file: &[u8]) -> Self {
        let mut expected = Self::default();
        let mut seen: HashMap<String, &str> = HashMap::new();
        for line in file.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            expected.deliveries += 1;
            let decoded = serde_json::from_slice::<Line<'_>>(line).ok().filter(|line| !line.id.is_empty());
            let Some(Line { id, payload }) = decoded else {
                expected.rejected += 1;
                continue;
            };
            let Payload { customer, points } = serde_json::from_str(payload.get()).expect("a payload");
            expected.naive_points += points;
            match seen.get(&id) {
                Some(&first) if first == payload.get() => expected.duplicates += 1,
                Some(_) => expected.mismatched += 1,
                None => {
                    seen.insert(id, payload.get());
                    expected.processed += 1;
                    *expected.balances.entry(customer).or_default() += points;
                }
            }
        }
        expected
    }

    fn points(&self) -> i64 {
        self.balances.values().sum()
    }
}

fn delivery(id: &str, customer: &str, points: i64) -> String {
    format!(
        r#"{{"id":"{id}","type":"PurchaseCompleted","payload":{{"customer":"{customer}","points":{points}}}}}"#
    )
}

/// How many ids the inbox holds.
fn registered(database: &dyn Database) -> u64 {
    database.number("SELECT count(*) FROM inbox")
}

/// Runs the example to its good end.
fn loyalty(database: &dyn Database, arguments: &[&str]) -> Output {
    let output = run(database, arguments);
    assert!(output.status.success(), "{arguments:?} ended with {}: {}", output.status, error_text(&output));
    output
}

/// Runs the example on a database; an argument `--database` takes its place.
fn run(database: &dyn Database, arguments: &[&str]) -> Output {
    let url = database.url();
    let mut command = Command::new(example("loyalty"));
    if !arguments.contains(&"--database") {
        command.args(["--database", &url]);
    }
    command.args(arguments).output().expect("the example should start")
}
