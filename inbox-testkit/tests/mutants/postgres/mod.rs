//! The PostgreSQL store with faults.

mod broken;
mod deferred;
mod fault;
#[path = "../../../../inbox-postgres/tests/stand/mod.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod stand;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use inbox_core::{BoxError, Error, ErrorKind};
use inbox_postgres::PostgresStore;
use inbox_testkit::postgres::{LEVELS, PgTx};
use inbox_testkit::servers::{Database, Wanted};
use inbox_testkit::skip_requested;
use inbox_testkit::suite::{DeferredStand, KeepsMessages, Probe as _, list};
use libtest_mimic::{Failed, Trial};
use stand::PostgresStand;
use tokio::sync::OnceCell;

use self::broken::BrokenStore;
use self::fault::Fault;
use crate::broken_stand::{BrokenStand, Engine};
use crate::expected::{self, Expected};
use crate::run;

const TABLE: &str = include_str!("expected.txt");

/// Takes every CHECK off the table of kept messages.
const UNCHECK: &str = "
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT conname FROM pg_constraint
                     WHERE conrelid = 'public.inbox_messages'::regclass AND contype = 'c'
        LOOP EXECUTE format('ALTER TABLE public.inbox_messages DROP CONSTRAINT %I', name); END LOOP;
    END $$";

pub(crate) fn trials() -> Vec<Trial> {
    if skip_requested("postgres") {
        let skipped = Trial::test("mutants::postgres::skipped_by_request", || Ok(()));
        return vec![skipped.with_ignored_flag(true)];
    }
    let faults = Fault::ALL.iter().map(|&fault| {
        let run = move || run::fails_what_is_expected(BrokenPostgres::start(fault)?, LEVELS[0]);
        Trial::test(format!("mutants::postgres::{fault:?}"), run)
    });
    let coverage = Trial::test("mutants::postgres::every_case_is_failed_by_some_store", every_case_is_failed);
    faults.chain([coverage]).collect()
}

/// A case that no broken store fails tests nothing.
fn every_case_is_failed() -> Result<(), Failed> {
    let mut failed = BTreeSet::new();
    for &fault in Fault::ALL {
        failed.extend(run::expected(&BrokenStand::new(BrokenPostgres::start(fault)?))?.always);
    }
    let healthy = BrokenStand::new(BrokenPostgres::start(Fault::DeniesSavepoints)?);
    let planned = list(&healthy).map_err(Failed::from)?;
    let runs = planned.into_iter().filter(|case| case.lacks.is_none()).map(|case| case.name);
    let never: Vec<String> = runs.filter(|name| !failed.contains(name)).collect();
    if never.is_empty() { Ok(()) } else { Err(Failed::from(format!("no broken store fails {never:#?}"))) }
}

struct BrokenPostgres {
    healthy: PostgresStand,
    fault: Fault,
    database: OnceCell<Database>,
    /// Whether the tables are to be made anew. DDL takes most of a case's time.
    altered: AtomicBool,
}

impl BrokenPostgres {
    fn start(fault: Fault) -> Result<Self, Failed> {
        let healthy = PostgresStand::start(Wanted::Any)
            .map_err(|error| Failed::from(format!("the broken stores need PostgreSQL: {error}")))?;
        Ok(Self { healthy, fault, database: OnceCell::new(), altered: AtomicBool::new(true) })
    }
}

#[async_trait]
impl Engine for BrokenPostgres {
    type Tx = PgTx;
    type Inner = PostgresStore;
    type Healthy = PostgresStand;
    type Broken = BrokenStore;

    fn healthy(&self) -> &PostgresStand {
        &self.healthy
    }

    fn fault(&self) -> String {
        format!("{:?}", self.fault)
    }

    fn server(&self) -> &'static str {
        "postgres"
    }

    fn expected(&self) -> Expected {
        expected::expected(TABLE, &self.fault(), self.server())
    }

    fn deferred(&self) -> Option<&dyn DeferredStand<BrokenStore>> {
        Some(&KeepsMessages)
    }

    /// Damaged tables only where the fault lies in `verify`, deferred inboxes only where it lies in one.
    fn runs(&self, case: &str) -> bool {
        self.fault.runs(case) && (self.verifies_anything() || !case.starts_with("r16_refuses_"))
    }

    fn verifies_anything(&self) -> bool {
        self.fault == Fault::VerifiesAnything
    }

    async fn emptied(&self) -> Result<BrokenStore, BoxError> {
        let database = self.database.get_or_try_init(async || self.healthy.fresh_database().await).await?;
        if !self.altered.swap(false, Ordering::Relaxed) {
            let store = self.healthy.store_over_emptied(database).await?;
            return Ok(BrokenStore::new(store, self.fault));
        }
        let store = self.healthy.store_in(database).await?;
        if self.fault == Fault::TableUnchecked {
            sqlx::raw_sql(UNCHECK).execute(store.pool()).await?;
        }
        Ok(BrokenStore::new(store, self.fault))
    }

    /// What a case runs beside its transactions is DDL.
    async fn execute_beside(&self, store: &BrokenStore, sql: &str) -> Result<(), BoxError> {
        self.altered.store(true, Ordering::Relaxed);
        self.healthy.execute_beside(store.as_ref(), sql).await
    }

    async fn create_schema(&self, store: &BrokenStore) -> Result<(), Error> {
        self.altered.store(true, Ordering::Relaxed);
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
}

fn schema_error(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Schema, "create the schema").with_source(error)
}
