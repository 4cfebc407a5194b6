//! The conformance suite on SQLite: a file in WAL mode and a database in memory, by each driver
//! (`sqlite_file::…`, `sqlite_memory::…`, `sqlx_file::…`, `sqlx_memory::…`).

mod common;
#[cfg(feature = "rusqlite")]
mod on_rusqlite;
#[cfg(feature = "_sqlx")]
mod on_sqlx;

use std::convert::Infallible;
use std::process::ExitCode;

use inbox_testkit::suite::Suite;

fn main() -> ExitCode {
    let suite = Suite::from_args();
    #[cfg(feature = "rusqlite")]
    let suite = {
        use on_rusqlite::SqliteStand;
        suite
            .stand("sqlite_file", || Ok::<_, Infallible>(SqliteStand { in_memory: false }))
            .stand("sqlite_memory", || Ok::<_, Infallible>(SqliteStand { in_memory: true }))
    };
    #[cfg(feature = "_sqlx")]
    let suite = {
        use on_sqlx::SqlxStand;
        suite
            .stand("sqlx_file", || Ok::<_, Infallible>(SqlxStand { in_memory: false }))
            .stand("sqlx_memory", || Ok::<_, Infallible>(SqlxStand { in_memory: true }))
    };
    suite.run()
}
