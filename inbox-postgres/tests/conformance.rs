//! The conformance suite on real servers: `postgres_<version>::<level>::<case>`, and `pgbouncer::…`.

mod stand;

use std::process::ExitCode;

use inbox_testkit::servers::{Wanted, skip_requested};
use inbox_testkit::suite::{Stand, Suite};
use stand::PostgresStand;

const NEWEST: Wanted = Wanted::Major(18);

fn main() -> ExitCode {
    let mut suite = Suite::from_args().stand("postgres", || PostgresStand::start(Wanted::Any));
    if !any_is_newest() {
        suite = suite.stand("postgres_18", || PostgresStand::start(NEWEST));
    }
    suite.stand("pgbouncer", PostgresStand::start_behind_pgbouncer).run()
}

/// Whether the stand `postgres` is this version already: a second one would be the same server.
fn any_is_newest() -> bool {
    !skip_requested(&Wanted::Any.stand())
        && PostgresStand::start(Wanted::Any).is_ok_and(|stand| stand.name() == NEWEST.stand())
}
