//! What goes over the wire: how many round trips each way in takes, compared with the same by hand,
//! and what is left when the connection is lost at the worst moment (R4, R12).
//!
//! | on a connection that has run it before | by hand | `inbox` |
//! |---|---|---|
//! | a new message with one effect | 5 | 5 |
//! | a duplicate | | 4 |
//! | 100 new messages with one effect | 5 | 5 |
//! | the same, half of them known | | 6 |
//! | receiving a message | | 5 |
//! | receiving a batch of 100 | | 5 |
//! | claiming up to 10 messages | | 3 |
//! | the same in the order of their keys | | 4 |
//! | completing a message with one effect | | 5 |
//! | writing down a failed attempt | | 2 |
//!
//! The first of them is the driver's: a pool of sqlx pings a connection before it hands it out,
//! unless `test_before_acquire(false)`. The first call of a store takes one more, which asks for
//! the server's dialect.
//!
//! When the connection is back in the hands of its pool, after the caller has gone on, the pool
//! pings it once more, and that is counted apart. The inbox adds a packet there: the driver does not know
//! that its transaction is over, and sends a ROLLBACK at once. Nobody waits for its answer.

#![allow(clippy::unwrap_used)] // in helpers of tests, too

#[allow(dead_code, unused_imports, unused_macros, reason = "it has more than these tests need")]
#[path = "mysql/stand.rs"]
mod stand;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use inbox_core::{
    AfterDead, BatchOutcome, BatchReceived, Claim, Deferred, Envelope, Error, ErrorKind, Fail, Inbox, Lease,
    Message, OrderingKey, Outcome, Received, Registered, RetryPolicy,
};
use inbox_mysql::MySqlStore;
use inbox_testkit::proxy::{Fault, Proxy, Trip};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode};
use sqlx::{MySqlConnection, MySqlPool};

use stand::{Stand, consumer, kind, message, on_each_server, run};

on_each_server![
    a_new_message_takes_the_round_trips_that_it_takes_by_hand,
    a_new_message_in_a_transaction_of_the_callers_takes_no_more,
    the_first_call_of_a_store_takes_one_more,
    a_duplicate_takes_a_second_statement_that_proves_it,
    process_adds_no_round_trip,
    a_batch_takes_the_round_trips_of_one_message,
    receiving_takes_one_statement_more_than_registering_for_one_and_for_a_hundred,
    a_claim_takes_two_round_trips_and_one_in_order_three,
    completing_takes_the_round_trips_of_registering_and_a_failure_is_one,
    r08_an_insert_that_was_swallowed_is_tried_once_more,
    r12_lost_before_the_server_saw_the_commit_the_message_is_new_again,
    r12_lost_after_the_server_saw_the_commit_the_message_is_a_duplicate,
    r12_process_settles_a_lost_commit_by_itself,
    r04_lost_while_registering_nothing_is_registered,
    r04_process_runs_again_what_was_lost_while_registering,
    a_handler_that_gives_up_a_statement_is_not_held_up_by_it,
    r13_a_server_that_refuses_connections_is_unavailable,
];

/// How long a pool tries to get a connection, where there is a server.
const PATIENT: Duration = Duration::from_secs(30);

/// And where there is none.
const IMPATIENT: Duration = Duration::from_millis(200);

/// A pool of one connection to the stand's database through a proxy.
struct Line {
    proxy: Proxy,
    pool: MySqlPool,
    inbox: Inbox<MySqlStore>,
    beside: Stand,
}

impl Line {
    fn new(beside: Stand) -> Self {
        let proxy = Proxy::in_front_of(beside.database.url()).expect("a proxy");
        let pool = pool_through(&proxy, &beside, PATIENT);
        let inbox = inbox_on(&pool);
        Self { proxy, pool, inbox, beside }
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
        let registered = self.beside.ask("SELECT count(*) FROM inbox WHERE message_id = 'm'").await;
        (registered, self.beside.effects().await)
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

fn inbox_on(pool: &MySqlPool) -> Inbox<MySqlStore> {
    Inbox::new(MySqlStore::new(pool.clone()).unwrap(), consumer())
}

/// Processes the message `m`; answers the outcome and how often its handler ran.
async fn processed(inbox: &Inbox<MySqlStore>) -> (Result<Outcome<()>, Error>, usize) {
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
fn pool_through(proxy: &Proxy, stand: &Stand, patience: Duration) -> MySqlPool {
    let url = proxy.url(stand.database.url()).expect("a URL with a host");
    let options: MySqlConnectOptions = url.parse().expect("a URL of MySQL");
    MySqlPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(patience)
        // The proxy reads along.
        .connect_lazy_with(options.ssl_mode(MySqlSslMode::Disabled))
}

async fn effect(conn: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effect (id) VALUES (?)").bind("e").execute(conn).await.map(drop)
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

/// The commands in a client's bytes: packets of a length, a number, and a command's byte and text
/// (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>). None here is so
/// long that it is spread over several.
fn steps(mut sent: &[u8]) -> Vec<&'static str> {
    let mut steps = Vec::new();
    while let [a, b, c, _number, command, ..] = *sent {
        let (packet, rest) = sent.split_at(4 + u32::from_le_bytes([a, b, c, 0]) as usize);
        sent = rest;
        steps.push(match command {
            0x03 => query(&packet[5..]),
            0x0e => "ping",
            0x16 => "prepare",
            0x17 => "execute",
            _ => "other",
        });
    }
    steps
}

fn query(sql: &[u8]) -> &'static str {
    let sql = String::from_utf8_lossy(sql);
    // The inbox begins and commits in scripts, which hold other words as well.
    [
        ("INSERT IGNORE", "register"),
        ("`inbox_messages` (consumer", "keep"),
        ("SKIP LOCKED", "lock"),
        ("candidate.sequence", "look"),
        ("attempts = attempts + 1", "take"),
        ("SET history", "fail"),
        ("SET state", "complete"),
        ("LOCK IN SHARE MODE", "originals"),
        ("/*M!", "dialect"),
        ("START TRANSACTION", "begin"),
        ("BEGIN", "begin"),
        ("COMMIT", "commit"),
        ("ROLLBACK", "rollback"),
    ]
    .iter()
    .find_map(|(word, step)| sql.contains(word).then_some(*step))
    .unwrap_or("query")
}

/// The inbox of those who write it themselves.
async fn by_hand(pool: &MySqlPool, ids: &[String]) {
    let mut tx = pool.begin().await.unwrap();
    let rows = vec!["('by hand', ?, 'PaymentConfirmed')"; ids.len()].join(", ");
    let insert = format!("INSERT IGNORE INTO inbox (consumer, message_id, event_type) VALUES {rows}");
    let mut insert = sqlx::query(sqlx::AssertSqlSafe(insert));
    for id in ids {
        insert = insert.bind(id);
    }
    assert_eq!(insert.execute(&mut *tx).await.unwrap().rows_affected(), ids.len() as u64);
    effect(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

async fn with_inbox(inbox: &Inbox<MySqlStore>, id: &str) {
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message(id)).await.unwrap().is_new());
    effect(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

fn numbered(id: &str) -> Vec<String> {
    (0..100).map(|number| format!("{id}-{number}")).collect()
}

async fn a_new_message_takes_the_round_trips_that_it_takes_by_hand(stand: Stand) {
    let line = Line::new(stand);
    let by_hand = line.spent(async |id| by_hand(&line.pool, &[id.to_owned()]).await).await;
    let ours = line.spent(async |id| with_inbox(&line.inbox, id).await).await;

    assert_eq!(by_hand.work, ["ping", "begin", "execute", "execute", "commit"]);
    assert_eq!(ours.work, ["ping", "begin", "register", "execute", "commit"]);
    assert_eq!(by_hand.release, ["ping"]);
    assert_eq!(ours.release, ["rollback", "ping"]);
}

async fn a_new_message_in_a_transaction_of_the_callers_takes_no_more(stand: Stand) {
    let line = Line::new(stand);
    let by_value = line
        .spent(async |id| {
            let tx = line.pool.begin().await.unwrap();
            let Registered::New(mut tx) = line.inbox.register(tx, &message(id)).await.unwrap() else {
                panic!("not new")
            };
            effect(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
        })
        .await;
    // Where a savepoint may have undone it, the commit proves the registration as well.
    let lent = line
        .spent(async |id| {
            let mut tx = line.inbox.begin().await.unwrap();
            effect(&mut tx).await.unwrap();
            assert!(tx.register_if_new(&message(&format!("{id}, lent"))).await.unwrap().is_new());
            tx.commit().await.unwrap();
        })
        .await;
    let guarded = line
        .spent(async |id| {
            let tx = line.pool.begin().await.unwrap();
            let mut tx = line.inbox.guard(tx).await.unwrap();
            assert!(tx.register_if_new(&message(&format!("{id}, guarded"))).await.unwrap().is_new());
            tx.commit().await.unwrap();
        })
        .await;

    assert_eq!(by_value.work, ["ping", "begin", "register", "execute", "commit"]);
    assert_eq!(lent.work, ["ping", "begin", "execute", "register", "commit"]);
    assert_eq!(guarded.work, ["ping", "begin", "query", "register", "commit"]);
}

async fn the_first_call_of_a_store_takes_one_more(stand: Stand) {
    let line = Line::new(stand);
    let first = line.spent(async |id| with_inbox(&inbox_on(&line.pool), id).await).await;
    assert_eq!(first.work, ["ping", "begin", "dialect", "register", "execute", "commit"]);
}

async fn a_duplicate_takes_a_second_statement_that_proves_it(stand: Stand) {
    let line = Line::new(stand);
    with_inbox(&line.inbox, "known").await;
    let spent = line
        .spent(async |_| {
            let tx = line.pool.begin().await.unwrap();
            let answer = line.inbox.register(tx, &message("known")).await.unwrap();
            assert!(matches!(answer, Registered::Duplicate(_)));
        })
        .await;

    assert_eq!(spent.work, ["ping", "begin", "register", "originals"]);
    assert_eq!(spent.release, ["rollback", "ping"]);
}

async fn process_adds_no_round_trip(stand: Stand) {
    let line = Line::new(stand);
    let process = async |message: Message| {
        let handled = line.inbox.process(&message, async |tx| {
            effect(tx).await.unwrap();
            Ok::<_, Error>(())
        });
        handled.await.unwrap().is_processed()
    };
    let new = line.spent(async |id| assert!(process(message(id)).await)).await;
    let duplicate = line.spent(async |id| assert!(!process(message(id)).await)).await;

    assert_eq!(new.work, ["ping", "begin", "register", "execute", "commit"]);
    assert_eq!(duplicate.work, ["ping", "begin", "register", "originals"]);
    assert_eq!(duplicate.release, ["rollback", "ping"]);
}

async fn a_batch_takes_the_round_trips_of_one_message(stand: Stand) {
    let line = Line::new(stand);
    let by_hand = line.spent(async |id| by_hand(&line.pool, &numbered(id)).await).await;
    let batch = async |messages: Vec<Message>| -> usize {
        let handled = line.inbox.process_batch(&messages, async |tx, _| {
            effect(tx).await.unwrap();
            Ok::<_, Error>(())
        });
        let outcomes = handled.await.unwrap();
        outcomes.iter().filter(|outcome| matches!(outcome, BatchOutcome::Processed)).count()
    };
    let messages = |id| numbered(id).iter().map(|id| message(id)).collect();
    let half = |id| {
        let known_and_new = |(n, known): (usize, &String)| match n.is_multiple_of(2) {
            true => message(known),
            false => message(&format!("{known}, new")),
        };
        numbered(id).iter().enumerate().map(known_and_new).collect()
    };
    let new = line.spent(async |id| assert_eq!(batch(messages(id)).await, 100)).await;
    let half_known = line.spent(async |id| assert_eq!(batch(half(id)).await, 50)).await;
    let known = line.spent(async |id| assert_eq!(batch(messages(id)).await, 0)).await;

    assert_eq!(by_hand.work, ["ping", "begin", "execute", "execute", "commit"]);
    assert_eq!(new.work, ["ping", "begin", "register", "execute", "commit"]);
    // One statement more, which reads the originals of all duplicates.
    assert_eq!(half_known.work, ["ping", "begin", "register", "originals", "execute", "commit"]);
    assert_eq!(known.work, ["ping", "begin", "register", "originals"]);
}

fn envelope(id: &str) -> Envelope {
    Envelope::new(message(id), b"payload".as_slice())
}

/// Receives messages beside the line, each of a key of its own.
async fn receive_beside(line: &Line, ids: &[String]) {
    let keyed = |id: &String| envelope(id).with_ordering_key(OrderingKey::new(id.as_str()).unwrap());
    let envelopes: Vec<Envelope> = ids.iter().map(keyed).collect();
    line.beside.inbox.receive_batch(&envelopes).await.unwrap();
}

async fn claimed(line: &Line, limit: u32, order: Option<AfterDead>) -> Vec<Lease> {
    let consumer = consumer();
    let claim = Claim::new(&consumer, Duration::from_secs(60), 5).limit(limit).order(order);
    let rows = line.inbox.store().claim(&claim).await.unwrap();
    rows.iter().map(|row| Lease { sequence: row.sequence, token: claim.token }).collect()
}

async fn receiving_takes_one_statement_more_than_registering_for_one_and_for_a_hundred(stand: Stand) {
    stand.store.create_message_schema().await.unwrap();
    let line = Line::new(stand);
    let one = line
        .spent(async |id| assert_eq!(line.inbox.receive(&envelope(id)).await.unwrap(), Received::Kept))
        .await;
    let batch = line
        .spent(async |id| {
            let envelopes: Vec<Envelope> = numbered(id).iter().map(|id| envelope(id)).collect();
            let received = line.inbox.receive_batch(&envelopes).await.unwrap();
            assert!(received.iter().all(|received| matches!(received, BatchReceived::Kept)));
        })
        .await;

    assert_eq!(one.work, ["ping", "begin", "register", "keep", "commit"]);
    assert_eq!(one.release, ["rollback", "ping"]);
    assert_eq!(batch.work, ["ping", "begin", "register", "keep", "commit"]);
}

async fn a_claim_takes_two_round_trips_and_one_in_order_three(stand: Stand) {
    stand.store.create_message_schema().await.unwrap();
    let line = Line::new(stand);
    receive_beside(&line, &numbered("m")).await;
    let free = line.spent(async |_| assert_eq!(claimed(&line, 10, None).await.len(), 10)).await;
    let in_order =
        line.spent(async |_| assert_eq!(claimed(&line, 10, Some(AfterDead::Block)).await.len(), 10)).await;

    assert_eq!(free.work, ["ping", "lock", "take"]);
    assert_eq!(in_order.work, ["ping", "lock", "look", "take"]);
    // It leaves nothing for the driver to roll back.
    assert_eq!((free.release, in_order.release), (vec!["ping"], vec!["ping"]));
}

async fn completing_takes_the_round_trips_of_registering_and_a_failure_is_one(stand: Stand) {
    stand.store.create_message_schema().await.unwrap();
    let line = Line::new(stand);
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
            let consumer = consumer();
            line.inbox.store().fail(&Fail::new(&consumer, next(), None, "\"e\"")).await.unwrap();
        })
        .await;

    assert_eq!(completed.work, ["ping", "begin", "complete", "execute", "commit"]);
    assert_eq!(failed.work, ["ping", "fail"]);
    assert_eq!(failed.release, ["ping"]);
}

/// A purge may lie between the insert and the look, so one more pair is made.
async fn r08_an_insert_that_was_swallowed_is_tried_once_more(stand: Stand) {
    let line = Line::new(stand);
    line.beside
        .sql(
            "CREATE TABLE consumers (name VARBINARY(100) PRIMARY KEY) ENGINE = InnoDB;
             ALTER TABLE inbox ADD FOREIGN KEY (consumer) REFERENCES consumers (name)",
        )
        .await;
    let spent = line
        .spent(async |id| {
            let mut tx = line.inbox.begin().await.unwrap();
            assert_eq!(kind(tx.register_if_new(&message(id)).await), ErrorKind::Unconfirmed);
        })
        .await;
    assert_eq!(spent.work, ["ping", "begin", "register", "originals", "register", "originals"]);
    let spent = line
        .spent(async |id| {
            let mut tx = line.inbox.begin().await.unwrap();
            assert_eq!(kind(tx.register_batch(&[message(id)]).await), ErrorKind::Unconfirmed);
        })
        .await;
    assert_eq!(spent.work, ["ping", "begin", "register", "originals", "register", "originals"]);
}

async fn r12_lost_before_the_server_saw_the_commit_the_message_is_new_again(stand: Stand) {
    let line = Line::new(stand);
    let error = line.lost_at_commit(|proxy| proxy.cut_before("COMMIT")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(line.committed().await, (0, 0));

    assert!(line.redelivered().await);
    assert_eq!(line.committed().await, (1, 1));
}

async fn r12_lost_after_the_server_saw_the_commit_the_message_is_a_duplicate(stand: Stand) {
    let line = Line::new(stand);
    let error = line.lost_at_commit(|proxy| proxy.cut_after("COMMIT")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(line.committed().await, (1, 1));

    assert!(!line.redelivered().await);
    assert_eq!(line.committed().await, (1, 1));
}

async fn r12_process_settles_a_lost_commit_by_itself(stand: Stand) {
    let line = Line::new(stand);
    let fault = line.proxy.cut_before("COMMIT");
    let (outcome, runs) = processed(&line.inbox).await;
    assert!(fault.has_fired());
    assert!(outcome.unwrap().is_processed());
    assert_eq!((runs, line.committed().await), (2, (1, 1)));

    line.beside.sql("DELETE FROM inbox; DELETE FROM effect").await;
    let fault = line.proxy.cut_after("COMMIT");
    let (outcome, runs) = processed(&line.inbox).await;
    assert!(fault.has_fired());
    assert!(matches!(outcome.unwrap(), Outcome::Duplicate(_)));
    assert_eq!((runs, line.committed().await), (1, (1, 1)));
}

/// Both moments of losing the connection that sends a text.
const CUTS: [fn(&Proxy, &str) -> Fault; 2] =
    [|proxy, text| proxy.cut_before(text), |proxy, text| proxy.cut_after(text)];

/// A value as it is sent.
fn on_the_wire(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn r04_lost_while_registering_nothing_is_registered(stand: Stand) {
    let line = Line::new(stand);
    let registering = on_the_wire("id-on-the-wire");
    for arm in CUTS {
        let fault = arm(&line.proxy, &registering);
        let mut tx = line.inbox.begin().await.unwrap();
        let error = tx.register_if_new(&message("id-on-the-wire")).await.expect_err("the connection is lost");

        assert!(fault.has_fired());
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_retryable());
        assert_eq!(kind(tx.commit().await), ErrorKind::Aborted);
        assert_eq!(line.beside.registered().await, 0);
    }
}

async fn r04_process_runs_again_what_was_lost_while_registering(stand: Stand) {
    let line = Line::new(stand);
    for arm in CUTS {
        let fault = arm(&line.proxy, &on_the_wire("PaymentConfirmed"));
        let (outcome, runs) = processed(&line.inbox).await;

        assert!(fault.has_fired());
        assert!(outcome.unwrap().is_processed());
        assert_eq!((runs, line.committed().await), (1, (1, 1)));
        line.beside.sql("DELETE FROM inbox; DELETE FROM effect").await;
    }
}

/// The rollback after the handler's error queues behind a statement that the handler gave up.
async fn a_handler_that_gives_up_a_statement_is_not_held_up_by_it(stand: Stand) {
    let line = Line::new(stand);
    let started = Instant::now();
    let copy = message("m");
    let given_up = line.inbox.process(&copy, async |tx| {
        let slow = run(tx, "DO SLEEP(60)");
        match tokio::time::timeout(Duration::from_millis(50), slow).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Backend, "give up")),
        }
    });
    let error = given_up.await.expect_err("the handler gave up");
    assert!(error.to_string().contains("give up"), "{error}");
    let waited = started.elapsed();
    assert!(waited < Duration::from_secs(30), "it waited for the statement: {waited:?}");
    assert_eq!(line.committed().await, (0, 0));
}

async fn r13_a_server_that_refuses_connections_is_unavailable(stand: Stand) {
    let line = Line::new(stand);
    with_inbox(&line.inbox, "warm").await;
    line.until_released().await;
    line.proxy.refuse().unwrap();
    line.proxy.cut_all().unwrap();

    // The pool itself tries a refused connection again, until its time is over.
    let refused = inbox_on(&pool_through(&line.proxy, &line.beside, IMPATIENT))
        .with_retry(RetryPolicy::default().with_max_attempts(3));
    assert_eq!(kind(refused.begin().await), ErrorKind::Unavailable);

    let start = Instant::now();
    let (outcome, runs) = processed(&refused).await;
    assert_eq!(kind(outcome), ErrorKind::Unavailable);
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
    let url = format!("mysql://nobody@{}/nothing", proxy.address());
    let pool = MySqlPoolOptions::new().connect_lazy(&url).unwrap();
    let policy = RetryPolicy::default().with_max_attempts(3);
    let (outcome, runs) = processed(&inbox_on(&pool).with_retry(policy)).await;

    assert_eq!(kind(outcome), ErrorKind::Unavailable);
    assert_eq!((proxy.counts().connections, runs), (3, 0));
}
