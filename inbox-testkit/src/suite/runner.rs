//! [`Suite`]: from stands to named tests, with what was ignored or skipped said at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Once};
use std::time::Duration;

use inbox_core::InboxStore;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

use super::adapter::Opened;
use super::plan::{Planned, plan};
use super::{Level, Stand};
use crate::skip_requested;

/// How long one case may take: it ends long before, unless a lock is never let go.
const CASE_LIMIT: Duration = Duration::from_secs(60);

/// The named tests of one or more stands.
///
/// The test target that calls it needs `harness = false`; the arguments are those of `cargo test`.
#[must_use = "call run"]
pub struct Suite {
    arguments: Arguments,
    trials: Vec<Trial>,
    notes: BTreeMap<String, usize>,
}

impl Suite {
    /// An empty suite, with the arguments of the process.
    pub fn from_args() -> Self {
        let mut arguments = Arguments::from_args();
        // Cases wait for servers, not for the processor.
        arguments.test_threads.get_or_insert(8);
        Self { arguments, trials: Vec::new(), notes: BTreeMap::new() }
    }

    /// Adds every case of a stand, at every level of its probe.
    ///
    /// `name` is what `INBOX_TEST_SKIP` lists to leave the stand out; `start` is not called then.
    /// A stand that cannot start is a failing test: a skip must be asked for.
    pub fn stand<T: Stand, E: Display>(mut self, name: &str, start: impl FnOnce() -> Result<T, E>) -> Self {
        if skip_requested(name) {
            self.note(format!("stand {name}: skipped, as INBOX_TEST_SKIP asks"));
            let test = Trial::test(format!("{name}::skipped_by_request"), || Ok(()));
            self.trials.push(test.with_ignored_flag(true));
            return self;
        }
        let listed = start().map_err(|error| error.to_string()).and_then(|stand| {
            let stand = Arc::new(stand);
            list(&stand).map(|planned| (stand, planned))
        });
        match listed {
            Ok((stand, planned)) => self.add(&stand, planned),
            Err(error) => {
                let failing = move || Err(Failed::from(&error));
                self.trials.push(Trial::test(format!("{name}::stand_is_available"), failing));
            }
        }
        self
    }

    /// Runs what the arguments select; prints what was ignored, and why.
    #[allow(clippy::print_stdout, reason = "this is a test runner's report")]
    pub fn run(self) -> ExitCode {
        let conclusion = libtest_mimic::run(&self.arguments, self.trials);
        if !self.arguments.list {
            for (note, count) in &self.notes {
                println!("ignored {count}: {note}");
            }
        }
        conclusion.exit_code()
    }

    fn add<T: Stand>(&mut self, stand: &Arc<T>, planned: Vec<Planned>) {
        let levels = stand.probe().map(|probe| probe.levels()).unwrap_or_default();
        for case in planned {
            if case.per_level && !levels.is_empty() {
                for level in &levels {
                    self.trial(stand, case.clone(), Some(*level));
                }
            } else {
                self.trial(stand, case, None);
            }
        }
    }

    fn trial<T: Stand>(&mut self, stand: &Arc<T>, case: Planned, level: Option<Level>) {
        let stand_name = stand.name();
        let name = match level {
            Some(level) => format!("{stand_name}::{}::{}", level.name, case.name),
            None => format!("{stand_name}::{}", case.name),
        };
        let Some(lacks) = case.lacks else {
            let stand = Arc::clone(stand);
            let run = move || run_case(&stand, &case, level, CASE_LIMIT).map_err(Failed::from);
            self.trials.push(Trial::test(name, run));
            return;
        };
        self.note(format!("stand {stand_name}: {}", lacks.reason()));
        let refused = move || Err(Failed::from(lacks.reason()));
        self.trials.push(Trial::test(name, refused).with_kind(lacks.reason()).with_ignored_flag(true));
    }

    fn note(&mut self, text: String) {
        *self.notes.entry(text).or_default() += 1;
    }
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suite").field("trials", &self.trials.len()).finish_non_exhaustive()
    }
}

thread_local! {
    /// Where the last panic of this thread happened: a case runs on one thread.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the place of a panic for the case's report instead of printing it: some cases panic on
/// purpose, and the others say what failed in their result.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            PANICKED_AT.set(place);
        }));
    });
}

/// The cases of a stand, by the capabilities that its store declares.
///
/// # Errors
///
/// The text of what kept the stand from opening a store.
pub fn list<T: Stand>(stand: &Arc<T>) -> Result<Vec<Planned>, String> {
    runtime()?.block_on(async {
        let fresh = stand.fresh().await.map_err(|error| format!("no fresh store: {error}"))?;
        Ok(plan(&**stand, &fresh.store.capabilities()))
    })
}

/// Runs one case on a fresh store of the stand.
///
/// # Errors
///
/// The text of the assertion that failed, or that the case did not end within `limit`.
pub fn run_case<T: Stand>(
    stand: &Arc<T>,
    case: &Planned,
    level: Option<Level>,
    limit: Duration,
) -> Result<(), String> {
    keep_panics_quiet();
    let runtime = runtime()?;
    // Outside of what a denied capability may fail.
    let opened = runtime.block_on(Opened::open(Arc::clone(stand), level));
    let stage = opened.map_err(|error| format!("no fresh store: {error}"))?;
    let body = AssertUnwindSafe(|| {
        runtime.block_on(async {
            let ended = tokio::time::timeout(limit, (case.run)(Arc::new(stage))).await;
            ended.unwrap_or_else(|_| {
                panic!("the case did not end within {limit:?}: something waits for ever")
            });
        });
    });
    let result = catch_unwind(body).map_err(|panic| panic_text(&*panic));
    // A statement that still blocks a thread must not hold the suite up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match (result, case.denied) {
        (result, false) => result,
        (Err(_), true) => Ok(()),
        (Ok(()), true) => Err("the store denies the capability, but it works: declare it".to_owned()),
    }
}

fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without text");
    format!("{}: {text}", PANICKED_AT.take())
}

/// Makes a test target of one or more stands: `conformance!(MyStand)`, with `harness = false`.
///
/// `INBOX_TEST_SKIP` with a stand's expression, as it is written here, leaves it out. A stand whose
/// start can fail is given to [`Suite::stand`](crate::suite::Suite::stand) instead.
#[macro_export]
macro_rules! conformance {
    ($stand:expr) => {
        fn main() -> ::std::process::ExitCode {
            $crate::suite::Suite::from_args()
                .stand(stringify!($stand), || {
                    ::std::result::Result::<_, ::std::convert::Infallible>::Ok($stand)
                })
                .run()
        }
    };
}
