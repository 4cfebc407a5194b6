//! The loyalty service with a deferred inbox: keeps every delivery at once, credits the points later.
//!
//! ```text
//! cargo run --example deferred --features sqlite
//! cargo run --example deferred --features postgres -- --database postgres://localhost/loyalty
//! cargo run --example deferred --features mysql -- --database mysql://localhost/loyalty
//! ```
//!
//! The deliveries are those of the example `loyalty`. First all of them are received: whatever is new is
//! kept whole, and could be acknowledged. Then a worker handles what is kept, several messages at a time,
//! those of one customer in the order of receiving. Some messages are poison for this service and end as
//! dead letters, with their errors; they are listed before the last line, which is read from the database.
//!
//! Try this:
//!
//! - Run it again on the same database: every delivery is a duplicate, nothing is left to handle.
//! - Let it die with `--crash-after 1000`, then run it again: what the dead process had in hand is handled
//!   when its leases have run out. A worker that dies spends an attempt, of which a message has a few.
//! - Run it with `--replay`, which stands for a service that was mended: it gives the dead letters another
//!   attempt, and none is left.
//!
//! The parts to copy are [`Service::receive`], where the broker's messages come in, and [`Service::work`] with
//! [`Service::handle`], where they are handled. A real service runs the two at the same time, and its worker
//! until the process is told to stop.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a command talks on its standard output
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, unused_variables)
)]

mod common;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use common::{Input, SAMPLE};
use inbox::{
    AfterDead, Backoff, BatchReceived, Consumer, ContentType, Deferred, Envelope, ErrorKind, Filter,
    HandlerError, Inbox, Message, MessageId, OrderingKey, State, StoredMessage, Worker, WorkerReport,
};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Parser)]
#[command(about = "Keeps a file of deliveries, and credits loyalty points for each event once, later")]
struct Options {
    /// The deliveries, one JSON object per line
    #[arg(long, value_name = "FILE", default_value = SAMPLE)]
    input: PathBuf,
    /// sqlite:FILE, or postgres:// or mysql:// with USER@HOST/DATABASE
    #[arg(long, value_name = "URL", default_value = "sqlite:deferred.db")]
    database: String,
    /// How many messages are handled at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    handlers: u32,
    /// Abort the process in this run's N-th handler, between effect and commit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    crash_after: Option<u64>,
    /// Know how to handle every message, and give the dead letters another attempt
    #[arg(long)]
    replay: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match start(&Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Opens what the options name.
async fn start(options: &Options) -> anyhow::Result<()> {
    // Before any database is made or opened: a mistyped file name should leave nothing behind.
    let input = Input::open(&options.input)?;
    // Two connections more than handlers: for claims, and for the renewal of leases.
    match options.database.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) => run(common::sqlite::open(path)?, options, input).await,
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            run(common::postgres::open(&options.database, options.handlers + 2).await?, options, input).await
        }
        #[cfg(feature = "mysql")]
        Some(("mysql" | "mariadb", _)) => {
            run(common::mysql::open(&options.database, options.handlers + 2).await?, options, input).await
        }
        _ => Err(common::no_database(&options.database)),
    }
}

/// Receives the whole input, handles what is kept, and prints what the database says then.
async fn run<L: Ledger>(ledger: L, options: &Options, input: Input) -> anyhow::Result<()> {
    ledger.create_tables().await.context("could not create the tables")?;
    let service = Service {
        // A name of its own: to the inbox, another consumer's messages are other messages.
        inbox: Inbox::new(ledger, Consumer::new("deferred loyalty")?),
        handlers: options.handlers,
        mended: options.replay,
        crash_after: options.crash_after,
        effects: AtomicU64::new(0),
    };

    let tally = service.receive(input).await?;
    println!("{tally}");
    service.work().await?;
    if options.replay {
        service.replay().await?;
        service.work().await?;
    }
    service.report().await
}

/// What became of the deliveries.
#[derive(Debug, Default)]
struct Tally {
    kept: u64,
    duplicates: u64,
    mismatched: u64,
    rejected: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kept, duplicates, mismatched, rejected } = self;
        write!(f, "kept={kept} duplicates={duplicates} mismatched={mismatched} rejected={rejected}")
    }
}

struct Service<L> {
    inbox: Inbox<L>,
    handlers: u32,
    mended: bool,
    crash_after: Option<u64>,
    /// How many handlers of this run have written their effect.
    effects: AtomicU64,
}

impl<L: Ledger> Service<L> {
    /// Receives every delivery of the input, many in one transaction.
    async fn receive(&self, input: Input) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let mut batch = Vec::new();
        for (number, line) in (1..).zip(input.lines.split(b'\n')) {
            let line = line.with_context(|| format!("could not read line {number} of the input"))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match envelope(&line) {
                Ok(envelope) => batch.push((number, envelope)),
                Err(error) => {
                    tally.rejected += 1;
                    eprintln!("line {number}: rejected: {error:#}");
                }
            }
            if batch.len() == 500 {
                self.receive_batch(std::mem::take(&mut batch), &mut tally).await?;
            }
        }
        self.receive_batch(batch, &mut tally).await?;
        Ok(tally)
    }

    /// Receives some deliveries. Whatever is kept or a duplicate could be acknowledged now.
    async fn receive_batch(&self, batch: Vec<(u64, Envelope)>, tally: &mut Tally) -> anyhow::Result<()> {
        let (lines, envelopes): (Vec<u64>, Vec<Envelope>) = batch.into_iter().unzip();
        let answers = self.inbox.receive_batch(&envelopes).await?;
        for ((line, envelope), answer) in lines.iter().zip(&envelopes).zip(answers) {
            match answer {
                BatchReceived::Kept => tally.kept += 1,
                BatchReceived::Duplicate(_) => tally.duplicates += 1,
                // Another payload under a known id is a fault of the producer, for people to look at.
                BatchReceived::Mismatch(_) => {
                    tally.mismatched += 1;
                    let id = envelope.message().id().as_str();
                    eprintln!("line {line}: parked: {id:?} is known with another payload");
                }
                BatchReceived::Failed(error) if error.kind() == ErrorKind::InvalidMessage => {
                    tally.rejected += 1;
                    eprintln!("line {line}: rejected: {error:#}");
                }
                BatchReceived::Failed(error) => bail!("line {line} was not received: {error:#}"),
            }
        }
        Ok(())
    }

    /// Handles what is kept, until nothing is pending any more.
    async fn work(&self) -> anyhow::Result<WorkerReport> {
        let worker = Worker::new(self.inbox.clone())
            .with_concurrency(self.handlers as usize)
            .with_order(AfterDead::Pass)
            // So short that nobody who tries this out has to wait; the defaults are for services.
            .with_lease(Duration::from_secs(2))
            .with_max_attempts(5)
            .with_backoff(Backoff::new(Duration::from_millis(20), Duration::from_millis(200)))
            .with_poll_interval(Duration::from_millis(200));
        Ok(worker.run_until_drained(async |tx, message| self.handle(tx, message).await).await?)
    }

    /// Handles one message: its effect and its completion are committed together or not at all.
    async fn handle(&self, tx: &mut L::Tx, message: &StoredMessage) -> Result<(), HandlerError> {
        // It was kept as it came; no attempt makes a credit of what is none.
        let credit: Credit = serde_json::from_slice(&message.payload).map_err(HandlerError::never_retry)?;
        if !self.mended {
            credit.refuse_poison()?;
        }
        L::credit(tx, &credit).await?;
        self.crash_if_told_to();
        Ok(())
    }

    /// Gives every dead letter another attempt.
    async fn replay(&self) -> anyhow::Result<()> {
        // A call replays as many as its filter's limit.
        while self.inbox.replay(&Filter::state(State::Dead)).await? > 0 {}
        Ok(())
    }

    /// Prints the dead letters, and what the database holds.
    async fn report(&self) -> anyhow::Result<()> {
        let dead = self.inbox.messages(&Filter::state(State::Dead)).await?;
        for message in &dead.messages {
            let error = message.last_error().unwrap_or("its workers died");
            println!("dead: {} after {} attempts: {error}", message.id(), message.attempts);
        }
        let counts = self.inbox.message_counts(u32::MAX).await?;
        let (pending, done, dead) = (counts.pending.count, counts.done.count, counts.dead.count);
        let received = pending + done + dead;
        let effects = self.inbox.store().effects().await.context("could not count the effects")?;
        println!("received={received} done={done} dead={dead} effects={effects}");
        Ok(())
    }

    fn crash_if_told_to(&self) {
        let effects = 1 + self.effects.fetch_add(1, Ordering::Relaxed);
        if Some(effects) == self.crash_after {
            std::process::abort();
        }
    }
}

/// What surrounds every payload.
#[derive(Deserialize)]
struct Line<'a> {
    delivered_at: Option<String>,
    id: String,
    r#type: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// What receiving looks at in a payload; whether it is one of this service's the handler will see.
#[derive(Deserialize)]
struct Subject {
    customer: String,
}

/// One line of the input as the inbox keeps it.
fn envelope(line: &[u8]) -> anyhow::Result<Envelope> {
    let line: Line<'_> = serde_json::from_slice(line).context("not a delivery")?;
    let payload = line.payload.get();
    let message = Message::new(MessageId::new(line.id)?, line.r#type)?;
    let mut envelope = Envelope::new(message, payload)
        .fingerprinted()
        .with_content_type(ContentType::new("application/json")?);
    if let Some(time) = line.delivered_at {
        envelope = envelope.with_header("delivered-at", time);
    }
    if let Ok(Subject { customer }) = serde_json::from_str(payload) {
        envelope = envelope.with_ordering_key(OrderingKey::new(customer)?);
    }
    Ok(envelope)
}

/// What this service reads in a payload.
#[derive(Deserialize)]
struct Credit {
    customer: String,
    /// Negative where points were redeemed.
    points: i64,
    /// What points were redeemed for.
    voucher: Option<String>,
    /// Whom the customer brought.
    referred: Option<String>,
}

impl Credit {
    /// What this service cannot handle until it is mended: here that is `--replay`.
    fn refuse_poison(&self) -> Result<(), HandlerError> {
        // What a message says stays so: a dead letter at once.
        if self.referred.as_ref() == Some(&self.customer) {
            let text = format!("customer {} has referred nobody else", self.customer);
            return Err(HandlerError::never_retry(text));
        }
        // Another system may answer next time: a dead letter when its attempts are spent.
        if let Some(voucher) = self.voucher.as_deref().filter(|voucher| voucher.starts_with("v-1000")) {
            return Err(HandlerError::new(format!(
                "the old register, of voucher {voucher}, does not answer"
            )));
        }
        Ok(())
    }
}

/// The service's own table beside the inbox's: what it takes of a database.
trait Ledger: Deferred + Clone + 'static {
    /// Creates the inbox's tables and the service's own, unless they are there.
    async fn create_tables(&self) -> anyhow::Result<()>;

    /// Adds points to a customer's balance, inside the transaction of the message.
    fn credit(tx: &mut Self::Tx, credit: &Credit) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// How many credits there were.
    async fn effects(&self) -> anyhow::Result<i64>;
}

/// What SQLite and PostgreSQL both take. MySQL has a text of its own.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql {
    pub(super) const CREATE_BALANCE: &str = "
        CREATE TABLE IF NOT EXISTS balance (
            customer text   NOT NULL PRIMARY KEY,
            points   bigint NOT NULL,
            credits  bigint NOT NULL
        )";

    pub(super) const CREDIT: &str = "
        INSERT INTO balance (customer, points, credits)
        VALUES ($1, $2, 1)
        ON CONFLICT (customer)
        DO UPDATE SET points = balance.points + excluded.points, credits = balance.credits + 1";

    pub(super) const EFFECTS: &str = "
        SELECT cast(coalesce(sum(credits), 0) AS bigint)
        FROM balance";
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::sql::{CREATE_BALANCE, CREDIT, EFFECTS};
    use super::{Credit, HandlerError, Ledger};
    use inbox::sqlite::{SqliteStore, SqliteTx};

    impl Ledger for SqliteStore {
        async fn create_tables(&self) -> anyhow::Result<()> {
            self.create_schema().await?;
            self.create_message_schema().await?;
            self.call(|connection| connection.execute_batch(CREATE_BALANCE)).await?;
            Ok(())
        }

        async fn credit(tx: &mut SqliteTx, credit: &Credit) -> Result<(), HandlerError> {
            // SQLite works in a thread of its own, which takes what it needs along.
            let (customer, points) = (credit.customer.clone(), credit.points);
            tx.call(move |connection| connection.execute(CREDIT, (customer, points))).await?;
            Ok(())
        }

        async fn effects(&self) -> anyhow::Result<i64> {
            Ok(self.call(|connection| connection.query_row(EFFECTS, [], |row| row.get(0))).await?)
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::sql::{CREATE_BALANCE, CREDIT, EFFECTS};
    use super::{Credit, HandlerError, Ledger};
    use inbox::postgres::PostgresStore;
    use inbox::postgres::sqlx::{self, Postgres, Transaction};

    impl Ledger for PostgresStore {
        async fn create_tables(&self) -> anyhow::Result<()> {
            self.create_schema().await?;
            self.create_message_schema().await?;
            sqlx::query(CREATE_BALANCE).execute(self.pool()).await?;
            Ok(())
        }

        async fn credit(
            tx: &mut Transaction<'static, Postgres>,
            credit: &Credit,
        ) -> Result<(), HandlerError> {
            let query = sqlx::query(CREDIT).bind(&credit.customer).bind(credit.points);
            query.execute(&mut **tx).await?;
            Ok(())
        }

        async fn effects(&self) -> anyhow::Result<i64> {
            Ok(sqlx::query_scalar(EFFECTS).fetch_one(self.pool()).await?)
        }
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::{Credit, HandlerError, Ledger};
    use inbox::mysql::MySqlStore;
    use inbox::mysql::sqlx::{self, MySql, Transaction};

    /// InnoDB and VARBINARY for the reasons that the example `loyalty` gives.
    const CREATE_BALANCE: &str = "
        CREATE TABLE IF NOT EXISTS balance (
            customer VARBINARY(255) NOT NULL PRIMARY KEY,
            points   BIGINT         NOT NULL,
            credits  BIGINT         NOT NULL
        ) ENGINE = InnoDB";

    const CREDIT: &str = "
        INSERT INTO balance (customer, points, credits)
        VALUES (?, ?, 1)
        ON DUPLICATE KEY UPDATE points = points + ?, credits = credits + 1";

    const EFFECTS: &str = "
        SELECT CAST(COALESCE(SUM(credits), 0) AS SIGNED)
        FROM balance";

    impl Ledger for MySqlStore {
        async fn create_tables(&self) -> anyhow::Result<()> {
            self.create_schema().await?;
            self.create_message_schema().await?;
            sqlx::query(CREATE_BALANCE).execute(self.pool()).await?;
            Ok(())
        }

        async fn credit(tx: &mut Transaction<'static, MySql>, credit: &Credit) -> Result<(), HandlerError> {
            let Credit { customer, points, .. } = credit;
            sqlx::query(CREDIT).bind(customer).bind(points).bind(points).execute(&mut **tx).await?;
            Ok(())
        }

        async fn effects(&self) -> anyhow::Result<i64> {
            Ok(sqlx::query_scalar(EFFECTS).fetch_one(self.pool()).await?)
        }
    }
}
