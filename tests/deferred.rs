//! Runs `examples/deferred.rs` as its users do: as a process, on real databases, killed and started again.
//!
//! What the example has to leave is computed here from the file of deliveries, without an inbox.

mod examples;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::process::{Child, Command, Output, Stdio};

use examples::{Database, Folder, error_text, example, last_line};
use serde::Deserialize;
use serde_json::value::RawValue;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/deliveries.jsonl");

#[test]
fn every_event_is_kept_and_credited_once_on_sqlite() {
    let folder = Folder::new("deferred-clean");
    let sample = fs::read(SAMPLE).expect("the sample");
    every_event_is_kept_and_credited_once(&folder.database(), SAMPLE, &Expected::of(&sample));
}

#[test]
fn crashes_change_no_total_on_sqlite() {
    let folder = Folder::new("deferred-crashes");
    crashes_change_no_total(&folder.database());
}

#[cfg(feature = "postgres")]
#[test]
fn some_events_are_kept_and_credited_once_on_postgres() {
    examples::postgres::with_fresh_database(|database| some_events_are_kept_and_credited_once(database));
}

#[cfg(feature = "postgres")]
#[test]
fn crashes_change_no_total_on_postgres() {
    examples::postgres::with_fresh_database(|database| crashes_change_no_total(database));
}

#[cfg(feature = "mysql")]
#[test]
fn some_events_are_kept_and_credited_once_on_mysql_and_mariadb() {
    examples::mysql::with_fresh_databases(|database| some_events_are_kept_and_credited_once(database));
}

#[cfg(feature = "mysql")]
#[test]
fn crashes_change_no_total_on_mysql_and_mariadb() {
    examples::mysql::with_fresh_databases(|database| crashes_change_no_total(database));
}

/// A part of the sample, since the servers are slower and many.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn some_events_are_kept_and_credited_once(database: &dyn Database) {
    let folder = Folder::new(&format!("deferred-some-{}", database.name()));
    let text = some_lines(800);
    let input = folder.file("some.jsonl", &text);
    every_event_is_kept_and_credited_once(database, &input, &Expected::of(text.as_bytes()));
}

/// The first lines of the sample, and all that are poison.
fn some_lines(first: usize) -> String {
    let text = fs::read_to_string(SAMPLE).expect("the sample");
    let poison = text.lines().skip(first).filter(|line| is_poison(line));
    text.lines().take(first).chain(poison).collect::<Vec<_>>().join("\n")
}

/// One run, the same run again, and the replay of what died.
fn every_event_is_kept_and_credited_once(database: &dyn Database, input: &str, sample: &Expected) {
    let Expected { kept, duplicates, mismatched, rejected, .. } = *sample;
    let deferred = |arguments: &[&str]| deferred(database, &[&["--input", input], arguments].concat());
    assert!((3..=10).contains(&sample.poison.len()), "{:?}", sample.poison);

    let first = deferred(&[]);
    assert_eq!(
        first_line(&first),
        format!("kept={kept} duplicates={duplicates} mismatched={mismatched} rejected={rejected}")
    );
    assert_eq!(dead_letters(&first), sample.poison);
    let text = String::from_utf8_lossy(&first.stdout);
    assert!(text.contains("after 1 attempts: customer "), "nothing died at its first attempt: {text}");
    assert!(text.contains("after 5 attempts: the old register"), "no attempts were spent: {text}");
    assert_eq!(last_line(&first), sample.with_dead_letters());
    assert_eq!(balances(database), sample.before_the_replay);

    let again = deferred(&["--handlers", "3"]);
    let duplicates = kept + duplicates;
    assert_eq!(
        first_line(&again),
        format!("kept=0 duplicates={duplicates} mismatched={mismatched} rejected={rejected}")
    );
    assert_eq!(dead_letters(&again), sample.poison);
    assert_eq!(last_line(&again), sample.with_dead_letters());
    assert_eq!(balances(database), sample.before_the_replay);

    let replayed = deferred(&["--replay"]);
    assert_eq!(dead_letters(&replayed), BTreeSet::new());
    assert_eq!(last_line(&replayed), sample.replayed());
    assert_eq!(balances(database), sample.balances, "other points than those of the example loyalty");
}

/// Aborted runs on one database, two at once that may finish, and an aborted replay.
fn crashes_change_no_total(database: &dyn Database) {
    let folder = Folder::new(&format!("deferred-{}", database.name()));
    let text = some_lines(700);
    let input = folder.file("some.jsonl", &text);
    let sample = Expected::of(text.as_bytes());
    let run = |arguments: &[&str]| deferred(database, &[&["--input", &input], arguments].concat());

    crash(database, &["--input", &input, "--crash-after", "1"]);
    assert_eq!(database.number("SELECT count(*) FROM inbox_messages WHERE state = 'pending'"), sample.kept);
    assert_eq!(effects(database), 0, "an effect was committed by a dead process");

    for (effects_before_it, handlers) in [("60", "8"), ("1", "1"), ("40", "3"), ("80", "16")] {
        crash(database, &["--input", &input, "--crash-after", effects_before_it, "--handlers", handlers]);
        let done = database.number("SELECT count(*) FROM inbox_messages WHERE state = 'done'");
        assert_eq!(effects(database), done, "an effect without its completion, or the other way round");
    }
    assert!(effects(database) < sample.kept / 2, "too little is left for the last runs");

    let other = start(database, &["--input", &input]);
    let output = run(&[]);
    let other = other.wait_with_output().expect("the other process");
    for output in [&output, &other] {
        assert_eq!(dead_letters(output), sample.poison, "{}", error_text(output));
        assert_eq!(last_line(output), sample.with_dead_letters());
    }
    assert_eq!(balances(database), sample.before_the_replay);

    crash(database, &["--input", &input, "--replay", "--crash-after", "2"]);
    assert_eq!(last_line(&run(&["--replay"])), sample.replayed());
    assert_eq!(balances(database), sample.balances);
    assert_eq!(database.number("SELECT count(*) FROM inbox"), sample.kept);
}

#[test]
fn a_payload_that_no_attempt_can_read_is_a_dead_letter_also_after_a_replay() {
    let folder = Folder::new("deferred-unreadable");
    let text = [
        r#"{"id":"m-1","type":"PurchaseCompleted","payload":{"points":1}}"#,
        r#"{"id":"m-2","type":"PurchaseCompleted","payload":{"customer":"c-1","points":3}}"#,
        r#"{"id":"","type":"PurchaseCompleted","payload":{"customer":"c-1","points":3}}"#,
        "not JSON",
    ];
    let input = folder.file("input", &text.join("\r\n\r\n"));

    let first = deferred(&folder.database(), &["--input", &input]);
    assert_eq!(first_line(&first), "kept=2 duplicates=0 mismatched=0 rejected=2");
    assert_eq!(last_line(&first), "received=2 done=1 dead=1 effects=1");
    let replayed = deferred(&folder.database(), &["--input", &input, "--replay"]);

    let text = String::from_utf8_lossy(&replayed.stdout);
    assert!(text.contains("dead: m-1 after 2 attempts: missing field `customer`"), "{text}");
    assert_eq!(last_line(&replayed), "received=2 done=1 dead=1 effects=1");
}

#[test]
fn an_empty_file_is_no_message_and_no_error() {
    let folder = Folder::new("deferred-empty");
    let input = folder.file("input", "");

    let output = deferred(&folder.database(), &["--input", &input]);

    assert_eq!(last_line(&output), "received=0 done=0 dead=0 effects=0");
}

#[test]
fn a_mistake_on_the_command_line_ends_with_its_reason() {
    let folder = Folder::new("deferred-mistakes");
    let missing = folder.path("missing.jsonl");
    let mistakes: &[(&[&str], &str)] = &[
        (&["--input", &missing], "missing.jsonl"),
        (&["--handlers", "0"], "--handlers"),
        (&["--crash-after", "0"], "--crash-after"),
    ];
    for (arguments, reason) in mistakes {
        let output = start(&folder.database(), arguments).wait_with_output().expect("the example");
        assert!(!output.status.success(), "{arguments:?} ended well");
        assert!(error_text(&output).contains(reason), "{arguments:?}: {}", error_text(&output));
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
    assert!(fs::metadata(folder.path("example.db")).is_err(), "a mistake left a database behind");
}

/// What a file of deliveries leaves, computed with maps instead of a database.
#[derive(Debug, Default)]
struct Expected {
    kept: u64,
    duplicates: u64,
    mismatched: u64,
    rejected: u64,
    /// The ids that the example refuses until it is mended.
    poison: BTreeSet<String>,
    before_the_replay: BTreeMap<String, i64>,
    /// The points that the example `loyalty` credits too.
    balances: BTreeMap<String, i64>,
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
    voucher: Option<String>,
    referred: Option<String>,
}

impl Payload {
    fn of(payload: &RawValue) -> Self {
        serde_json::from_str(payload.get()).expect("a payload")
    }

    fn is_poison(&self) -> bool {
        self.referred.as_ref() == Some(&self.customer)
            || self.voucher.as_ref().is_some_and(|voucher| voucher.starts_with("v-1000"))
    }
}

fn is_poison(line: &str) -> bool {
    serde_json::from_str::<Line<'_>>(line).is_ok_and(|line| Payload::of(line.payload).is_poison())
}

impl Expected {
    fn of(file: &[u8]) -> Self {
        let mut expected = Self::default();
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for line in file.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let decoded = serde_json::from_slice::<Line<'_>>(line).ok().filter(|line| !line.id.is_empty());
            let Some(Line { id, payload }) = decoded else {
                expected.rejected += 1;
                continue;
            };
            match seen.get(&id) {
                Some(&first) if first == payload.get() => expected.duplicates += 1,
                Some(_) => expected.mismatched += 1,
                None => {
                    seen.insert(id.clone(), payload.get());
                    expected.keep(id, &Payload::of(payload));
                }
            }
        }
        // A customer whose only messages are poison has no balance yet.
        assert!(expected.before_the_replay.len() <= expected.balances.len());
        expected
    }

    fn keep(&mut self, id: String, payload: &Payload) {
        self.kept += 1;
        *self.balances.entry(payload.customer.clone()).or_default() += payload.points;
        match payload.is_poison() {
            true => assert!(self.poison.insert(id)),
            false => {
                *self.before_the_replay.entry(payload.customer.clone()).or_default() += payload.points;
            }
        }
    }

    fn with_dead_letters(&self) -> String {
        let (kept, dead) = (self.kept, self.poison.len() as u64);
        let done = kept - dead;
        format!("received={kept} done={done} dead={dead} effects={done}")
    }

    fn replayed(&self) -> String {
        format!("received={0} done={0} dead=0 effects={0}", self.kept)
    }
}

fn balances(database: &dyn Database) -> BTreeMap<String, i64> {
    database.numbers_by_name("SELECT customer, points FROM balance")
}

/// By the number of credits, which the handler counts beside the points.
fn effects(database: &dyn Database) -> u64 {
    database.numbers_by_name("SELECT customer, credits FROM balance").values().sum::<i64>().unsigned_abs()
}

/// Starts the example on a database.
fn start(database: &dyn Database, arguments: &[&str]) -> Child {
    let mut command = Command::new(example("deferred"));
    command.args(["--database", &database.url()]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the example should start")
}

/// Runs the example to its good end.
fn deferred(database: &dyn Database, arguments: &[&str]) -> Output {
    let output = start(database, arguments).wait_with_output().expect("the example");
    assert!(output.status.success(), "{arguments:?} ended with {}: {}", output.status, error_text(&output));
    output
}

/// Lets the example abort itself, and sees to it that it did.
fn crash(database: &dyn Database, arguments: &[&str]) {
    let output = start(database, arguments).wait_with_output().expect("the example");
    assert!(examples::died_by_abort(&output), "{arguments:?} ended with {output:?}");
    assert!(!last_line(&output).starts_with("received="), "it went on after its crash");
}

fn first_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().unwrap_or_default().to_owned()
}

/// The ids that the example names as dead, each once.
fn dead_letters(output: &Output) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let named = text.lines().filter_map(|line| line.strip_prefix("dead: ")?.split(' ').next());
    let ids: Vec<_> = named.map(str::to_owned).collect();
    assert_eq!(ids.len(), ids.iter().collect::<HashSet<_>>().len(), "{ids:?}");
    ids.into_iter().collect()
}
