//! The store of MySQL and MariaDB with faults, on each of the servers.

mod broken;
mod deferred;
mod fault;
#[path = "../../../../inbox-mysql/tests/stand/mod.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod stand;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{BoxError, Error};
use inbox_mysql::MySqlStore;
use inbox_testkit::mysql::{LEVELS, MySqlTx};
use inbox_testkit::servers::{MySqlDatabase, MySqlWanted};
use inbox_testkit::skip_requested;
use inbox_testkit::suite::{DeferredStand, KeepsMessages, Probe as _};
use libtest_mimic::{Failed, Trial};
use stand::MySqlStand;
use tokio::sync::OnceCell;

use self::broken::BrokenMySqlStore;
use self::fault::Fault;
use crate::broken_stand::Engine;
use crate::expected::{self, Expected};
use crate::run;

const TABLE: &str = include_str!("expected.txt");

/// The stores' default. Short, since a store that locks too much waits often, and long enough that
/// no case's own order of events takes it.
const WAIT: Duration = Duration::from_secs(3);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = MySqlWanted::ALL.into_iter().flat_map(on_server).collect();
    trials.push(Trial::test("mutants::mysql::every_store_fails_some_case", every_store_fails));
    trials
}

fn on_server(wanted: MySqlWanted) -> Vec<Trial> {
    let stand = wanted.stand();
    if skip_requested(stand) {
        let skipped = Trial::test(format!("mutants::{stand}::skipped_by_request"), || Ok(()));
        return vec![skipped.with_ignored_flag(true)];
    }
    // At the servers' default level.
    let level = LEVELS[2];
    let faults = Fault::ALL.iter().map(|&fault| {
        let run = move || run::fails_what_is_expected(BrokenMySql::start(wanted, fault)?, level);
        Trial::test(format!("mutants::{stand}::{fault:?}"), run)
    });
    faults.collect()
}

/// A fault that no case shows on any server is not guarded against.
fn every_store_fails() -> Result<(), Failed> {
    let shown = |fault: Fault, wanted: MySqlWanted| {
        let expected = expected::expected(TABLE, &format!("{fault:?}"), wanted.stand());
        fault == Fault::VerifiesAnything || !expected.always.is_empty()
    };
    let unseen: Vec<&Fault> = Fault::ALL
        .iter()
        .filter(|fault| !MySqlWanted::ALL.into_iter().any(|wanted| shown(**fault, wanted)))
        .collect();
    if unseen.is_empty() { Ok(()) } else { Err(Failed::from(format!("no case shows {unseen:?}"))) }
}

struct BrokenMySql {
    wanted: MySqlWanted,
    healthy: MySqlStand,
    fault: Fault,
    database: OnceCell<MySqlDatabase>,
    /// Whether the tables are to be made anew. DDL takes most of a case's time.
    altered: AtomicBool,
}

impl BrokenMySql {
    fn start(wanted: MySqlWanted, fault: Fault) -> Result<Self, Failed> {
        let healthy = MySqlStand::start(wanted)
            .map_err(|error| Failed::from(format!("the broken stores need {wanted}: {error}")))?;
        Ok(Self { wanted, healthy, fault, database: OnceCell::new(), altered: AtomicBool::new(true) })
    }
}

#[async_trait]
impl Engine for BrokenMySql {
    type Tx = MySqlTx;
    type Inner = MySqlStore;
    type Healthy = MySqlStand;
    type Broken = BrokenMySqlStore;

    fn healthy(&self) -> &MySqlStand {
        &self.healthy
    }

    fn fault(&self) -> String {
        format!("{:?}", self.fault)
    }

    fn server(&self) -> &'static str {
        self.wanted.stand()
    }

    fn expected(&self) -> Expected {
        expected::expected(TABLE, &self.fault(), self.server())
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<BrokenMySqlStore>> {
        self.fault.is_of_kept_messages().then_some(&KeepsMessages as _)
    }

    fn runs(&self, case: &str) -> bool {
        let of_the_schema = case.starts_with("r15_creating_") || case.starts_with("r16_");
        match self.fault {
            Fault::VerifiesAnything => of_the_schema,
            fault if fault.is_of_kept_messages() => {
                fault.concerns().iter().any(|start| case.starts_with(start))
            }
            // The large batch takes seconds, and is no news after the small ones.
            fault => {
                case != "r10_beyond_the_bind_limit"
                    && !case.starts_with("r16_refuses_")
                    && (fault.table().is_none() || !of_the_schema)
            }
        }
    }

    fn limit(&self) -> Duration {
        // Longer than a bounded wait of the suite may take.
        Duration::from_secs(if self.fault == Fault::WaitsForEver { 8 } else { 15 })
    }

    fn verifies_anything(&self) -> bool {
        self.fault == Fault::VerifiesAnything
    }

    async fn emptied(&self) -> Result<BrokenMySqlStore, BoxError> {
        let database = self.database.get_or_try_init(async || self.healthy.fresh_database().await).await?;
        if !self.altered.swap(false, Ordering::Relaxed) {
            let store = self.healthy.store_over_emptied(database).await?.with_wait(WAIT);
            return Ok(BrokenMySqlStore::new(store, self.fault));
        }
        let store = self.healthy.store_in(database).await?.with_wait(WAIT);
        // What swallowed inserts in an earlier case.
        sqlx::raw_sql("DROP TABLE IF EXISTS consumers").execute(store.pool()).await?;
        if let Some(table) = self.fault.table() {
            sqlx::raw_sql(sqlx::AssertSqlSafe(table)).execute(store.pool()).await?;
        }
        Ok(BrokenMySqlStore::new(store, self.fault))
    }

    /// What a case runs beside its transactions is DDL.
    async fn execute_beside(&self, store: &BrokenMySqlStore, sql: &str) -> Result<(), BoxError> {
        self.altered.store(true, Ordering::Relaxed);
        self.healthy.execute_beside(store.as_ref(), sql).await
    }

    async fn verify(&self, store: &BrokenMySqlStore) -> Result<(), Error> {
        match self.fault {
            Fault::VerifiesAnything => Ok(()),
            _ => self.healthy.verify(store.as_ref()).await,
        }
    }
}
