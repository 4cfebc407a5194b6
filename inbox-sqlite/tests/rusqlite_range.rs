//! Runs the tests of the store on rusqlite with the oldest and the newest rusqlite of the supported range.
//!
//! This workspace's own lock file holds one version, and beside sqlx not the newest. So each end is a
//! package of its own, made in cargo's folder for tests, where what is built is kept for the next run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_oldest_rusqlite_of_the_range_keeps_the_contract() {
    let (oldest, _) = range();
    run_with("oldest", &format!("=0.{oldest}.0"), oldest);
}

#[test]
fn the_newest_rusqlite_of_the_range_keeps_the_contract() {
    let (_, beyond) = range();
    run_with("newest", &format!(">=0.{}, <0.{beyond}", beyond - 1), beyond - 1);
}

/// The minor versions of the range that the workspace declares: the oldest, and the first beyond it.
fn range() -> (u32, u32) {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with("rusqlite = ")).unwrap();
    let minor = |before: &str| -> u32 {
        let (_, after) = line.split_once(before).unwrap();
        after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    (minor(">=0."), minor("<0."))
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn run_with(end: &str, requirement: &str, minor: u32) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rusqlite-range");
    let package = folder.join(end);
    make_package(&package, end, requirement);

    let tested = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--test", "sqlite", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        // One for both: all but rusqlite and what uses it is the same.
        .arg("--target-dir")
        .arg(folder.join("target"))
        .output()
        .unwrap();

    let output = [tested.stdout, tested.stderr].map(|output| String::from_utf8_lossy(&output).into_owned());
    assert!(tested.status.success(), "with rusqlite {requirement}:\n{}", output.concat());
    assert!(output[0].contains("test result: ok."), "{output:?}");
    let locked = fs::read_to_string(package.join("Cargo.lock")).unwrap();
    let expected = format!("name = \"rusqlite\"\nversion = \"0.{minor}.");
    assert!(locked.contains(&expected), "the lock file of {package:?} has another rusqlite");
}

/// A package that depends on the crate and on rusqlite in this version, and has the crate's tests.
fn make_package(package: &Path, end: &str, requirement: &str) {
    let path = |relative: &str| -> PathBuf { workspace().join(relative) };
    let manifest = format!(
        r#"[package]
name = "rusqlite-range-{end}"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
inbox-core = {{ path = {core:?} }}
inbox-sqlite = {{ path = {sqlite:?}, features = ["test-clock"] }}
rusqlite = {requirement:?}
tempfile = "3"
thiserror = "2"
tokio = {{ version = "1.44", features = ["macros", "rt-multi-thread", "sync", "time"] }}

[lib]
path = "lib.rs"

[[test]]
name = "sqlite"
path = {tests:?}

[profile.dev]
debug = false
"#,
        core = path("inbox-core"),
        sqlite = path("inbox-sqlite"),
        tests = path("inbox-sqlite/tests/sqlite/main.rs"),
    );
    fs::create_dir_all(package).unwrap();
    write_if_new(&package.join("Cargo.toml"), &manifest);
    write_if_new(&package.join("lib.rs"), "");
}

/// A file that is written anew would be built anew.
fn write_if_new(path: &Path, text: &str) {
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).unwrap();
    }
}
