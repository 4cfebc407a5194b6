//! `cargo xtask test`: the servers, then every test of the workspace.

use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

use crate::{Result, servers};

/// Named one by one instead of `--all-features`: the testkit's `containers` would build a whole
/// container client that no test here uses.
const FEATURES: &str = "inbox-rs/mysql,inbox-rs/postgres,inbox-rs/sqlite,inbox-rs/sqlite-sqlx";

pub(crate) fn run(cargo_test_args: &[String]) -> Result<()> {
    servers::run()?;

    let start = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(cargo)
        // One failing target must not hide those after it.
        .args(["test", "--workspace", "--no-fail-fast", "--features", FEATURES])
        .args(cargo_test_args)
        .current_dir(servers::workspace())
        .status()
        .map_err(|e| format!("could not run cargo: {e}"))?;

    println!("\nleft out by INBOX_TEST_SKIP: {}", servers::left_out());
    println!("(what a store or an engine cannot do is shown as ignored, with the reason, after its cases)");
    println!("built and tested in {} s", start.elapsed().as_secs());
    match status.success() {
        true => Ok(()),
        false => Err(format!("cargo test failed ({status}): the failures are above")),
    }
}
