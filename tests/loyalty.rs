//! Runs `examples/loyalty.rs` as its users do: as a process, on real databases, killed and started again.
//!
//! What the example has to print is computed here from the file of deliveries, without an inbox.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use inbox::sqlite::rusqlite;
use serde::Deserialize;
use serde_json::value::RawValue;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/deliveries.jsonl");
/// The features that this test was compiled with, and the example is to have.
const FEATURES: &[&str] = &[
    "sqlite",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "mysql")]
    "mysql",
];
const EXACTLY_ONCE: &str = "exactly once";
const NAIVE: &str = "naive";

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
    let folder = Folder::new("clean");
    every_event_is_credited_once(&folder.database());
}

#[test]
fn crashes_change_no_total_on_sqlite() {
    let folder = Folder::new("crashes");
    crashes_change_no_total(&folder.database());
}

#[cfg(feature = "postgres")]
#[test]
fn every_event_is_credited_once_on_postgres() {
    postgres::with_fresh_database(|database| every_event_is_credited_once(database));
}

#[cfg(feature = "postgres")]
#[test]
fn crashes_change_no_total_on_postgres() {
    postgres::with_fresh_database(|database| crashes_change_no_total(database));
}

#[cfg(feature = "mysql")]
#[test]
fn every_event_is_credited_once_on_mysql_and_mariadb() {
    mysql::with_fresh_databases(|database| every_event_is_credited_once(database));
}

#[cfg(feature = "mysql")]
#[test]
fn crashes_change_no_total_on_mysql_and_mariadb() {
    mysql::with_fresh_databases(|database| crashes_change_no_total(database));
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
    assert_eq!(database.balances(NAIVE).values().sum::<i64>(), naive_points);
    assert_totals(database, &sample);
}

/// Many aborted runs on one database, then one that may finish.
fn crashes_change_no_total(database: &dyn Database) {
    let sample = Expected::of(&fs::read(SAMPLE).expect("the sample"));

    crash(database, 1, 1);
    assert_eq!(database.balances(EXACTLY_ONCE), BTreeMap::new(), "an effect was committed by a dead process");
    assert_eq!(database.registered(), 0, "a registration was committed by a dead process");

    // The longer ones late, since each run reads again what those before it have committed.
    let crashes =
        [(1, 4), (2, 4), (40, 4), (97, 3), (64, 4), (250, 8), (3, 1), (333, 4), (500, 4), (5, 16), (700, 2)];
    for (handlers, consumers) in crashes {
        let before = database.registered();
        crash(database, handlers, consumers);
        let committed = database.registered() - before;
        // Each of the other consumers may have been between its own effect and its commit.
        assert!(committed.abs_diff(handlers) <= consumers, "{committed} commits of {handlers} handlers");
    }
    assert!(database.registered() < sample.processed, "nothing is left for the last run");

    let output = loyalty(database, &[]);
    let points = format!(" points={}", sample.points());
    assert!(last_line(&output).ends_with(&points), "{} but{points}", last_line(&output));
    assert_totals(database, &sample);
}

/// Lets the example abort itself in its `handlers`-th handler, and sees to it that it did.
fn crash(database: &dyn Database, handlers: u64, consumers: u64) {
    let (handlers, consumers) = (handlers.to_string(), consumers.to_string());
    let output = run(database, &["--crash-after", &handlers, "--consumers", &consumers]);
    assert!(died_by_abort(&output), "--crash-after {handlers} ended with {output:?}");
    assert_eq!(output.stdout, b"", "it went on after its crash");
}

#[cfg(unix)]
fn died_by_abort(output: &Output) -> bool {
    const SIGABRT: i32 = 6;
    std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(SIGABRT)
}

#[cfg(not(unix))]
fn died_by_abort(output: &Output) -> bool {
    !output.status.success()
}

/// The database holds what one clean run leaves: by customer, and by number of registered ids.
fn assert_totals(database: &dyn Database, expected: &Expected) {
    assert_eq!(database.balances(EXACTLY_ONCE), expected.balances);
    assert_eq!(database.registered(), expected.processed);
}

#[test]
fn blank_lines_line_ends_and_a_byte_order_mark_are_no_deliveries() {
    let folder = Folder::new("lines");
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
    let folder = Folder::new("empty");
    let input = folder.file("input", "");

    let output = loyalty(&folder.database(), &["--input", &input]);

    assert_eq!(last_line(&output), "deliveries=0 processed=0 duplicates=0 mismatched=0 rejected=0 points=0");
}

#[test]
fn rejected_and_parked_deliveries_are_named_by_line_without_a_progress_bar_in_a_pipe() {
    let folder = Folder::new("pipe");
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
    let folder = Folder::new("mistakes");
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
    assert!(!Path::new(&folder.path("loyalty.db")).exists(), "a mistake left a database behind");
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

/// A database that the example works on, read by SQL of this test's own.
trait Database {
    fn url(&self) -> String;
    /// Points by customer in a book.
    fn balances(&self, book: &str) -> BTreeMap<String, i64>;
    /// How many ids the inbox holds.
    fn registered(&self) -> u64;
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
    let mut command = Command::new(example());
    if !arguments.contains(&"--database") {
        command.args(["--database", &url]);
    }
    command.args(arguments).output().expect("the example should start")
}

/// The example, compiled from what is there now.
///
/// `cargo test --test loyalty` alone does not build it, and what an earlier command built may be of an
/// older library. So cargo is asked, once per run, and where nothing changed it only names the file.
/// The cargo that started this test holds no lock on the target folder any more.
fn example() -> &'static Path {
    static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("TARGET/tmp");
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()))
            .args(["build", "--offline", "--package", "inbox-rs", "--example", "loyalty"])
            .args(["--features", &FEATURES.join(","), "--profile", &profile(), "--target-dir"])
            .arg(target)
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo should start");
        assert!(output.status.success(), "the example does not compile: {}", error_text(&output));
        let lines = output.stdout.split(|&byte| byte == b'\n');
        let mut built = lines.filter_map(|line| serde_json::from_slice::<Built>(line).ok());
        built.find_map(|built| built.executable).expect("cargo should name the example's file")
    });
    &EXAMPLE
}

/// A message of cargo's. Only the example has a file to execute.
#[derive(Deserialize)]
struct Built {
    executable: Option<PathBuf>,
}

/// The profile of this test's own build, so that the example shares its dependencies.
fn profile() -> String {
    let test = std::env::current_exe().expect("this program's path");
    let folder = test.ancestors().nth(2).and_then(Path::file_name).expect("PROFILE/deps/TEST");
    match folder.to_str() {
        Some("debug") | None => "dev".to_owned(),
        Some(name) => name.to_owned(),
    }
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder of one test, removed when that passes.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loyalty-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file for the test");
        path
    }

    fn database(&self) -> SqliteDatabase {
        self.database_named("loyalty")
    }

    fn database_named(&self, name: &str) -> SqliteDatabase {
        SqliteDatabase(self.path(&format!("{name}.db")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

struct SqliteDatabase(String);

impl SqliteDatabase {
    fn open(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.0).expect("the example's database")
    }
}

impl Database for SqliteDatabase {
    fn url(&self) -> String {
        format!("sqlite:{}", self.0)
    }

    fn balances(&self, book: &str) -> BTreeMap<String, i64> {
        let connection = self.open();
        let mut query =
            connection.prepare("SELECT customer, points FROM account WHERE book = ?1").expect("the table");
        let rows = query.query_map([book], |row| Ok((row.get(0)?, row.get(1)?))).expect("the accounts");
        rows.collect::<Result<_, _>>().expect("the accounts")
    }

    fn registered(&self) -> u64 {
        let count = self.open().query_row("SELECT count(*) FROM inbox", [], |row| row.get::<_, i64>(0));
        count.expect("the inbox's table").unsigned_abs()
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::collections::BTreeMap;

    use inbox::postgres::sqlx::{self, Connection as _, PgConnection};
    use inbox_testkit::servers::{self, PostgresServer, Wanted};
    use tokio::runtime::Runtime;

    /// Runs a test on a database that only it uses.
    pub(super) fn with_fresh_database(test: impl FnOnce(&dyn super::Database)) {
        if servers::skip_requested("postgres") {
            return eprintln!("skipped by INBOX_TEST_SKIP: postgres");
        }
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(PostgresServer::shared(Wanted::Any)).expect("a server");
        let database = runtime.block_on(server.fresh_database()).expect("a database");
        let database = Database { runtime, database };
        test(&database);
        database.runtime.block_on(database.database.close()).expect("the database's end");
    }

    struct Database {
        runtime: Runtime,
        database: servers::Database,
    }

    impl Database {
        fn connect(&self) -> PgConnection {
            self.runtime.block_on(PgConnection::connect(self.database.url())).expect("a connection")
        }
    }

    impl super::Database for Database {
        fn url(&self) -> String {
            self.database.url().to_owned()
        }

        fn balances(&self, book: &str) -> BTreeMap<String, i64> {
            let mut connection = self.connect();
            let rows: Vec<(String, i64)> = self
                .runtime
                .block_on(
                    sqlx::query_as("SELECT customer, points FROM account WHERE book = $1")
                        .bind(book)
                        .fetch_all(&mut connection),
                )
                .expect("the accounts");
            rows.into_iter().collect()
        }

        fn registered(&self) -> u64 {
            let mut connection = self.connect();
            let count: i64 = self
                .runtime
                .block_on(sqlx::query_scalar("SELECT count(*) FROM inbox").fetch_one(&mut connection))
                .expect("the inbox's table");
            count.unsigned_abs()
        }
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use std::collections::BTreeMap;
    use std::thread;

    use inbox::mysql::sqlx::{self, Connection as _, MySqlConnection};
    use inbox_testkit::servers::{self, Flavour, MySqlDatabase, MySqlServer, MySqlWanted};
    use tokio::runtime::Runtime;

    /// Runs a test on a database that only it uses, on each server at the same time.
    pub(super) fn with_fresh_databases(test: impl Fn(&dyn super::Database) + Sync) {
        thread::scope(|scope| {
            let test = &test;
            for wanted in MySqlWanted::ALL {
                // A failure is told with the thread's name.
                let name = wanted.stand().to_owned();
                let run = thread::Builder::new().name(name).spawn_scoped(scope, move || on(wanted, test));
                run.expect("a thread");
            }
        });
    }

    fn on(wanted: MySqlWanted, test: impl Fn(&dyn super::Database)) {
        if servers::skip_requested(wanted.stand()) {
            return eprintln!("skipped by INBOX_TEST_SKIP: {}", wanted.stand());
        }
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(MySqlServer::shared(wanted)).expect("a server");
        assert_eq!(server.flavour(), wanted.flavour(), "{wanted}: the server says {}", server.version());
        let database = runtime.block_on(server.fresh_database()).expect("a database");
        let database = Database { runtime, database };
        test(&database);
        database.runtime.block_on(database.database.close()).expect("the database's end");
    }

    struct Database {
        runtime: Runtime,
        database: MySqlDatabase,
    }

    impl Database {
        fn connect(&self) -> MySqlConnection {
            self.runtime.block_on(MySqlConnection::connect(self.database.url())).expect("a connection")
        }
    }

    impl super::Database for Database {
        fn url(&self) -> String {
            let url = self.database.url();
            match self.database.server().flavour() {
                // Either product may be named.
                Flavour::MariaDb => url.replacen("mysql:", "mariadb:", 1),
                _ => url.to_owned(),
            }
        }

        fn balances(&self, book: &str) -> BTreeMap<String, i64> {
            let mut connection = self.connect();
            let rows: Vec<(String, i64)> = self
                .runtime
                .block_on(
                    sqlx::query_as(
                        "SELECT CONVERT(customer USING utf8mb4), points FROM account WHERE book = ?",
                    )
                    .bind(book)
                    .fetch_all(&mut connection),
                )
                .expect("the accounts");
            rows.into_iter().collect()
        }

        fn registered(&self) -> u64 {
            let mut connection = self.connect();
            let count: i64 = self
                .runtime
                .block_on(sqlx::query_scalar("SELECT count(*) FROM inbox").fetch_one(&mut connection))
                .expect("the inbox's table");
            count.unsigned_abs()
        }
    }
}
