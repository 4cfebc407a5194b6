//! The deferred inbox where MySQL and MariaDB are particular: what a claim locks, bytes, packets and times.

use std::time::Duration;

use inbox_core::{
    BatchReceived, Claim, Deferred, Envelope, ErrorKind, Fail, Filter, Inbox, Lease, MessageRow, Received,
    Release, State, StoredMessage,
};
use inbox_mysql::{Account, MySqlStore, grants, message_grants};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::stand::{
    Guarded, Stand, consumer, message, on_each_server, on_own_servers, run, session, source_number, try_run,
};

on_each_server![
    b20_two_workers_claim_different_rows_and_lock_no_others,
    b47_a_claim_passes_over_a_row_that_another_transaction_has_locked,
    b03_a_payload_comes_back_byte_for_byte_in_any_sql_mode,
    b23_a_message_is_due_to_the_microsecond,
    b92_the_messages_of_two_databases_do_not_meet,
    d01_what_is_received_in_a_callers_transaction_is_kept_with_its_commit_only,
    r13_without_the_table_the_error_says_what_to_run,
    r13_without_an_index_that_a_statement_names_the_error_is_of_kind_schema,
    the_message_grants_let_an_account_receive_and_work_and_nothing_else,
];

on_own_servers![
    b03_a_payload_that_the_server_would_not_take_is_refused_and_the_connection_goes_on,
    b03_a_payload_of_16_mib_is_received_and_claimed,
];

pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Makes the table of kept messages.
pub(crate) async fn with_messages(stand: Stand) -> Stand {
    stand.store.create_message_schema().await.expect("the schema of kept messages");
    stand
}

pub(crate) fn envelope(id: &str) -> Envelope {
    Envelope::new(message(id), b"payload".as_slice())
}

pub(crate) async fn receive(inbox: &Inbox<MySqlStore>, id: &str) {
    assert_eq!(inbox.receive(&envelope(id)).await.unwrap(), Received::Kept);
}

pub(crate) async fn claim(store: &MySqlStore, limit: u32) -> Vec<(MessageRow, Lease)> {
    let consumer = consumer();
    let request = Claim::new(&consumer, LEASE, 5).limit(limit);
    let rows = store.claim(&request).await.unwrap();
    let lease = |row: &MessageRow| Lease { sequence: row.sequence, token: request.token };
    rows.into_iter().map(|row| (row.clone(), lease(&row))).collect()
}

/// Receives a message and claims it.
pub(crate) async fn leased(inbox: &Inbox<MySqlStore>, id: &str) -> Lease {
    receive(inbox, id).await;
    claim(inbox.store(), 1).await[0].1
}

/// A transaction with its message completed, as a worker's.
pub(crate) async fn completed(inbox: &Inbox<MySqlStore>, lease: Lease) -> Guarded<'_> {
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.complete(&[lease]).await.unwrap(), [true]);
    tx
}

pub(crate) async fn find(inbox: &Inbox<MySqlStore>, id: &str) -> StoredMessage {
    let listing = inbox.messages(&Filter::id(message(id).id().clone())).await.unwrap();
    listing.messages[0].clone()
}

fn ids(rows: &[(MessageRow, Lease)]) -> Vec<&str> {
    rows.iter().map(|(row, _)| std::str::from_utf8(&row.message_id).unwrap()).collect()
}

async fn fail(store: &MySqlStore, lease: Lease, retry_after: Option<Duration>) {
    store.fail(&Fail::new(&consumer(), lease, retry_after, "\"e\"")).await.unwrap();
}

/// The locking half of the store's own claim, in a transaction that stays open.
async fn lock_due(conn: &mut MySqlConnection, limit: u32) -> Vec<i64> {
    let candidates = include_str!("../../src/sql/messages/candidates.sql")
        .replace("{table}", "inbox_messages")
        .replace("{now}", "UTC_TIMESTAMP(6)")
        .replace("{consumer}", "'loyalty'")
        .replace("{pending}", "'pending'")
        .replace("{max_attempts}", "5")
        .replace("{limit}", &limit.to_string());
    run(conn, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION").await;
    let rows = sqlx::raw_sql(AssertSqlSafe(candidates)).fetch_all(conn).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// How many locks on rows, and on entries of indexes, a session has.
async fn row_locks(stand: &Stand, session: u64) -> i64 {
    if stand.is_mysql() {
        let count = "SELECT count(*)
                       FROM performance_schema.data_locks AS data_lock
                       JOIN performance_schema.threads AS thread ON thread.thread_id = data_lock.thread_id
                      WHERE thread.processlist_id = ? AND data_lock.lock_type = 'RECORD'";
        return sqlx::query_scalar(count).bind(session).fetch_one(&stand.pool).await.unwrap();
    }
    let row = sqlx::raw_sql("SHOW ENGINE INNODB STATUS").fetch_one(&stand.pool).await.unwrap();
    let monitor: String = row.get("Status");
    let thread = format!("thread id {session},");
    let mut transactions = monitor.split("---TRANSACTION").skip(1);
    let of_session = transactions.find(|transaction| transaction.contains(&thread)).unwrap();
    let line = of_session.lines().find(|line| line.contains(" row lock(s)")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.windows(2).position(|pair| pair[0] == "row" && pair[1].starts_with("lock(s)"));
    words[at.unwrap() - 1].parse().unwrap()
}

/// InnoDB locks what it reads: with a sort, or a scan, the first worker would lock the queue.
async fn b20_two_workers_claim_different_rows_and_lock_no_others(stand: Stand) {
    let stand = with_messages(stand).await;
    for number in 0..20 {
        receive(&stand.inbox, &format!("m-{number:02}")).await;
    }
    let (mut first, mut second) = (stand.connection().await, stand.connection().await);
    let taken = (lock_due(&mut first, 1).await, lock_due(&mut second, 1).await);
    assert_eq!(taken, (vec![1], vec![2]));
    // The entry of the index, and the row. MariaDB's monitor has one more of a session that passes over another's.
    let passed_over = i64::from(!stand.is_mysql());
    for (conn, locks) in [(&mut first, 2), (&mut second, 2 + passed_over)] {
        let session = session(conn).await;
        assert_eq!(row_locks(&stand, session).await, locks);
    }
    let others = claim(&stand.store, 20).await;
    assert_eq!(others.iter().map(|(row, _)| row.sequence).collect::<Vec<_>>(), (3..=20).collect::<Vec<_>>());
    run(&mut first, "ROLLBACK").await;
    run(&mut second, "ROLLBACK").await;
    assert_eq!(ids(&claim(&stand.store, 20).await), ["m-00", "m-01"]);
}

async fn b47_a_claim_passes_over_a_row_that_another_transaction_has_locked(stand: Stand) {
    let stand = with_messages(stand).await;
    receive(&stand.inbox, "m-1").await;
    receive(&stand.inbox, "m-2").await;
    let mut other = stand.pool.begin().await.unwrap();
    run(&mut other, "SELECT sequence FROM inbox_messages WHERE sequence = 1 FOR UPDATE").await;

    assert_eq!(ids(&claim(&stand.store, 1).await), ["m-2"]);
    assert!(claim(&stand.store, 1).await.is_empty());
    other.rollback().await.unwrap();
    assert_eq!(ids(&claim(&stand.store, 1).await), ["m-1"]);
}

async fn b03_a_payload_comes_back_byte_for_byte_in_any_sql_mode(stand: Stand) {
    let stand = with_messages(stand).await;
    let modes = [
        "SET sql_mode = ''",
        "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH', character_set_client = 'gbk', character_set_connection = 'gbk'",
    ];
    for (place, mode) in modes.into_iter().enumerate() {
        // Up to 1,024 bytes go another way than longer ones; 65,535 is where a BLOB ends.
        for length in [0, 1, 1_024, 1_025, 65_536, 70_000, 5 << 20] {
            let inbox = stand.inbox_on_one(mode).await;
            let id = format!("m-{place}-{length}");
            let payload: Vec<u8> = (0..length as u32).map(|number| (number * 7 % 256) as u8).collect();
            let kept =
                Envelope::new(message(&id), payload.clone()).with_header("h", b"\0\\'\"\xff".as_slice());
            inbox.receive(&kept).await.unwrap();

            let row = &claim(inbox.store(), 1).await[0].0;
            assert!(row.payload == payload, "{mode}, {length} bytes");
            let found = find(&inbox, &id).await;
            assert!(found.payload == payload, "{mode}, {length} bytes");
            assert_eq!(&found.headers, kept.headers(), "{mode}");
        }
    }
}

/// The session's clock stands still, as SQL can have it.
async fn b23_a_message_is_due_to_the_microsecond(stand: Stand) {
    let stand = with_messages(stand).await;
    let inbox = stand.inbox_on_one("DO 0").await;
    let clock = async |at: &str| {
        let mut conn = inbox.store().pool().acquire().await.unwrap();
        run(&mut conn, &format!("SET timestamp = {at}")).await;
    };
    clock("1700000000.000000").await;
    let lease = leased(&inbox, "m").await;
    fail(inbox.store(), lease, Some(Duration::from_millis(700))).await;
    let due = "SELECT CAST(MICROSECOND(due_at) + MICROSECOND(not_before) AS SIGNED) FROM inbox_messages";
    assert_eq!(stand.ask(due).await, 1_400_000);

    for early in ["1700000000.650000", "1700000000.699999"] {
        clock(early).await;
        assert!(claim(inbox.store(), 1).await.is_empty(), "{early}");
    }
    clock("1700000000.700000").await;
    let claimed = claim(inbox.store(), 1).await;
    assert_eq!((ids(&claimed), claimed[0].0.due_at), (vec!["m"], 1_700_000_060_700_000));

    // So is a lease.
    for (at, taken) in [("1700000060.699999", 0), ("1700000060.700000", 1)] {
        clock(at).await;
        assert_eq!(claim(inbox.store(), 1).await.len(), taken, "{at}");
    }
    // And what the sender said.
    let time = std::time::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_457);
    inbox.receive(&envelope("later").not_before(time)).await.unwrap();
    assert_eq!(find(&inbox, "later").await.due_at, time);
}

async fn b92_the_messages_of_two_databases_do_not_meet(stand: Stand) {
    let stand = with_messages(stand).await;
    let database = stand.database.server().fresh_database().await.unwrap();
    let table = inbox_core::TableName::new(database.name(), "inbox").unwrap();
    // On connections whose own database is the first.
    let other = Inbox::new(stand.store.clone().with_table(table), consumer());
    other.store().create_schema().await.unwrap();
    other.store().create_message_schema().await.unwrap();
    receive(&stand.inbox, "m").await;
    let lease = leased(&other, "m").await;

    fail(other.store(), lease, None).await;
    assert_eq!(other.replay(&Filter::state(State::Dead)).await.unwrap(), 1);
    let lease = claim(other.store(), 9).await[0].1;
    completed(&other, lease).await.commit().await.unwrap();
    assert_eq!(find(&other, "m").await.state, State::Done);
    let untouched = find(&stand.inbox, "m").await;
    assert_eq!((untouched.state, untouched.attempts, untouched.history.len()), (State::Pending, 0, 0));
}

async fn d01_what_is_received_in_a_callers_transaction_is_kept_with_its_commit_only(stand: Stand) {
    let stand = with_messages(stand).await;
    for (id, commits) in [("lost", false), ("kept", true)] {
        let mut tx = stand.pool.begin().await.unwrap();
        assert_eq!(stand.inbox.receive_in(&mut tx, &envelope(id)).await.unwrap(), Received::Kept);
        assert!(claim(&stand.store, 9).await.is_empty());
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    assert_eq!(ids(&claim(&stand.store, 9).await), ["kept"]);
}

async fn r13_without_the_table_the_error_says_what_to_run(stand: Stand) {
    let error = stand.inbox.receive(&envelope("m")).await.expect_err("no table");
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Schema, Some(1146)));
    assert!(error.to_string().contains("create_message_schema"), "{error}");
    assert_eq!(stand.registered().await, 0);
}

async fn r13_without_an_index_that_a_statement_names_the_error_is_of_kind_schema(stand: Stand) {
    let stand = with_messages(stand).await;
    receive(&stand.inbox, "m").await;
    stand.sql("ALTER TABLE inbox_messages DROP KEY claim").await;
    let error = stand.store.claim(&Claim::new(&consumer(), LEASE, 5)).await.expect_err("no index");
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Schema, Some(1176)));
    assert!(error.to_string().contains("verify_messages"), "{error}");
}

async fn the_message_grants_let_an_account_receive_and_work_and_nothing_else(stand: Stand) {
    let stand = with_messages(stand).await;
    let (options, name) = stand.account("").await;
    let account = Account::new(options.get_username(), "127.0.0.1").unwrap();
    stand.sql(&grants(stand.store.table(), &account)).await;
    let pool = MySqlPoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
    let inbox = Inbox::new(MySqlStore::new(pool.clone()).unwrap(), consumer());
    let refused = inbox.store().verify_messages().await.expect_err("no rights yet").to_string();
    assert!(refused.contains("message_grants"), "{refused}");
    let error = inbox.receive(&envelope("m")).await.expect_err("no rights yet");
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("message_grants"), "{error}");

    stand.sql(&message_grants(stand.store.table(), &account)).await;
    inbox.store().verify_messages().await.unwrap();
    let lease = leased(&inbox, "m").await;
    fail(inbox.store(), lease, Some(Duration::ZERO)).await;
    let lease = claim(inbox.store(), 1).await[0].1;
    assert_eq!(inbox.store().release(&Release::new(&consumer(), &[lease])).await.unwrap(), 1);
    let lease = claim(inbox.store(), 1).await[0].1;
    completed(&inbox, lease).await.commit().await.unwrap();
    inbox.message_counts(10).await.unwrap();
    assert_eq!(inbox.replay(&Filter::state(State::Done)).await.unwrap(), 1);
    for forbidden in ["DELETE FROM inbox_messages", "UPDATE inbox_messages SET payload = ''"] {
        let mut conn = pool.acquire().await.unwrap();
        assert!(try_run(&mut conn, forbidden).await.is_err(), "{forbidden}");
    }
    pool.close().await;
    stand.sql(&format!("DROP USER {name}")).await;
}

async fn b03_a_payload_that_the_server_would_not_take_is_refused_and_the_connection_goes_on(stand: Stand) {
    let stand = with_messages(stand).await;
    stand.sql("SET GLOBAL max_allowed_packet = 2097152").await;
    let inbox = stand.inbox_on_one("DO 0").await;
    let session_before = session(&mut inbox.store().pool().acquire().await.unwrap()).await;
    let long = Envelope::new(message("long"), vec![7; 2 << 20]);

    let error = inbox.receive(&long).await.expect_err("a packet over the limit");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Backend, false));
    for words in ["max_allowed_packet is 2097152", "with_max_payload"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    // Of a batch it fails alone.
    let answers = inbox.receive_batch(&[envelope("a"), long.clone(), envelope("b")]).await.unwrap();
    assert!(matches!(&answers[..], [BatchReceived::Kept, BatchReceived::Failed(_), BatchReceived::Kept]));
    assert_eq!(stand.registered().await, 2);
    assert_eq!(ids(&claim(inbox.store(), 9).await), ["a", "b"]);
    let report = inbox.store().verify_messages().await.unwrap();
    assert!(report.warnings().any(|text| text.starts_with("max_allowed_packet is 2097152")), "{report:?}");
    assert_eq!(session(&mut inbox.store().pool().acquire().await.unwrap()).await, session_before);
}

/// What the inbox receives unless told otherwise takes more than one packet of the protocol, in both ways.
async fn b03_a_payload_of_16_mib_is_received_and_claimed(stand: Stand) {
    let stand = with_messages(stand).await;
    stand.sql("SET GLOBAL max_allowed_packet = 67108864").await;
    let inbox = stand.inbox_on_one("DO 0").await;
    let payload: Vec<u8> = (0..16_u32 << 20).map(|number| (number % 251) as u8).collect();
    inbox.receive(&Envelope::new(message("m"), payload.clone())).await.unwrap();
    receive(&inbox, "next").await;
    let claimed = claim(inbox.store(), 9).await;
    assert_eq!(ids(&claimed), ["m", "next"]);
    assert!(claimed[0].0.payload == payload);
    let report = inbox.store().verify_messages().await.unwrap();
    assert!(!report.warnings().any(|text| text.starts_with("max_allowed_packet")), "{report:?}");
}
