//! Tables that were altered to be wrong, each in one way.

use inbox_testkit::suite::Damage;

pub(crate) fn damages() -> Vec<Damage> {
    Vec::new()
}
