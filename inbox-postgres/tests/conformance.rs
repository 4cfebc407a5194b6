//! The conformance suite on real servers: `postgres_<version>::<level>::<case>`, and `pgbouncer::…`.

mod stand;

use std::process::ExitCode;

use inbox_testkit::servers::Wanted;
use inbox_testkit::suite::Suite;
use stand::PostgresStand;

fn main() -> ExitCode {
    Suite::from_args()
        .stand("postgres", || PostgresStand::start(Wanted::Any))
        .stand("postgres_18", || PostgresStand::start(Wanted::Major(18)))
        .stand("pgbouncer", PostgresStand::start_behind_pgbouncer)
        .run()
}
