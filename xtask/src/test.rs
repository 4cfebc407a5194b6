//! `cargo xtask test`: the servers, then every test of the workspace.

use std::ffi::OsString;
use std::process::Command;

use crate::{Result, places, servers};

/// Named one by one instead of `--all-features`: the testkit's `containers` would build a whole
/// container client that no test here uses.
const FEATURES: &str = "inbox-rs/postgres,inbox-rs/sqlite";

pub(crate) fn run(cargo_test_args: &[String]) -> Result<()> {
    servers::run()?;

    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(cargo)
        .args(["test", "--workspace", "--features", FEATURES])
        .args(cargo_test_args)
        .current_dir(servers::workspace())
        .status()
        .map_err(|e| format!("could not run cargo: {e}"))?;

    let skipped = places::skipped();
    match skipped.is_empty() {
        true => println!("skipped: none"),
        false => println!("skipped by INBOX_TEST_SKIP: {}", skipped.join(", ")),
    }
    match status.success() {
        true => Ok(()),
        false => Err(format!("cargo test failed ({status})")),
    }
}
