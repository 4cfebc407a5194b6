//! A loyalty service: credits points for every event once, however often the event is delivered.
//!
//! ```text
//! cargo run --example loyalty --features sqlite
//! cargo run --example loyalty --features postgres -- --database postgres://localhost/loyalty
//! cargo run --example loyalty --features mysql -- --database mysql://localhost/loyalty
//! ```
//!
//! The deliveries come from a file, in the order in which a broker made them: some events again after
//! seconds or hours, some out of order, and a few that no service should accept. Several consumers
//! work at the same time, each on customers of its own. The last line says what became of it all.
//!
//! Try this:
//!
//! - Run it again on the same database: every delivery is a duplicate, the points stay the same.
//! - Let it die with `--crash-after 1000`, as often as you like, then let it finish: the same points.
//! - Run it with `--naive`, which has no inbox. Its accounts are kept in a book of their own, so that
//!   `SELECT book, sum(points) FROM account GROUP BY book` shows both side by side.
//!
//! The part to copy is [`Service::handle`]: one call of [`Inbox::process`], whose handler writes the
//! effect through the transaction that it is given.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a command talks on its standard output
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, unused_variables)
)]

mod common;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use clap::Parser;
use common::{Input, SAMPLE};
use inbox::{Begin, Consumer, ErrorKind, Inbox, Message, MessageId, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[derive(Parser)]
#[command(about = "Credits loyalty points for a file of deliveries, each event once")]
struct Options {
    /// The deliveries, one JSON object per line
    #[arg(long, value_name = "FILE", default_value = SAMPLE)]
    input: PathBuf,
    /// sqlite:FILE, or postgres:// or mysql:// with USER@HOST/DATABASE
    #[arg(long, value_name = "URL", default_value = "sqlite:loyalty.db")]
    database: String,
    /// How many consumers work at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    consumers: u32,
    /// Credit every delivery, without an inbox, to see the damage
    #[arg(long)]
    naive: bool,
    /// Abort the process in this run's N-th handler, between effect and commit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    crash_after: Option<u64>,
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
    match options.database.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) => run(common::sqlite::open(path)?, options, input).await,
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            run(common::postgres::open(&options.database, options.consumers).await?, options, input).await
        }
        #[cfg(feature = "mysql")]
        Some(("mysql" | "mariadb", _)) => {
            run(common::mysql::open(&options.database, options.consumers).await?, options, input).await
        }
        _ => Err(common::no_database(&options.database)),
    }
}

/// Handles the whole input, and prints what became of it.
async fn run<L: Ledger>(ledger: L, options: &Options, input: Input) -> anyhow::Result<()> {
    ledger.create_tables().await.context("could not create the tables")?;
    let service = Arc::new(Service {
        inbox: Inbox::new(ledger, Consumer::new("loyalty")?),
        naive: options.naive,
        crash_after: options.crash_after,
        effects: AtomicU64::new(0),
        progress: progress_bar(input.bytes),
    });

    let tally = Arc::clone(&service).deliver(input, options.consumers).await?;
    let points = service.inbox.store().total(service.book()).await.context("could not read the points")?;
    service.progress.finish_and_clear();

    let Tally { deliveries, processed, duplicates, mismatched, rejected } = tally;
    println!(
        "deliveries={deliveries} processed={processed} duplicates={duplicates} \
         mismatched={mismatched} rejected={rejected} points={points}"
    );
    Ok(())
}

/// What became of the deliveries: the first number is the sum of the others.
#[derive(Debug, Default)]
struct Tally {
    deliveries: u64,
    processed: u64,
    duplicates: u64,
    mismatched: u64,
    rejected: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.deliveries += other.deliveries;
        self.processed += other.processed;
        self.duplicates += other.duplicates;
        self.mismatched += other.mismatched;
        self.rejected += other.rejected;
    }
}

/// What all consumers share.
struct Service<L> {
    inbox: Inbox<L>,
    naive: bool,
    crash_after: Option<u64>,
    /// How many handlers of this run have written their effect.
    effects: AtomicU64,
    progress: ProgressBar,
}

impl<L: Ledger> Service<L> {
    /// Handles one delivery exactly once: the registration of its id and the credit are committed
    /// together or not at all.
    async fn handle(&self, delivery: &Delivery) -> anyhow::Result<Outcome<()>> {
        self.inbox
            .process(&delivery.message, async |tx| {
                L::credit(tx, self.book(), &delivery.credit).await?;
                self.crash_if_told_to();
                Ok(())
            })
            .await
    }

    /// The same without an inbox: whatever is delivered twice is credited twice.
    async fn handle_naively(&self, delivery: &Delivery) -> anyhow::Result<Outcome<()>> {
        let mut tx = self.inbox.begin().await?;
        L::credit(&mut tx, self.book(), &delivery.credit).await?;
        self.crash_if_told_to();
        tx.commit().await?;
        Ok(Outcome::Processed(()))
    }

    /// Takes deliveries from a queue until it ends.
    async fn consume(self: Arc<Self>, mut queue: mpsc::Receiver<Delivery>) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        while let Some(delivery) = queue.recv().await {
            let outcome = match self.naive {
                false => self.handle(&delivery).await,
                true => self.handle_naively(&delivery).await,
            };
            match outcome {
                Ok(Outcome::Processed(())) => tally.processed += 1,
                Ok(Outcome::Duplicate(_)) => tally.duplicates += 1,
                // Another payload under a known id is a fault of the producer, for people to look at.
                // A real service would keep the delivery in a place of its own.
                Err(error) if is_mismatch(&error) => {
                    tally.mismatched += 1;
                    self.report(&format!("line {}: parked: {error:#}", delivery.line));
                }
                Err(error) => return Err(error.context(format!("line {} was not handled", delivery.line))),
            }
            self.progress.inc(delivery.bytes);
        }
        Ok(tally)
    }

    /// Reads the input in one thread, and lets consumers handle it. A customer's deliveries all go to
    /// one consumer, so that they are handled in the order of the file.
    async fn deliver(self: Arc<Self>, input: Input, consumers: u32) -> anyhow::Result<Tally> {
        let mut work = JoinSet::new();
        let mut queues = Vec::new();
        for _ in 0..consumers {
            let (queue, deliveries) = mpsc::channel(16);
            work.spawn(Arc::clone(&self).consume(deliveries));
            queues.push(queue);
        }
        work.spawn_blocking(move || self.read(input, &queues));

        let mut total = Tally::default();
        while let Some(part) = work.join_next().await {
            total += part??;
        }
        Ok(total)
    }

    /// Decodes the input line by line and puts each delivery into its customer's queue.
    fn read(&self, input: Input, queues: &[mpsc::Sender<Delivery>]) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        for (number, line) in (1..).zip(input.lines.split(b'\n')) {
            let line = line.with_context(|| format!("could not read line {number} of the input"))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            tally.deliveries += 1;
            match Delivery::decode(number, &line) {
                Ok(delivery) => {
                    let queue = &queues[share(&delivery.credit.customer, queues.len())];
                    if queue.blocking_send(delivery).is_err() {
                        break; // That consumer failed, and its error ends the program.
                    }
                }
                Err(error) => {
                    tally.rejected += 1;
                    self.progress.inc(line.len() as u64 + 1);
                    self.report(&format!("line {number}: rejected: {error:#}"));
                }
            }
        }
        Ok(tally)
    }

    fn book(&self) -> &'static str {
        if self.naive { "naive" } else { "exactly once" }
    }

    fn crash_if_told_to(&self) {
        let effects = 1 + self.effects.fetch_add(1, Ordering::Relaxed);
        if Some(effects) == self.crash_after {
            std::process::abort();
        }
    }

    /// Writes to standard error without tearing the progress bar.
    fn report(&self, text: &str) {
        self.progress.suspend(|| eprintln!("{text}"));
    }
}

fn is_mismatch(error: &anyhow::Error) -> bool {
    error.downcast_ref::<inbox::Error>().is_some_and(|error| error.kind() == ErrorKind::Mismatch)
}

/// Which of `consumers` a customer belongs to.
fn share(customer: &str, consumers: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    customer.hash(&mut hasher);
    (hasher.finish() % consumers as u64) as usize
}

/// Drawn on standard error, and only where that is a terminal.
fn progress_bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// One line of the input, decoded.
struct Delivery {
    line: u64,
    bytes: u64,
    message: Message,
    credit: Credit,
}

/// What surrounds every payload.
#[derive(Deserialize)]
struct Envelope<'a> {
    id: String,
    r#type: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// What this service reads in a payload.
#[derive(Deserialize)]
struct Credit {
    customer: String,
    /// Negative where points were redeemed.
    points: i64,
}

impl Delivery {
    fn decode(number: u64, line: &[u8]) -> anyhow::Result<Self> {
        let envelope: Envelope<'_> = serde_json::from_slice(line).context("not a delivery")?;
        let payload = envelope.payload.get();
        // The fingerprint is of the payload as it was received, before anything decodes it.
        let message =
            Message::new(MessageId::new(envelope.id)?, envelope.r#type)?.with_payload(payload.as_bytes());
        let credit = serde_json::from_str(payload).context("not a payload of this service")?;
        Ok(Self { line: number, bytes: line.len() as u64 + 1, message, credit })
    }
}

/// The service's own table beside the inbox's: what it takes of a database.
trait Ledger: Begin + 'static {
    /// Creates the inbox's table and the service's own, unless they are there.
    async fn create_tables(&self) -> anyhow::Result<()>;

    /// Adds points to a customer's account, inside the transaction of the message.
    fn credit(
        tx: &mut Self::Tx,
        book: &'static str,
        credit: &Credit,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// All points of a book.
    async fn total(&self, book: &'static str) -> anyhow::Result<i64>;
}

/// What SQLite and PostgreSQL both take. MySQL has a text of its own.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql {
    pub(super) const CREATE_ACCOUNT: &str = "
        CREATE TABLE IF NOT EXISTS account (
            book     text   NOT NULL,
            customer text   NOT NULL,
            points   bigint NOT NULL,
            PRIMARY KEY (book, customer)
        )";

    pub(super) const CREDIT: &str = "
        INSERT INTO account (book, customer, points)
        VALUES ($1, $2, $3)
        ON CONFLICT (book, customer) DO UPDATE SET points = account.points + excluded.points";

    pub(super) const TOTAL: &str = "
        SELECT cast(coalesce(sum(points), 0) AS bigint)
        FROM account
        WHERE book = $1";
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::sql::{CREATE_ACCOUNT, CREDIT, TOTAL};
    use super::{Credit, Ledger};
    use inbox::sqlite::{SqliteStore, SqliteTx};

    impl Ledger for SqliteStore {
        async fn create_tables(&self) -> anyhow::Result<()> {
            self.create_schema().await?;
            self.call(|connection| connection.execute_batch(CREATE_ACCOUNT)).await?;
            Ok(())
        }

        async fn credit(tx: &mut SqliteTx, book: &'static str, credit: &Credit) -> anyhow::Result<()> {
            // SQLite works in a thread of its own, which takes what it needs along.
            let (customer, points) = (credit.customer.clone(), credit.points);
            tx.call(move |connection| connection.execute(CREDIT, (book, customer, points))).await?;
            Ok(())
        }

        async fn total(&self, book: &'static str) -> anyhow::Result<i64> {
            Ok(self.call(move |connection| connection.query_row(TOTAL, [book], |row| row.get(0))).await?)
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::sql::{CREATE_ACCOUNT, CREDIT, TOTAL};
    use super::{Credit, Ledger};
    use inbox::postgres::PostgresStore;
    use inbox::postgres::sqlx::{self, Postgres, Transaction};

    impl Ledger for PostgresStore {
        async fn create_tables(&self) -> anyhow::Result<()> {
            self.create_schema().await?;
            sqlx::query(CREATE_ACCOUNT).execute(self.pool()).await?;
            Ok(())
        }

        async fn credit(
            tx: &mut Transaction<'static, Postgres>,
            book: &'static str,
            credit: &Credit,
        ) -> anyhow::Result<()> {
            let query = sqlx::query(CREDIT).bind(book).bind(&credit.customer).bind(credit.points);
            query.execute(&mut **tx).await?;
            Ok(())
        }

        async fn total(&self, book: &'static str) -> anyhow::Result<i64> {
            Ok(sqlx::query_scalar(TOTAL).bind(book).fetch_one(self.pool()).await?)
        }
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::{Credit, Ledger};
    use inbox::mysql::MySqlStore;
    use inbox::mysql::sqlx::{self, MySql, Transaction};

    /// InnoDB, since an effect in a table without transactions would outlive a rollback. VARBINARY, since
    /// text is compared by the database's collation, and most of those merge `Ann` and `ann`.
    const CREATE_ACCOUNT: &str = "
        CREATE TABLE IF NOT EXISTS account (
            book     VARBINARY(20)  NOT NULL,
            customer VARBINARY(255) NOT NULL,
            points   BIGINT         NOT NULL,
            PRIMARY KEY (book, customer)
        ) ENGINE = InnoDB";

    /// The points twice: MariaDB has no alias for the new row, and MySQL is giving up `VALUES(points)`.
    const CREDIT: &str = "
        INSERT INTO account (book, customer, points)
        VALUES (?, ?, ?)
        ON DUPLICATE KEY UPDATE points = points + ?";

    const TOTAL: &str = "
        SELECT CAST(COALESCE(SUM(points), 0) AS SIGNED)
        FROM account
        WHERE book = ?";

    impl Ledger for MySqlStore {
        async fn create_tables(&self) -> anyhow::Result<()> {
            self.create_schema().await?;
            sqlx::query(CREATE_ACCOUNT).execute(self.pool()).await?;
            Ok(())
        }

        async fn credit(
            tx: &mut Transaction<'static, MySql>,
            book: &'static str,
            credit: &Credit,
        ) -> anyhow::Result<()> {
            let Credit { customer, points } = credit;
            let query = sqlx::query(CREDIT).bind(book).bind(customer).bind(points).bind(points);
            query.execute(&mut **tx).await?;
            Ok(())
        }

        async fn total(&self, book: &'static str) -> anyhow::Result<i64> {
            Ok(sqlx::query_scalar(TOTAL).bind(book).fetch_one(self.pool()).await?)
        }
    }
}
