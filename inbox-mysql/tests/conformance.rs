//! The conformance suite on real servers: `mariadb_10_11::…`, `mariadb_11_8::…`, `mysql::…`, each
//! `<level>::<case>`.

mod stand;

use std::process::ExitCode;

use inbox_testkit::servers::MySqlWanted;
use inbox_testkit::suite::Suite;
use stand::MySqlStand;

fn main() -> ExitCode {
    let mut suite = Suite::from_args();
    for wanted in MySqlWanted::ALL {
        suite = suite.stand(wanted.stand(), move || MySqlStand::start(wanted));
    }
    suite.run()
}
