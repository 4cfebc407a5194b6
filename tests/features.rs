//! A backend's feature brings that backend's driver, and no other.

use std::process::Command;

/// What may come with a backend: by `sqlx` its client for one database, or something else.
const DRIVERS: &[&str] = &["rusqlite", "sqlx", "sqlx-mysql", "sqlx-postgres", "sqlx-sqlite"];

const FEATURES: &[(&str, &[&str])] = &[
    ("", &[]),
    ("mysql", &["sqlx", "sqlx-mysql"]),
    ("postgres", &["sqlx", "sqlx-postgres"]),
    ("sqlite", &["rusqlite"]),
    ("sqlite-sqlx", &["sqlx", "sqlx-sqlite"]),
];

#[test]
fn a_backend_brings_its_own_driver_and_no_other() {
    for (feature, drivers) in FEATURES {
        assert_eq!(drivers_with(feature, "normal"), *drivers, "of the library with {feature:?}");
    }
}

#[test]
fn the_example_builds_no_client_of_another_database() {
    for (feature, drivers) in FEATURES {
        assert_eq!(drivers_with(feature, "normal,dev"), *drivers, "of the example with {feature:?}");
    }
}

/// The drivers among what cargo would build.
fn drivers_with(feature: &str, edges: &str) -> Vec<&'static str> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()))
        .args(["tree", "--package", "inbox-rs", "--no-default-features", "--features", feature])
        .args(["--edges", edges, "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo should start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let built: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    DRIVERS.iter().copied().filter(|driver| built.contains(driver)).collect()
}
