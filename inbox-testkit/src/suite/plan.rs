//! [`Planned`]: the cases of one stand, with those that its damages and denials add.

use std::fmt;
use std::sync::Arc;

use inbox_core::{Capabilities, ErrorKind, Waits};

use super::cases::LocalFuture;
use super::stage::Stage;
use super::{Need, Stand, cases};

/// A case as it will run on one stand.
#[derive(Clone)]
pub struct Planned {
    /// The case's name, without stand and level.
    pub name: String,
    /// Whether it runs once per isolation level.
    pub per_level: bool,
    /// What it needs and the stand lacks; then it is shown as ignored.
    pub lacks: Option<Need>,
    pub(super) run: Arc<dyn Fn(Arc<dyn Stage>) -> LocalFuture + Send + Sync>,
    /// The run must fail: the store denies that it can do this.
    pub(super) denied: bool,
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned")
            .field("name", &self.name)
            .field("lacks", &self.lacks)
            .finish_non_exhaustive()
    }
}

/// The cases of a stand, in the order of the rules.
pub(super) fn plan<T: Stand>(stand: &T, capabilities: &Capabilities) -> Vec<Planned> {
    let mut offers = stand.probe().map(|probe| probe.offers()).unwrap_or_default();
    if stand.deferred().is_some() {
        offers.push(Need::Deferred);
    }
    let lacks = |needs: &[Need]| needs.iter().copied().find(|need| !has(*need, capabilities, &offers));

    let mut planned: Vec<Planned> = cases::all()
        .into_iter()
        .map(|case| Planned {
            name: case.name.to_owned(),
            per_level: case.per_level,
            lacks: lacks(case.needs),
            run: Arc::new(case.run),
            denied: false,
        })
        .collect();
    planned.extend(stand.probe().iter().flat_map(|probe| probe.damages()).map(|damage| refusal(damage.name)));
    planned.extend(denials(&planned, capabilities, &offers));
    planned
}

fn has(need: Need, capabilities: &Capabilities, offers: &[Need]) -> bool {
    match need {
        Need::OpenTogether => capabilities.waits == Waits::WhenRegistering,
        Need::Savepoints => capabilities.savepoints,
        Need::ProvedCommit => capabilities.proves_commit,
        Need::NoticedSavepoint => capabilities.notices_undone_savepoint,
        Need::NoticedRestart => capabilities.notices_restart,
        Need::Waits => capabilities.waits != Waits::LosesAtCommit,
        probed => offers.contains(&probed),
    }
}

/// R16: a table damaged in this way is refused, with a text that says what to do.
fn refusal(damage: &'static str) -> Planned {
    Planned {
        name: format!("r16_refuses_{damage}"),
        per_level: false,
        lacks: None,
        run: Arc::new(move |stage| {
            Box::pin(async move {
                for sql in stage.damage(damage) {
                    stage.execute(&sql).await;
                }
                let error = stage.verify().await.expect_err("the damaged table was accepted");
                assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
            })
        }),
        denied: false,
    }
}

/// A capability that is denied but works fails: users would be told less than the store can do.
fn denials(planned: &[Planned], capabilities: &Capabilities, offers: &[Need]) -> Vec<Planned> {
    let shown_by = [
        (Need::Savepoints, "r04_rollback_to_a_savepoint_forgets", Need::Sql),
        (Need::ProvedCommit, "r12_swallowed_error_is_not_ok", Need::AbortingSql),
        (Need::NoticedSavepoint, "r12_undone_registration_refuses_the_commit", Need::Sql),
        (Need::NoticedRestart, "r12_restarted_transaction_is_noticed", Need::Sql),
    ];
    shown_by
        .into_iter()
        .filter(|(need, _, tool)| !has(*need, capabilities, offers) && offers.contains(tool))
        .filter_map(|(need, name, _)| {
            let shown = planned.iter().find(|case| case.name == name)?;
            Some(Planned {
                name: format!("denied_{need:?}_does_not_work").to_lowercase(),
                per_level: false,
                lacks: None,
                run: Arc::clone(&shown.run),
                denied: true,
            })
        })
        .collect()
}
