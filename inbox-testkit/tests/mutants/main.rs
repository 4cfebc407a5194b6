//! The suite's own test: broken stores. For each the complete set of cases that it fails is
//! asserted, and every case is failed by at least one of them.
//!
//! `INBOX_MUTANTS_SHOW=1` prints each fault with the cases that it fails, in the form of `expected.txt`.

mod broken;
mod expected;
mod fault;
#[path = "../../../inbox-postgres/tests/stand/mod.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod stand;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use broken::BrokenStore;
use expected::{Expected, block, expected};
use fault::Fault;
use inbox_core::{BoxError, Error, ErrorKind};
use inbox_testkit::postgres::{LEVELS, PgTx};
use inbox_testkit::servers::{Database, Wanted};
use inbox_testkit::skip_requested;
use inbox_testkit::suite::{Damage, Fresh, Level, Need, Planned, Probe, Stand, list, run_case};
use libtest_mimic::{Arguments, Failed, Trial};
use stand::PostgresStand;
use tokio::sync::OnceCell;

/// A case of a broken store that waits for ever is failed after this long.
const CASE_LIMIT: Duration = Duration::from_secs(15);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(8);
    if skip_requested("postgres") {
        let skipped = Trial::test("mutants::skipped_by_request", || Ok(())).with_ignored_flag(true);
        return libtest_mimic::run(&arguments, vec![skipped]).exit_code();
    }
    let server = match PostgresStand::start(Wanted::Any) {
        Ok(server) => Arc::new(server),
        Err(error) => panic!("the broken stores need PostgreSQL: {error}"),
    };
    let mut trials: Vec<Trial> = Fault::ALL
        .iter()
        .map(|&fault| {
            let server = Arc::clone(&server);
            Trial::test(format!("mutants::{fault:?}"), move || fails_what_is_expected(server, fault))
        })
        .collect();
    trials.push(Trial::test("mutants::every_case_is_failed_by_some_store", move || {
        every_case_is_failed(&server)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs every case on the broken store; exactly the expected ones fail.
fn fails_what_is_expected(server: Arc<PostgresStand>, fault: Fault) -> Result<(), Failed> {
    let stand = BrokenStand::new(&server, fault);
    let mut failed = BTreeSet::new();
    let mut texts = String::new();
    for case in cases_for(&stand)? {
        let level = case.per_level.then_some(LEVELS[0]);
        if let Err(text) = run_case(&stand, &case, level, CASE_LIMIT) {
            texts.push_str(&format!("    {}: {text}\n", case.name));
            failed.insert(case.name);
        }
    }
    if std::env::var_os("INBOX_MUTANTS_SHOW").is_some() {
        eprintln!("{}", block(fault, &failed));
    }
    let expected = expected_cases(&stand, fault)?;
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

/// The cases that make sense for a fault: damaged tables only where the fault lies in `verify`.
fn cases_for(stand: &Arc<BrokenStand>) -> Result<Vec<Planned>, Failed> {
    let planned = list(stand).map_err(Failed::from)?;
    let damaged = stand.fault == Fault::VerifiesAnything;
    Ok(planned
        .into_iter()
        .filter(|case| case.lacks.is_none() && (damaged || !case.name.starts_with("r16_refuses_")))
        .collect())
}

fn expected_cases(stand: &Arc<BrokenStand>, fault: Fault) -> Result<Expected, Failed> {
    let mut cases = expected(fault);
    if fault == Fault::VerifiesAnything {
        let planned = list(stand).map_err(Failed::from)?;
        cases.always.extend(
            planned.into_iter().map(|case| case.name).filter(|name| name.starts_with("r16_refuses_")),
        );
    }
    Ok(cases)
}

/// A case that no broken store fails tests nothing.
fn every_case_is_failed(server: &Arc<PostgresStand>) -> Result<(), Failed> {
    let healthy = BrokenStand::new(server, Fault::DeniesSavepoints);
    let mut failed = BTreeSet::new();
    for fault in Fault::ALL {
        let stand = BrokenStand::new(server, *fault);
        failed.extend(expected_cases(&stand, *fault)?.always);
    }
    let planned = list(&healthy).map_err(Failed::from)?;
    let never: Vec<String> =
        planned.into_iter().map(|case| case.name).filter(|name| !failed.contains(name)).collect();
    if never.is_empty() { Ok(()) } else { Err(Failed::from(format!("no broken store fails {never:#?}"))) }
}

/// The healthy stand with a broken store on it. Its cases run one after the other in one database,
/// emptied before each, which is faster than a database each.
struct BrokenStand {
    healthy: Arc<PostgresStand>,
    fault: Fault,
    database: OnceCell<Database>,
}

impl BrokenStand {
    fn new(healthy: &Arc<PostgresStand>, fault: Fault) -> Arc<Self> {
        Arc::new(Self { healthy: Arc::clone(healthy), fault, database: OnceCell::new() })
    }
}

#[async_trait]
impl Stand for BrokenStand {
    type Store = BrokenStore;

    fn name(&self) -> String {
        format!("{:?}", self.fault)
    }

    async fn fresh(&self) -> Result<Fresh<BrokenStore>, BoxError> {
        let database = self.database.get_or_try_init(async || self.healthy.fresh_database().await).await?;
        let store = self.healthy.store_in(database).await?;
        Ok(Fresh::new(BrokenStore::new(store, self.fault), ()))
    }

    async fn write_effect(&self, tx: &mut PgTx, name: &str) -> Result<(), BoxError> {
        self.healthy.write_effect(tx, name).await
    }

    async fn count_effects(&self, store: &BrokenStore, name: &str) -> Result<i64, BoxError> {
        self.healthy.count_effects(&store.inner, name).await
    }

    fn probe(&self) -> Option<&dyn Probe<BrokenStore>> {
        Some(self)
    }
}

#[async_trait]
impl Probe<BrokenStore> for BrokenStand {
    fn offers(&self) -> Vec<Need> {
        self.healthy.offers()
    }

    fn levels(&self) -> Vec<Level> {
        self.healthy.levels()
    }

    async fn begin_at(&self, store: &BrokenStore, level: &Level) -> Result<PgTx, BoxError> {
        self.healthy.begin_at(&store.inner, level).await
    }

    async fn execute(&self, tx: &mut PgTx, sql: &str) -> Result<(), BoxError> {
        self.healthy.execute(tx, sql).await
    }

    async fn execute_beside(&self, store: &BrokenStore, sql: &str) -> Result<(), BoxError> {
        self.healthy.execute_beside(&store.inner, sql).await
    }

    async fn session(&self, tx: &mut PgTx) -> Result<String, BoxError> {
        self.healthy.session(tx).await
    }

    async fn is_waiting(&self, store: &BrokenStore, session: &str) -> Result<bool, BoxError> {
        self.healthy.is_waiting(&store.inner, session).await
    }

    async fn kill(&self, store: &BrokenStore, session: &str) -> Result<(), BoxError> {
        self.healthy.kill(&store.inner, session).await
    }

    async fn settings(&self, tx: &mut PgTx) -> Result<String, BoxError> {
        self.healthy.settings(tx).await
    }

    async fn open_transactions(&self, store: &BrokenStore) -> Result<u64, BoxError> {
        self.healthy.open_transactions(&store.inner).await
    }

    fn aborting_sql(&self) -> &'static str {
        self.healthy.aborting_sql()
    }

    fn swallow_inserts(&self) -> Vec<String> {
        self.healthy.swallow_inserts()
    }

    fn shadow_table(&self) -> &'static str {
        self.healthy.shadow_table()
    }

    async fn create_schema(&self, store: &BrokenStore) -> Result<(), Error> {
        match self.fault {
            Fault::SchemaCreatedAnew => {
                let pool = store.inner.pool();
                sqlx::raw_sql("DROP TABLE IF EXISTS public.inbox")
                    .execute(pool)
                    .await
                    .map_err(schema_error)?;
                store.inner.create_schema().await
            }
            Fault::SchemaCreatedOnce => {
                let ddl = inbox_postgres::ddl(store.inner.table()).replace("IF NOT EXISTS ", "");
                let ddl = sqlx::raw_sql(sqlx::AssertSqlSafe(ddl));
                ddl.execute(store.inner.pool()).await.map(drop).map_err(schema_error)
            }
            _ => store.inner.create_schema().await,
        }
    }

    async fn verify(&self, store: &BrokenStore) -> Result<(), Error> {
        match self.fault {
            Fault::VerifiesAnything => Ok(()),
            Fault::VerifiesNothing => Err(Error::new(ErrorKind::Schema, "verify")),
            _ => store.inner.verify().await.map(drop),
        }
    }

    fn damages(&self) -> Vec<Damage> {
        self.healthy.damages()
    }
}

fn schema_error(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Schema, "create the schema").with_source(error)
}
