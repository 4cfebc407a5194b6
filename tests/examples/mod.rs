//! What tests of the examples share: the built example, and databases that only one test uses.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError};

use inbox::sqlite::rusqlite;
use serde::Deserialize;

/// The features that this test was compiled with, and the example is to have.
const FEATURES: &[&str] = &[
    "sqlite",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "mysql")]
    "mysql",
];

/// A database that an example works on, read by SQL of the test's own.
pub(crate) trait Database {
    fn name(&self) -> String;
    fn url(&self) -> String;
    /// The one number that a query gives.
    fn number(&self, query: &'static str) -> u64;
    /// The rows of a query of a text and a number.
    fn numbers_by_name(&self, query: &'static str) -> BTreeMap<String, i64>;
}

/// An example, compiled from what is there now.
///
/// `cargo test --test …` alone does not build it, and what an earlier command built may be of an
/// older library. So cargo is asked, once per run, and where nothing changed it only names the file.
/// The cargo that started this test holds no lock on the target folder any more.
pub(crate) fn example(name: &'static str) -> PathBuf {
    static BUILT: LazyLock<Mutex<HashMap<&str, PathBuf>>> = LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.entry(name).or_insert_with(|| build(name)).clone()
}

fn build(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("TARGET/tmp");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()))
        .args(["build", "--offline", "--package", "inbox-rs", "--example", name])
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

pub(crate) fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

pub(crate) fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(unix)]
pub(crate) fn died_by_abort(output: &Output) -> bool {
    const SIGABRT: i32 = 6;
    std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(SIGABRT)
}

#[cfg(not(unix))]
pub(crate) fn died_by_abort(output: &Output) -> bool {
    !output.status.success()
}

/// A folder of one test, removed when that passes.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file for the test");
        path
    }

    pub(crate) fn database(&self) -> SqliteDatabase {
        self.database_named("example")
    }

    pub(crate) fn database_named(&self, name: &str) -> SqliteDatabase {
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

pub(crate) struct SqliteDatabase(String);

impl SqliteDatabase {
    fn open(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.0).expect("the example's database")
    }
}

impl Database for SqliteDatabase {
    fn name(&self) -> String {
        "sqlite".to_owned()
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0)
    }

    fn number(&self, query: &'static str) -> u64 {
        let number = self.open().query_row(query, [], |row| row.get::<_, i64>(0));
        number.expect("the example's tables").unsigned_abs()
    }

    fn numbers_by_name(&self, query: &'static str) -> BTreeMap<String, i64> {
        let connection = self.open();
        let mut query = connection.prepare(query).expect("the example's table");
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("its rows");
        rows.collect::<Result<_, _>>().expect("its rows")
    }
}

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use std::collections::BTreeMap;

    use inbox::postgres::sqlx::{self, Connection as _, PgConnection};
    use inbox_testkit::servers::{self, PostgresServer, Wanted};
    use tokio::runtime::Runtime;

    /// Runs a test on a database that only it uses.
    pub(crate) fn with_fresh_database(test: impl FnOnce(&dyn super::Database)) {
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
        fn name(&self) -> String {
            "postgres".to_owned()
        }

        fn url(&self) -> String {
            self.database.url().to_owned()
        }

        fn number(&self, query: &'static str) -> u64 {
            let mut connection = self.connect();
            let number = sqlx::query_scalar::<_, i64>(query).fetch_one(&mut connection);
            self.runtime.block_on(number).expect("the example's tables").unsigned_abs()
        }

        fn numbers_by_name(&self, query: &'static str) -> BTreeMap<String, i64> {
            let mut connection = self.connect();
            let rows = sqlx::query_as::<_, (String, i64)>(query).fetch_all(&mut connection);
            self.runtime.block_on(rows).expect("the example's table").into_iter().collect()
        }
    }
}

#[cfg(feature = "mysql")]
pub(crate) mod mysql {
    use std::collections::BTreeMap;
    use std::thread;

    use inbox::mysql::sqlx::{self, Connection as _, MySqlConnection};
    use inbox_testkit::servers::{self, Flavour, MySqlDatabase, MySqlServer, MySqlWanted};
    use tokio::runtime::Runtime;

    /// Runs a test on a database that only it uses, on each server at the same time.
    pub(crate) fn with_fresh_databases(test: impl Fn(&dyn super::Database) + Sync) {
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
        let database = runtime.block_on(server.fresh_database()).expect("a database");
        let database = Database { name: wanted.stand().to_owned(), runtime, database };
        test(&database);
        database.runtime.block_on(database.database.close()).expect("the database's end");
    }

    struct Database {
        name: String,
        runtime: Runtime,
        database: MySqlDatabase,
    }

    impl Database {
        fn connect(&self) -> MySqlConnection {
            self.runtime.block_on(MySqlConnection::connect(self.database.url())).expect("a connection")
        }
    }

    impl super::Database for Database {
        fn name(&self) -> String {
            self.name.clone()
        }

        fn url(&self) -> String {
            let url = self.database.url();
            match self.database.server().flavour() {
                // Either product may be named.
                Flavour::MariaDb => url.replacen("mysql:", "mariadb:", 1),
                _ => url.to_owned(),
            }
        }

        fn number(&self, query: &'static str) -> u64 {
            let mut connection = self.connect();
            let number = sqlx::query_scalar::<_, i64>(query).fetch_one(&mut connection);
            self.runtime.block_on(number).expect("the example's tables").unsigned_abs()
        }

        fn numbers_by_name(&self, query: &'static str) -> BTreeMap<String, i64> {
            let mut connection = self.connect();
            // Names are VARBINARY there.
            let rows = sqlx::query_as::<_, (Vec<u8>, i64)>(query).fetch_all(&mut connection);
            let rows = self.runtime.block_on(rows).expect("the example's table").into_iter();
            rows.map(|(name, number)| (String::from_utf8(name).expect("a name in UTF-8"), number)).collect()
        }
    }
}
