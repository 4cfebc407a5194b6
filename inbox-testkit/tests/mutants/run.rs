//! Runs the suite's cases on a broken store, and compares what failed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use inbox_testkit::suite::{Level, Planned, list, run_case};
use libtest_mimic::Failed;

use crate::broken_stand::{BrokenStand, Engine};
use crate::expected::{Expected, block};

/// Runs the cases on the broken store; exactly the expected ones fail.
pub(crate) fn fails_what_is_expected<E: Engine>(engine: E, level: Level) -> Result<(), Failed> {
    let (fault, server) = (engine.fault(), engine.server());
    let stand = BrokenStand::new(engine);
    let expected = expected(&stand)?;
    let started = Instant::now();
    let mut failed = BTreeSet::new();
    let mut texts = String::new();
    for case in planned(&stand)? {
        let level = case.per_level.then_some(level);
        if let Err(text) = run_case(&stand, &case, level, stand.engine.limit()) {
            texts.push_str(&format!("    {}: {text}\n", case.name));
            failed.insert(case.name);
        }
    }
    if std::env::var_os("INBOX_MUTANTS_SHOW").is_some() {
        eprintln!("{}    after {:?}", block(&format!("{fault} {server}"), &failed), started.elapsed());
    }
    let missing: BTreeSet<_> = expected.always.difference(&failed).collect();
    let surplus: BTreeSet<_> =
        failed.difference(&expected.always).filter(|name| !expected.sometimes.contains(*name)).collect();
    if missing.is_empty() && surplus.is_empty() {
        return Ok(());
    }
    Err(Failed::from(format!(
        "should fail and passed: {missing:?}\nshould pass and failed: {surplus:?}\n{texts}"
    )))
}

/// The cases that run on a broken store.
fn planned<E: Engine>(stand: &Arc<BrokenStand<E>>) -> Result<Vec<Planned>, Failed> {
    let planned = list(stand).map_err(Failed::from)?;
    Ok(planned.into_iter().filter(|case| case.lacks.is_none() && stand.engine.runs(&case.name)).collect())
}

/// What its table says, and of a store that verifies anything all damaged tables as well.
pub(crate) fn expected<E: Engine>(stand: &Arc<BrokenStand<E>>) -> Result<Expected, Failed> {
    let mut expected = stand.engine.expected();
    if stand.engine.verifies_anything() {
        let names = list(stand).map_err(Failed::from)?.into_iter().map(|case| case.name);
        expected.always.extend(names.filter(|name| name.starts_with("r16_refuses_")));
    }
    Ok(expected)
}
