//! What goes over the wire: how many round trips each way in takes, compared with the same by hand,
//! and what is left when the connection is lost at the worst moment (R4, R12).
//!
//! | on a connection that has run it before | by hand | `inbox` |
//! |---|---|---|
//! | a new message with one effect | 5 | 5 |
//! | a duplicate | | 3 |
//! | 100 new messages with one effect | 5 | 5 |
//! | the new message, nothing kept prepared | 7 | 7 |
//! | the duplicate, nothing kept prepared | | 4 |
//! | receiving a message | | 5 |
//! | receiving a batch of 100 | | 5 |
//! | claiming up to 100 messages | | 2 |
//! | the same where sessions do not begin at READ COMMITTED | | 4 |
//! | the same in the order of their keys | | 5 |
//! | completing a message with one effect | | 5 |
//! | writing down a failed attempt | | 2 |
//!
//! The first of them is the driver's: a pool of sqlx pings a connection before it hands it out,
//! unless `test_before_acquire(false)`.
//!
//! When the connection is back in the hands of its pool, after the caller has gone on, the pool
//! pings it once more, and that is counted apart. The inbox adds a packet there: COMMIT AND CHAIN
//! has left an empty transaction, whose rollback is sent at once. Nobody waits for its answer. The
//! pool's ping follows without waiting too, so on a network both are one round trip, while on a
//! loopback interface the answer may come between them.

#![allow(clippy::unwrap_used)] // in helpers of tests, too

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use inbox_core::{
    Administer, AfterDead, BatchOutcome, BatchReceived, Claim, Consumer, Deferred, Envelope, Error,
    ErrorKind, Fail, Inbox, Lease, Message, MessageId, Outcome, Received, Registered, RetryPolicy,
};
use inbox_postgres::PostgresStore;
use inbox_testkit::proxy::{Fault, Proxy, Trip};
use inbox_testkit::servers::{Database, PostgresServer, Wanted, skip_requested};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{PgConnection, PgPool};

/// How long a pool tries to get a connection, where there is a server.
const PATIENT: Duration = Duration::from_secs(30);

/// And where there is none.
const IMPATIENT: Duration = Duration::from_millis(200);

/// A fresh database, a pool of one connection to it through the proxy, and one beside it.
struct Line {
    proxy: Proxy,
    pool: PgPool,
    inbox: Inbox<PostgresStore>,
    beside: PgPool,
    database: Database,
}

impl Line {
    /// None if the server is to be left out by request, and only then.
    async fn new() -> Option<Self> {
        Self::with(|store| store).await
    }

    async fn with(options: impl FnOnce(PostgresStore) -> PostgresStore) -> Option<Self> {
        if skip_requested(&Wanted::Any.stand()) {
            eprintln!("skipped, as INBOX_TEST_SKIP asks");
            return None;
        }
        let server = PostgresServer::shared(Wanted::Any).await.expect("a PostgreSQL server");
        let database = server.fresh_database().await.expect("a fresh database");
        let beside = PgPool::connect(database.url()).await.expect("a pool");
        let owner = PostgresStore::new(beside.clone());
        owner.create_schema().await.expect("the schema");
        owner.create_message_schema().await.expect("the schema of kept messages");
        sqlx::raw_sql("CREATE TABLE effect (id text NOT NULL)").execute(&beside).await.expect("a table");

        let proxy = Proxy::in_front_of(database.url()).expect("a proxy");
        let pool = pool_through(&proxy, &database, PATIENT);
        let inbox = Inbox::new(options(PostgresStore::new(pool.clone())), consumer());
        Some(Self { proxy, pool, inbox, beside, database })
    }

    /// What a piece of work sends when its connection has done the like before: the second of two.
    async fn spent(&self, work: impl AsyncFn(&'static str)) -> Spent {
        work("warm").await;
        self.until_released().await;
        self.proxy.reset();
        work("m").await;
        self.until_released().await;
        Spent::new(&self.proxy.trips())
    }

    /// Waits until the pool has its one connection back, and so has had the answer to its ping.
    async fn until_released(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.pool.num_idle() == 0 {
            assert!(Instant::now() < deadline, "the connection does not come back");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What is committed: registrations of the message `m`, and effects.
    async fn committed(&self) -> (i64, i64) {
        sqlx::query_as(
            "SELECT (SELECT count(*) FROM public.inbox WHERE message_id = 'm'), (SELECT count(*) FROM effect)",
        )
        .fetch_one(&self.beside)
        .await
        .expect("the counts")
    }

    /// Handles the message `m` up to its commit, with the fault armed in between.
    async fn lost_at_commit(&self, arm: impl FnOnce(&Proxy) -> Fault) -> Error {
        let mut tx = self.inbox.begin().await.unwrap();
        assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
        effect(&mut tx).await.unwrap();
        let fault = arm(&self.proxy);
        let error = tx.commit().await.expect_err("the connection is lost");
        assert!(fault.has_fired());
        error
    }

    /// Delivers the message `m` again; answers whether it was new.
    async fn redelivered(&self) -> bool {
        match self.inbox.register(self.pool.begin().await.unwrap(), &message("m")).await.unwrap() {
            Registered::New(mut tx) => {
                effect(&mut tx).await.unwrap();
                tx.commit().await.unwrap();
                true
            }
            Registered::Duplicate(_) => false,
        }
    }
}

/// Processes the message `m`; answers the outcome and how often its handler ran.
async fn processed(inbox: &Inbox<PostgresStore>) -> (Result<Outcome<()>, Error>, usize) {
    let runs = AtomicUsize::new(0);
    let counted = &runs;
    let message = message("m");
    let outcome = inbox
        .process(&message, async |tx| {
            counted.fetch_add(1, Ordering::Relaxed);
            effect(tx).await.map_err(|source| Error::new(ErrorKind::Backend, "write").with_source(source))
        })
        .await;
    (outcome, runs.into_inner())
}

/// As sqlx sets it up, but for its size and its patience.
fn pool_through(proxy: &Proxy, database: &Database, patience: Duration) -> PgPool {
    let url = proxy.url(database.url()).expect("a URL with a host");
    let options: PgConnectOptions = url.parse().expect("a URL of PostgreSQL");
    PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(patience)
        // The proxy reads along.
        .connect_lazy_with(options.ssl_mode(PgSslMode::Disable))
}

fn consumer() -> Consumer {
    Consumer::new("loyalty").unwrap()
}

fn message(id: &str) -> Message {
    Message::new(MessageId::new(id).unwrap(), "PaymentConfirmed").unwrap()
}

async fn effect(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effect (id) VALUES ($1)").bind("e").execute(conn).await.map(drop)
}

/// What was sent, one word for each answer that the server gives.
#[derive(Debug, PartialEq, Eq)]
struct Spent {
    /// The round trips of the work itself, up to the last that is none of the pool's.
    work: Vec<&'static str>,
    /// What followed on the way back to the pool, whether pipelined or not.
    release: Vec<&'static str>,
}

impl Spent {
    fn new(trips: &[Trip]) -> Self {
        let trips: Vec<_> = trips.iter().map(|trip| steps(&trip.sent)).collect();
        let of_pool = |step: &&str| ["rollback", "ping"].contains(step);
        let end = trips.iter().rposition(|steps| !steps.iter().all(of_pool)).map_or(0, |last| last + 1);
        let (work, release) = trips.split_at(end);
        assert!(work.iter().all(|steps| steps.len() == 1), "nothing is pipelined in the work: {work:?}");
        Self { work: work.concat(), release: release.concat() }
    }
}

/// The steps in a client's bytes: messages of a type byte and a length, up to each that the server answers
/// (<https://www.postgresql.org/docs/current/protocol-message-formats.html>).
fn steps(mut sent: &[u8]) -> Vec<&'static str> {
    let mut steps = Vec::new();
    let mut step = "ping"; // a Sync on its own
    while let [kind, a, b, c, d, ..] = *sent {
        let (message, rest) = sent.split_at(1 + u32::from_be_bytes([a, b, c, d]) as usize);
        sent = rest;
        match kind {
            b'P' => step = "prepare",
            b'B' => step = "execute",
            b'Q' => step = simple_query(&message[5..]),
            _ => {}
        }
        if kind == b'Q' || kind == b'S' {
            steps.push(std::mem::replace(&mut step, "ping"));
        }
    }
    steps
}

fn simple_query(sql: &[u8]) -> &'static str {
    let sql = String::from_utf8_lossy(sql);
    ["BEGIN", "COMMIT", "ROLLBACK"]
        .iter()
        .zip(["begin", "commit", "rollback"])
        .find_map(|(word, step)| sql.contains(word).then_some(step))
        .unwrap_or("query")
}

/// The inbox of those who write it themselves.
async fn by_hand(pool: &PgPool, ids: &[String], prepared: bool) {
    let mut tx = pool.begin().await.unwrap();
    let inserted = sqlx::query(
        "INSERT INTO inbox (consumer, message_id, event_type)
         SELECT $1, unnest($2::text[]), $3
         ON CONFLICT (consumer, message_id) DO NOTHING",
    )
    .persistent(prepared)
    .bind("by hand")
    .bind(ids)
    .bind("PaymentConfirmed")
    .execute(&mut *tx)
    .await
    .unwrap();
    assert_eq!(inserted.rows_affected(), ids.len() as u64);
    sqlx::query("INSERT INTO effect (id) VALUES ($1)")
        .persistent(prepared)
        .bind("e")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn with_inbox(inbox: &Inbox<PostgresStore>, id: &str, prepared: bool) {
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message(id)).await.unwrap().is_new());
    sqlx::query("INSERT INTO effect (id) VALUES ($1)")
        .persistent(prepared)
        .bind("e")
        .execute(&mut **tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

fn numbered(id: &str) -> Vec<String> {
    (0..100).map(|number| format!("{id}-{number}")).collect()
}

#[tokio::test]
async fn a_new_message_takes_the_round_trips_that_it_takes_by_hand() {
    let Some(line) = Line::new().await else { return };
    let by_hand = line.spent(async |id| by_hand(&line.pool, &[id.to_owned()], true).await).await;
    let ours = line.spent(async |id| with_inbox(&line.inbox, id, true).await).await;

    assert_eq!(ours.work, by_hand.work);
    assert_eq!(ours.work, ["ping", "begin", "execute", "execute", "commit"]);
    assert_eq!(by_hand.release, ["ping"]);
    assert_eq!(ours.release, ["rollback", "ping", "ping"]);
}

#[tokio::test]
async fn a_duplicate_is_answered_by_the_one_statement_that_registers() {
    let Some(line) = Line::new().await else { return };
    with_inbox(&line.inbox, "known", true).await;
    let spent = line
        .spent(async |_| {
            let tx = line.pool.begin().await.unwrap();
            let answer = line.inbox.register(tx, &message("known")).await.unwrap();
            assert!(matches!(answer, Registered::Duplicate(_)));
        })
        .await;

    assert_eq!(spent.work, ["ping", "begin", "execute"]);
    assert_eq!(spent.release, ["rollback", "ping"]);
}

#[tokio::test]
async fn process_adds_no_round_trip() {
    let Some(line) = Line::new().await else { return };
    let process = async |message: Message| {
        let handled = line.inbox.process(&message, async |tx| {
            effect(tx).await.unwrap();
            Ok::<_, Error>(())
        });
        handled.await.unwrap().is_processed()
    };
    let new = line.spent(async |id| assert!(process(message(id)).await)).await;
    let duplicate = line.spent(async |id| assert!(!process(message(id)).await)).await;

    assert_eq!(new.work, ["ping", "begin", "execute", "execute", "commit"]);
    assert_eq!(duplicate.work, ["ping", "begin", "execute"]);
    assert_eq!(duplicate.release, ["rollback", "ping"]);
}

#[tokio::test]
async fn a_batch_takes_the_round_trips_of_one_message() {
    let Some(line) = Line::new().await else { return };
    let by_hand = line.spent(async |id| by_hand(&line.pool, &numbered(id), true).await).await;
    let batch = async |messages: Vec<Message>| -> usize {
        let handled = line.inbox.process_batch(&messages, async |tx, _| {
            effect(tx).await.unwrap();
            Ok::<_, Error>(())
        });
        let outcomes = handled.await.unwrap();
        outcomes.iter().filter(|outcome| matches!(outcome, BatchOutcome::Processed)).count()
    };
    let messages = |id| numbered(id).iter().map(|id| message(id)).collect();
    let new = line.spent(async |id| assert_eq!(batch(messages(id)).await, 100)).await;
    let known = line.spent(async |id| assert_eq!(batch(messages(id)).await, 0)).await;

    assert_eq!(new.work, by_hand.work);
    assert_eq!(new.work, ["ping", "begin", "execute", "execute", "commit"]);
    // One statement more, which reads the originals of all duplicates.
    assert_eq!(known.work, ["ping", "begin", "execute", "execute"]);
}

fn envelope(id: &str) -> Envelope {
    Envelope::new(message(id), b"payload".as_slice())
}

/// Claims up to so many messages; answers their leases.
async fn claimed(line: &Line, limit: u32, order: Option<AfterDead>) -> Vec<Lease> {
    let consumer = consumer();
    let claim = Claim::new(&consumer, Duration::from_secs(60), 5).limit(limit).order(order);
    let rows = line.inbox.store().claim(&claim).await.unwrap();
    rows.iter().map(|row| Lease { sequence: row.sequence, token: claim.token }).collect()
}

/// Keeps messages without a word on the line.
async fn receive_beside(line: &Line, ids: &[String]) {
    let beside = Inbox::new(PostgresStore::new(line.beside.clone()), consumer());
    let envelopes: Vec<Envelope> = ids.iter().map(|id| envelope(id)).collect();
    beside.receive_batch(&envelopes).await.unwrap();
}

#[tokio::test]
async fn receiving_takes_one_statement_to_register_and_one_to_keep_however_many_messages() {
    let Some(line) = Line::new().await else { return };
    let one = line
        .spent(async |id| assert_eq!(line.inbox.receive(&envelope(id)).await.unwrap(), Received::Kept))
        .await;
    let hundred = line
        .spent(async |id| {
            let envelopes: Vec<Envelope> = numbered(id).iter().map(|id| envelope(id)).collect();
            let received = line.inbox.receive_batch(&envelopes).await.unwrap();
            assert!(received.iter().all(|received| matches!(received, BatchReceived::Kept)));
        })
        .await;

    assert_eq!(one.work, ["ping", "begin", "execute", "execute", "commit"]);
    assert_eq!(hundred.work, one.work);
}

#[tokio::test]
async fn a_claim_is_one_statement_and_one_in_order_is_two_in_a_transaction() {
    let Some(line) = Line::new().await else { return };
    for (order, work) in [
        (None, &["ping", "execute"][..]),
        (Some(AfterDead::Block), &["ping", "begin", "execute", "execute", "commit"]),
    ] {
        let spent = line
            .spent(async |id| {
                receive_beside(&line, &numbered(&format!("{id}-{order:?}"))).await;
                assert_eq!(claimed(&line, 100, order).await.len(), 100);
            })
            .await;
        assert_eq!(spent.work, work);
    }
}

/// At another level than READ COMMITTED a statement alone would fail where it has to wait.
#[tokio::test]
async fn where_sessions_are_serialisable_a_claim_begins_a_transaction_that_is_not() {
    let Some(line) = Line::new().await else { return };
    let setting =
        format!("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", line.database.name());
    sqlx::raw_sql(sqlx::AssertSqlSafe(setting)).execute(&line.beside).await.unwrap();
    let spent = line
        .spent(async |id| {
            receive_beside(&line, &numbered(id)).await;
            assert_eq!(claimed(&line, 100, None).await.len(), 100);
        })
        .await;
    assert_eq!(spent.work, ["ping", "begin", "execute", "commit"]);
}

#[tokio::test]
async fn completing_takes_the_round_trips_of_registering_and_a_failure_is_one_statement() {
    let Some(line) = Line::new().await else { return };
    receive_beside(&line, &numbered("m")).await;
    let leases = std::sync::Mutex::new(claimed(&line, 100, None).await);
    let next = || leases.lock().unwrap().pop().unwrap();
    let completed = line
        .spent(async |_| {
            let mut tx = line.inbox.begin().await.unwrap();
            assert_eq!(tx.complete(&[next()]).await.unwrap(), [true]);
            effect(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
        })
        .await;
    let failed = line
        .spent(async |_| {
            let (consumer, lease) = (consumer(), next());
            line.inbox.store().fail(&Fail::new(&consumer, lease, None, "\"e\"")).await.unwrap();
        })
        .await;

    assert_eq!(completed.work, ["ping", "begin", "execute", "execute", "commit"]);
    assert_eq!(failed.work, ["ping", "execute"]);
}

#[tokio::test]
async fn an_unprepared_statement_takes_a_second_round_trip_as_it_does_by_hand() {
    let Some(line) = Line::with(PostgresStore::unprepared).await else { return };
    let by_hand = line.spent(async |id| by_hand(&line.pool, &[id.to_owned()], false).await).await;
    let new = line.spent(async |id| with_inbox(&line.inbox, id, false).await).await;
    let duplicate = line
        .spent(async |_| {
            let tx = line.pool.begin().await.unwrap();
            let answer = line.inbox.register(tx, &message("m")).await.unwrap();
            assert!(matches!(answer, Registered::Duplicate(_)));
        })
        .await;

    assert_eq!(new.work, by_hand.work);
    assert_eq!(new.work, ["ping", "begin", "prepare", "execute", "prepare", "execute", "commit"]);
    assert_eq!(duplicate.work, ["ping", "begin", "prepare", "execute"]);
}

#[tokio::test]
async fn r12_lost_before_the_server_saw_the_commit_the_message_is_new_again() {
    let Some(line) = Line::new().await else { return };
    let error = line.lost_at_commit(|proxy| proxy.cut_before("COMMIT")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(line.committed().await, (0, 0));

    assert!(line.redelivered().await);
    assert_eq!(line.committed().await, (1, 1));
}

#[tokio::test]
async fn r12_lost_after_the_server_saw_the_commit_the_message_is_a_duplicate() {
    let Some(line) = Line::new().await else { return };
    let error = line.lost_at_commit(|proxy| proxy.cut_after("COMMIT")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(line.committed().await, (1, 1));

    assert!(!line.redelivered().await);
    assert_eq!(line.committed().await, (1, 1));
}

#[tokio::test]
async fn r12_process_settles_a_lost_commit_by_itself() {
    let Some(before) = Line::new().await else { return };
    let fault = before.proxy.cut_before("COMMIT");
    let (outcome, runs) = processed(&before.inbox).await;
    assert!(fault.has_fired());
    assert!(outcome.unwrap().is_processed());
    assert_eq!((runs, before.committed().await), (2, (1, 1)));

    let Some(after) = Line::new().await else { return };
    let fault = after.proxy.cut_after("COMMIT");
    let (outcome, runs) = processed(&after.inbox).await;
    assert!(fault.has_fired());
    assert!(matches!(outcome.unwrap(), Outcome::Duplicate(_)));
    assert_eq!((runs, after.committed().await), (1, (1, 1)));
}

/// Both moments of losing the connection that sends a text.
const CUTS: [fn(&Proxy, &str) -> Fault; 2] =
    [|proxy, text| proxy.cut_before(text), |proxy, text| proxy.cut_after(text)];

/// The registering statement is found by the message's id in it: its SQL is sent once per connection only.
const REGISTERING: &str = "id-on-the-wire";

#[tokio::test]
async fn r04_lost_while_registering_nothing_is_registered() {
    let Some(line) = Line::new().await else { return };
    for arm in CUTS {
        let fault = arm(&line.proxy, REGISTERING);
        let mut tx = line.inbox.begin().await.unwrap();
        let error = tx.register_if_new(&message(REGISTERING)).await.expect_err("the connection is lost");

        assert!(fault.has_fired());
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_retryable());
        assert_eq!(tx.commit().await.map_err(|error| error.kind()), Err(ErrorKind::Aborted));
        let id = MessageId::new(REGISTERING).unwrap();
        let found = PostgresStore::new(line.beside.clone()).find(&consumer(), &id).await.unwrap();
        assert_eq!(found, None);
    }
}

#[tokio::test]
async fn r04_process_runs_again_what_was_lost_while_registering() {
    for arm in CUTS {
        let Some(line) = Line::new().await else { return };
        let fault = arm(&line.proxy, "PaymentConfirmed");
        let (outcome, runs) = processed(&line.inbox).await;

        assert!(fault.has_fired());
        assert!(outcome.unwrap().is_processed());
        assert_eq!((runs, line.committed().await), (1, (1, 1)));
    }
}

/// The rollback after the handler's error queues behind a statement that the handler gave up.
#[tokio::test]
async fn a_handler_that_gives_up_a_statement_is_not_held_up_by_it() {
    let Some(line) = Line::new().await else { return };
    let started = Instant::now();
    let copy = message("m");
    let given_up = line.inbox.process(&copy, async |tx| {
        let slow = sqlx::raw_sql("SELECT pg_sleep(60)").execute(&mut **tx);
        match tokio::time::timeout(Duration::from_millis(50), slow).await {
            Ok(done) => {
                done.map(drop).map_err(|error| Error::new(ErrorKind::Backend, "sleep").with_source(error))
            }
            Err(_) => Err(Error::new(ErrorKind::Backend, "give up")),
        }
    });
    let error = given_up.await.expect_err("the handler gave up");
    assert!(error.to_string().contains("give up"), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "it waited for the statement: {:?}",
        started.elapsed()
    );
    assert_eq!(line.committed().await, (0, 0));
}

#[tokio::test]
async fn r13_a_server_that_refuses_connections_is_unavailable() {
    let Some(line) = Line::new().await else { return };
    with_inbox(&line.inbox, "warm", true).await;
    line.until_released().await;
    line.proxy.refuse().unwrap();
    line.proxy.cut_all().unwrap();

    // The pool itself tries a refused connection again, until its time is over.
    let refused = PostgresStore::new(pool_through(&line.proxy, &line.database, IMPATIENT));
    let refused = Inbox::new(refused, consumer()).with_retry(RetryPolicy::default().with_max_attempts(3));
    let begun = refused.begin().await.map(drop);
    assert_eq!(begun.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));

    let start = Instant::now();
    let (outcome, runs) = processed(&refused).await;
    assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
    assert!(start.elapsed() >= 3 * IMPATIENT, "three attempts: {:?}", start.elapsed());
    assert_eq!((runs, line.committed().await), (0, (0, 1)));

    // The pool finds out that its idle connection is lost, and opens another.
    line.proxy.accept().unwrap();
    let (outcome, _) = processed(&line.inbox).await;
    assert!(outcome.unwrap().is_processed());
}

/// A connection that is accepted and then closed, as by a load balancer without a server, is not
/// tried again by the pool: so the connections are the attempts.
#[tokio::test]
async fn process_gives_up_after_the_attempts_of_its_policy() {
    // A port that stays closed: no other process can get it.
    let nobody = Proxy::start("127.0.0.1:9").unwrap();
    nobody.refuse().unwrap();
    let proxy = Proxy::start(nobody.address()).unwrap();
    let url = format!("postgres://nobody@{}/nothing", proxy.address());
    let pool = PgPoolOptions::new().connect_lazy(&url).unwrap();
    let policy = RetryPolicy::default().with_max_attempts(3);
    let (outcome, runs) =
        processed(&Inbox::new(PostgresStore::new(pool), consumer()).with_retry(policy)).await;

    assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
    assert_eq!((proxy.counts().connections, runs), (3, 0));
}
