//! The suite's own test: broken stores. For each the complete set of cases that it fails is
//! asserted; on PostgreSQL every case is failed by at least one of them.
//!
//! `INBOX_MUTANTS_SHOW=1` prints each fault with the cases that it fails, in the form of the tables
//! `expected.txt`.

mod broken_stand;
mod expected;
mod mysql;
mod postgres;
mod run;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a broken store's time is waits.
    arguments.test_threads.get_or_insert(10);
    let mut trials = mysql::trials();
    trials.extend(postgres::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
