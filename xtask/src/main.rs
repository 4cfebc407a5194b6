//! Developer commands, run as `cargo xtask COMMAND`: servers for the tests, and the tests themselves.
#![allow(clippy::print_stdout)] // a command talks on its standard output

mod debian;
#[path = "../../inbox-testkit/src/servers/places.rs"]
mod places;
mod sample;
mod servers;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
Developer commands of this workspace.

    cargo xtask sample           write the deliveries that the example reads
    cargo xtask servers          make the database servers that the tests start available
    cargo xtask test [ARGS…]     `servers`, then every test; ARGS go to `cargo test`

INBOX_TEST_SKIP=postgres_18,pgbouncer leaves those servers, and the tests that need them, out.
INBOX_TEST_POSTGRES_URL, INBOX_TEST_POSTGRES_18_URL, INBOX_TEST_MARIADB_10_11_URL,
INBOX_TEST_MARIADB_11_8_URL and INBOX_TEST_MYSQL_URL give running servers that tests may use.
INBOX_SERVERS_DIR=FOLDER keeps unpacked servers there instead of in target/servers.";

/// What a command ends with when it could not do its work: text for the developer.
type Result<T, E = String> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let outcome = match args.next().as_deref() {
        Some("sample") => sample::run(),
        Some("servers") => servers::run(),
        Some("test") => test::run(&args.collect::<Vec<_>>()),
        Some("help" | "--help" | "-h") | None => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("no such command: {other}\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
