//! The deferred inbox: what is kept, claimed and settled (D1 to D11).

use std::time::{Duration, SystemTime};

use inbox_core::{
    AfterDead, BatchReceived, Begin, Claim, Complete, Consumer, ContentType, Count, Deferred, End, Envelope,
    Error, ErrorKind, Fail, Filter, HandlerError, Inbox, IncidentKind, KeepMessages, KeepRequest, Lease,
    MessageRow, OrderingKey, Received, Release, Renew, Renewal, State, StoredMessage, TableName,
    Transactional, Unblock, Worker, micros_of,
};
use inbox_sqlite::{SqliteStore, SqliteTx};
use rusqlite::{Connection, ffi};

use crate::stand::{
    File, consumer, count, credit, credits, in_memory, inbox, is_registered, message, poll_once,
};

const LEASE: Duration = Duration::from_secs(30);

/// A store in memory and one on a file, each with the table of kept messages.
async fn both() -> [(Option<File>, SqliteStore); 2] {
    let (file, on_file) = File::new().await;
    let both = [(None, in_memory().await), (Some(file), on_file)];
    for (_, store) in &both {
        store.create_message_schema().await.unwrap();
    }
    both
}

/// As [`in_memory`], with the table of kept messages, and with a clock that moves as it is told.
async fn with_clock() -> SqliteStore {
    let store = in_memory().await.with_test_clock();
    store.create_message_schema().await.unwrap();
    let clock =
        "CREATE TABLE inbox_test_clock (shift_micros INTEGER); INSERT INTO inbox_test_clock VALUES (0)";
    store.call(move |conn| conn.execute_batch(clock)).await.unwrap();
    store
}

async fn advance(store: &SqliteStore, by: Duration) {
    let micros = i64::try_from(by.as_micros()).unwrap();
    const ADVANCE: &str = "UPDATE inbox_test_clock SET shift_micros = shift_micros + ?1";
    store.call(move |conn| conn.execute(ADVANCE, [micros])).await.unwrap();
}

fn envelope(id: &str) -> Envelope {
    Envelope::new(message(id), id.as_bytes())
}

async fn receive(store: &SqliteStore, id: &str) {
    assert_eq!(inbox(store).receive(&envelope(id)).await.unwrap(), Received::Kept);
}

async fn receive_of(store: &SqliteStore, id: &str, key: &str) {
    let envelope = envelope(id).with_ordering_key(OrderingKey::new(key).unwrap());
    assert_eq!(inbox(store).receive(&envelope).await.unwrap(), Received::Kept);
}

/// Claims up to 10, with two attempts allowed, and answers the rows with their leases.
async fn claim(store: &SqliteStore, order: Option<AfterDead>) -> Vec<(MessageRow, Lease)> {
    let consumer = consumer();
    let request = Claim::new(&consumer, LEASE, 2).limit(10).order(order);
    let rows = store.claim(&request).await.unwrap();
    let leased = |row: MessageRow| {
        let lease = Lease { sequence: row.sequence, token: request.token };
        (row, lease)
    };
    rows.into_iter().map(leased).collect()
}

async fn claim_one(store: &SqliteStore) -> Lease {
    match claim(store, None).await[..] {
        [(_, lease)] => lease,
        ref other => panic!("{other:?}"),
    }
}

fn ids(claimed: &[(MessageRow, Lease)]) -> Vec<&str> {
    claimed.iter().map(|(row, _)| std::str::from_utf8(&row.message_id).unwrap()).collect()
}

async fn sql(tx: &mut SqliteTx, text: &'static str) -> rusqlite::Result<()> {
    tx.call(move |conn| conn.execute_batch(text)).await
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// How many are pending, done and dead.
async fn states(store: &SqliteStore) -> Vec<u32> {
    let counts = store.count(&Count::new(&consumer(), 100)).await.unwrap();
    counts.iter().map(|count| count.count).collect()
}

#[tokio::test]
async fn b03_what_is_received_comes_back_byte_for_byte() {
    for (_file, store) in both().await {
        let payload: Vec<u8> = (0..70_000_u32).map(|n| (n % 256) as u8).collect();
        let whole = Envelope::new(message("m").with_payload(&payload), payload.clone())
            .with_header("trace", vec![0xff, 0, 0x80])
            .with_content_type(ContentType::new("application/json").unwrap())
            .with_ordering_key(OrderingKey::new("42").unwrap());
        let answers =
            inbox(&store).receive_batch(&[whole.clone(), Envelope::new(message("empty"), [])]).await;
        assert_eq!(answers.unwrap().len(), 2);

        let filter = Filter::state(State::Pending).with_payloads();
        let read = inbox(&store).messages(&filter).await.unwrap();

        assert!(read.damaged.is_empty(), "{:?}", read.damaged);
        let [one, empty] = &read.messages[..] else { panic!("{read:?}") };
        assert_eq!((&one.message, &one.payload), (whole.message(), &payload));
        assert_eq!(&one.headers, whole.headers());
        assert_eq!(one.content_type.as_ref(), whole.content_type());
        assert_eq!(one.ordering_key.as_ref(), whole.ordering_key());
        assert!(empty.payload.is_empty() && empty.content_type.is_none());
        let claimed = claim(&store, None).await;
        assert_eq!(claimed[0].0.payload, payload);
    }
}

#[tokio::test]
async fn b53_texts_are_text_and_bytes_are_blobs() {
    let store = in_memory().await;
    store.create_message_schema().await.unwrap();
    receive_of(&store, "42", "42").await;
    let lease = claim_one(&store).await;
    store.fail(&Fail::new(&consumer(), lease, Some(Duration::ZERO), "\"no\"")).await.unwrap();
    claim(&store, None).await;

    const CLASSES: &str = "SELECT typeof(message_id) || typeof(payload) || typeof(headers) || typeof(ordering_key)
                                  || typeof(lease_token) || typeof(history) || typeof(due_at) FROM inbox_messages";
    let classes: String = store.call(|conn| conn.query_row(CLASSES, [], |row| row.get(0))).await.unwrap();
    assert_eq!(classes, "textblobtexttextblobtextinteger");
}

#[tokio::test]
async fn b57_two_connections_claim_one_row_once() {
    let (file, store) = File::new().await;
    store.create_message_schema().await.unwrap();
    let other = file.store();
    for round in 0..50 {
        receive(&store, &round.to_string()).await;
        let (one, two) = tokio::join!(claim(&store, None), claim(&other, None));
        assert_eq!(one.len() + two.len(), 1);
    }
}

#[tokio::test]
async fn b23_a_senders_microseconds_are_kept_and_sqlites_clock_has_milliseconds() {
    let store = with_clock().await;
    let hour = Duration::from_secs(3600);
    let at = SystemTime::now() + hour;
    inbox(&store).receive(&envelope("m").not_before(at)).await.unwrap();

    advance(&store, hour - Duration::from_secs(60)).await;
    assert!(claim(&store, None).await.is_empty(), "a minute too early");
    let listing = inbox(&store).messages(&Filter::state(State::Pending)).await.unwrap();
    assert_eq!(micros_of(listing.messages[0].due_at), micros_of(at));
    assert_eq!(micros_of(listing.messages[0].received_at) % 1000, 0);
    advance(&store, Duration::from_secs(120)).await;
    assert_eq!(claim(&store, None).await.len(), 1);
}

#[tokio::test]
async fn d02_a_delay_and_a_lease_are_measured_by_the_databases_clock() {
    let store = with_clock().await;
    inbox(&store).receive(&envelope("m").delayed(Duration::from_secs(600))).await.unwrap();
    assert!(claim(&store, None).await.is_empty());
    advance(&store, Duration::from_secs(600)).await;

    let (row, _) = claim(&store, None).await.remove(0);
    assert_eq!((row.attempts, row.leased, row.history.len()), (1, true, 0));
    assert!(claim(&store, None).await.is_empty(), "it is leased");

    advance(&store, LEASE).await;
    let (row, _) = claim(&store, None).await.remove(0);
    let history = String::from_utf8(row.history).unwrap();
    assert!(history.starts_with("{\"attempt\":1,\"at\":") && history.ends_with(",\"kind\":\"abandoned\"}\n"));
    assert_eq!((row.attempts, row.state), (2, b"pending".to_vec()));

    advance(&store, LEASE).await;
    let (row, _) = claim(&store, None).await.remove(0);
    assert_eq!((row.attempts, row.leased, row.state), (2, false, b"dead".to_vec()));
    assert_eq!(states(&store).await, [0, 0, 1]);
}

#[tokio::test]
async fn d03_who_lost_the_lease_changes_nothing() {
    let store = with_clock().await;
    receive(&store, "m").await;
    let old = claim_one(&store).await;
    advance(&store, LEASE).await;
    let new = claim_one(&store).await;
    let consumer = consumer();

    let failed = store.fail(&Fail::new(&consumer, old, None, "\"no\"")).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::LeaseLost);
    assert!(failed.to_string().contains(&format!("sequence {}", old.sequence)), "{failed}");
    assert_eq!(store.renew(&Renew::new(&consumer, &[old], LEASE)).await.unwrap(), [Renewal::Lost]);
    assert_eq!(store.release(&Release::new(&consumer, &[old])).await.unwrap(), 0);
    let mut tx = store.begin(None).await.unwrap();
    assert_eq!(store.complete(&mut tx, &Complete::new(&consumer, &[old, new])).await.unwrap(), [false, true]);
    store.commit(tx, End::new(&consumer, &[]).completed(&[new])).await.unwrap();
    assert_eq!(states(&store).await, [0, 1, 0]);
}

#[tokio::test]
async fn d08_a_replay_gives_one_more_attempt_and_keeps_the_history() {
    for (_file, store) in both().await {
        receive(&store, "m").await;
        let consumer = consumer();
        let lease = claim_one(&store).await;
        store.fail(&Fail::new(&consumer, lease, None, "\"no\"")).await.unwrap();
        let (dead, by_id) = (Filter::state(State::Dead), Filter::id(message("m").id().clone()));

        let inbox = inbox(&store);
        let (one, two) = tokio::join!(inbox.replay(&dead), inbox.replay(&by_id));

        assert_eq!(one.unwrap() + two.unwrap(), 1);
        let replayed = &inbox.messages(&Filter::state(State::Pending)).await.unwrap().messages[0];
        assert_eq!((replayed.attempts, replayed.allowed), (1, Some(2)));
        let kinds: Vec<IncidentKind> = replayed.history.iter().map(|incident| incident.kind).collect();
        assert_eq!(kinds, [IncidentKind::Failed, IncidentKind::Replayed]);
        assert_eq!(replayed.last_error(), Some("no"));
        claim_one(&store).await;
    }
}

#[tokio::test]
async fn d07_a_message_waits_for_the_earlier_ones_of_its_key() {
    for (_file, store) in both().await {
        for id in ["a", "b"] {
            receive_of(&store, id, "k").await;
        }
        receive(&store, "c").await;
        let claimed = claim(&store, Some(AfterDead::Block)).await;
        assert_eq!(ids(&claimed), ["a", "c"]);

        store.fail(&Fail::new(&consumer(), claimed[0].1, None, "\"no\"")).await.unwrap();
        let key = [OrderingKey::new("k").unwrap()];
        store.unblock(&Unblock::new(&consumer(), &key)).await.unwrap();

        assert!(claim(&store, Some(AfterDead::Block)).await.is_empty(), "behind a dead letter");
        store.unblock(&Unblock::new(&consumer(), &key)).await.unwrap();
        assert_eq!(ids(&claim(&store, Some(AfterDead::Pass)).await), ["b"]);
    }
}

/// A message that is claimed and completed in an open transaction, with an effect.
async fn completed(store: &SqliteStore) -> (SqliteTx, Lease) {
    receive(store, "m").await;
    let lease = claim_one(store).await;
    let mut tx = store.begin(None).await.unwrap();
    let held = store.complete(&mut tx, &Complete::new(&consumer(), &[lease])).await.unwrap();
    assert_eq!(held, [true]);
    credit(&mut tx).await.unwrap();
    (tx, lease)
}

async fn commit(store: &SqliteStore, tx: SqliteTx, lease: Lease) -> Result<(), Error> {
    store.commit(tx, End::new(&consumer(), &[]).completed(&[lease])).await
}

async fn roll_back(store: &SqliteStore, tx: SqliteTx, lease: Lease) -> Result<(), Error> {
    store.rollback(tx, End::new(&consumer(), &[]).completed(&[lease])).await
}

const CONFLICT: &str =
    "CREATE TEMP TABLE one (a UNIQUE); INSERT INTO one VALUES (1); INSERT OR ROLLBACK INTO one VALUES (1)";

#[tokio::test]
async fn r12_a_commit_proves_the_completion() {
    for (ended, effects) in [("COMMIT", 1), ("COMMIT; BEGIN", 1), ("ROLLBACK", 0), ("ROLLBACK; BEGIN", 0)] {
        let store = in_memory().await;
        store.create_message_schema().await.unwrap();
        let (mut tx, lease) = completed(&store).await;
        sql(&mut tx, ended).await.unwrap();
        assert_eq!(kind(commit(&store, tx, lease).await), Some(ErrorKind::TransactionLost), "{ended}");
        assert_eq!(credits(&store).await, effects, "{ended}");
    }
    let store = in_memory().await;
    store.create_message_schema().await.unwrap();
    let (mut tx, lease) = completed(&store).await;
    assert!(sql(&mut tx, CONFLICT).await.is_err());
    assert_eq!(kind(commit(&store, tx, lease).await), Some(ErrorKind::TransactionLost));
    assert_eq!((states(&store).await, credits(&store).await), (vec![1, 0, 0], 0));
}

#[tokio::test]
async fn r12_a_commit_notices_a_completion_that_a_savepoint_undid() {
    let store = in_memory().await;
    store.create_message_schema().await.unwrap();
    receive(&store, "m").await;
    let lease = claim_one(&store).await;
    let mut tx = store.begin(None).await.unwrap();
    credit(&mut tx).await.unwrap();
    sql(&mut tx, "SAVEPOINT a").await.unwrap();
    store.complete(&mut tx, &Complete::new(&consumer(), &[lease])).await.unwrap();
    sql(&mut tx, "ROLLBACK TO a").await.unwrap();
    assert_eq!(kind(commit(&store, tx, lease).await), Some(ErrorKind::TransactionLost));
    assert_eq!((states(&store).await, credits(&store).await), (vec![1, 0, 0], 0));
}

#[tokio::test]
async fn r12_a_token_that_is_still_there_proves_the_rollback() {
    for (ended, kind_of_rollback) in [
        ("SELECT 1", None),
        ("ROLLBACK", None),
        (CONFLICT, None),
        ("COMMIT", Some(ErrorKind::TransactionLost)),
        ("COMMIT; BEGIN", Some(ErrorKind::TransactionLost)),
        ("ROLLBACK; INSERT INTO points VALUES (1)", Some(ErrorKind::TransactionLost)),
    ] {
        for (_file, store) in both().await {
            let (mut tx, lease) = completed(&store).await;
            // What a call changed before it ended the transaction cannot be told from what it changed after.
            if ended == CONFLICT {
                sql(&mut tx, "CREATE TEMP TABLE one (a UNIQUE); INSERT INTO one VALUES (1)").await.unwrap();
                assert!(sql(&mut tx, "INSERT OR ROLLBACK INTO one VALUES (1)").await.is_err());
            } else {
                sql(&mut tx, ended).await.unwrap();
            }
            assert_eq!(kind(roll_back(&store, tx, lease).await), kind_of_rollback, "{ended}");
            let committed = ended.starts_with("COMMIT");
            let expected = if committed { [0, 1, 0] } else { [1, 0, 0] };
            assert_eq!(states(&store).await, expected, "{ended}");
        }
    }
}

#[tokio::test]
async fn d04_beside_a_writer_a_lease_is_locked_and_a_claim_busy() {
    for (file, store) in both().await {
        let store = store.with_wait(Duration::from_millis(20));
        let (tx, lease) = completed(&store).await;
        let gone = Lease { sequence: lease.sequence + 1, token: lease.token };
        let consumer = consumer();

        let renewed = store.renew(&Renew::new(&consumer, &[lease, gone], LEASE)).await.unwrap();
        assert_eq!(kind(store.claim(&Claim::new(&consumer, LEASE, 2)).await), Some(ErrorKind::Busy));
        let failed = store.fail(&Fail::new(&consumer, lease, None, "\"no\"")).await;
        assert_eq!(kind(failed), Some(ErrorKind::Busy));

        // In memory there is no second connection that could look.
        let second = if file.is_some() { Renewal::Lost } else { Renewal::Locked };
        assert_eq!(renewed, [Renewal::Locked, second]);
        roll_back(&store, tx, lease).await.unwrap();
        assert_eq!(store.renew(&Renew::new(&consumer, &[lease], LEASE)).await.unwrap(), [Renewal::Renewed]);
    }
}

#[tokio::test]
async fn r06_another_process_that_holds_the_writer_is_busy_past_the_wait() {
    let (file, store) = File::new().await;
    store.create_message_schema().await.unwrap();
    receive(&store, "m").await;
    let store = store.with_wait(Duration::from_millis(20));
    let lease = claim_one(&store).await;
    let foreign = file.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();

    let consumer = consumer();
    assert_eq!(kind(store.claim(&Claim::new(&consumer, LEASE, 2)).await), Some(ErrorKind::Busy));
    assert_eq!(kind(store.release(&Release::new(&consumer, &[lease])).await), Some(ErrorKind::Busy));
    assert_eq!(store.renew(&Renew::new(&consumer, &[lease], LEASE)).await.unwrap(), [Renewal::Locked]);
    assert_eq!(states(&store).await, [1, 0, 0], "reading waits for nobody");

    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(store.release(&Release::new(&consumer, &[lease])).await.unwrap(), 1);
}

#[tokio::test]
async fn b92_two_inboxes_keep_their_own_messages() {
    let folder = tempfile::tempdir().unwrap();
    let conn = Connection::open_in_memory().unwrap();
    let attach = format!("ATTACH '{}' AS other", folder.path().join("other.db").display());
    conn.execute_batch(&attach).unwrap();
    let first = SqliteStore::from_connection(conn).unwrap();
    let tables = [("main", "second"), ("other", "inbox")]
        .map(|(schema, table)| TableName::new(schema, table).unwrap());
    let [second, third] = tables.map(|table| first.clone().with_table(table));
    for store in [&first, &second, &third] {
        store.create_schema().await.unwrap();
        store.create_message_schema().await.unwrap();
        store.verify_messages().await.unwrap();
        receive(store, "m").await;
    }
    assert_eq!(third.messages_table().to_string(), "other.inbox_messages");

    let lease = claim_one(&second).await;
    let mut tx = first.begin(None).await.unwrap();
    assert_eq!(first.complete(&mut tx, &Complete::new(&consumer(), &[lease])).await.unwrap(), [false]);
    assert_eq!(second.complete(&mut tx, &Complete::new(&consumer(), &[lease])).await.unwrap(), [true]);
    second.commit(tx, End::new(&consumer(), &[]).completed(&[lease])).await.unwrap();
    let lease = claim_one(&third).await;
    third.fail(&Fail::new(&consumer(), lease, None, "\"no\"")).await.unwrap();

    assert_eq!(states(&first).await, [1, 0, 0]);
    assert_eq!(states(&second).await, [0, 1, 0]);
    assert_eq!(states(&third).await, [0, 0, 1]);
    assert_eq!(inbox(&third).replay(&Filter::state(State::Dead)).await.unwrap(), 1);
    assert_eq!(states(&third).await, [1, 0, 0]);
}

#[tokio::test]
async fn a_full_disk_while_receiving_keeps_nothing_half() {
    for (_file, store) in both().await {
        let limit = |conn: &Connection| {
            let pages: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            conn.query_row(&format!("PRAGMA max_page_count = {}", pages + 5), [], |_| Ok(()))
        };
        store.call::<_, rusqlite::Error, _>(limit).await.unwrap();

        let big = Envelope::new(message("m"), vec![7; 1_000_000]);
        let error = inbox(&store).receive(&big).await.unwrap_err();

        let source =
            std::error::Error::source(&error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
        let full = source.and_then(rusqlite::Error::sqlite_error_code);
        assert_eq!((error.kind(), full), (ErrorKind::Backend, Some(ffi::ErrorCode::DiskFull)));
        assert!(!is_registered(&store, "m").await);
        assert_eq!(states(&store).await, [0, 0, 0]);
        receive(&store, "m").await;
    }
}

#[tokio::test]
async fn r09_a_message_that_cannot_be_kept_condemns_the_transaction() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    credit(&mut tx).await.unwrap();
    let error = inbox(&store).receive_in(&mut tx, &envelope("m")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(
        error.to_string().contains("there is no table main.inbox_messages; run create_message_schema"),
        "{error}"
    );
    let registered = [message("m").id().clone()];
    assert_eq!(kind(store.commit(tx, End::new(&consumer(), &registered)).await), Some(ErrorKind::Aborted));
    assert_eq!((credits(&store).await, is_registered(&store, "m").await), (0, false));
}

#[tokio::test]
async fn a_worker_is_told_after_the_commit_and_not_before() {
    for (_file, store) in both().await {
        let mut watch = store.watch(&consumer()).await.unwrap().unwrap();
        let mut tx = store.begin(None).await.unwrap();
        store.keep(&mut tx, &KeepRequest::new(&consumer(), &[&envelope("m")])).await.unwrap();
        {
            let mut changed = Box::pin(watch.changed());
            assert!(poll_once(&mut changed).await.is_none());
        }
        store.commit(tx, End::new(&consumer(), &[])).await.unwrap();
        // Of a clone, and while nobody was listening.
        tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap().unwrap();
        assert_eq!(claim(&store.clone(), None).await.len(), 1);
        let mut changed = Box::pin(watch.changed());
        assert!(poll_once(&mut changed).await.is_none());
    }
}

#[tokio::test]
async fn r17_a_claim_that_is_given_up_leaves_nothing_open() {
    let store = in_memory().await;
    store.create_message_schema().await.unwrap();
    receive(&store, "m").await;
    let tx = store.begin(None).await.unwrap();
    let consumer = consumer();
    let request = Claim::new(&consumer, LEASE, 2);
    {
        let mut waiting = Box::pin(store.claim(&request));
        assert!(poll_once(&mut waiting).await.is_none());
    }
    store.rollback(tx, End::new(&consumer, &[])).await.unwrap();
    claim_one(&store).await;
}

#[tokio::test]
async fn a_worker_handles_each_message_once_where_handlers_take_turns() {
    for (_file, store) in both().await {
        let store = store.with_wait(Duration::from_secs(30));
        for number in 0..20 {
            receive_of(&store, &number.to_string(), if number % 2 == 0 { "even" } else { "odd" }).await;
        }
        let worker = Worker::new(inbox(&store)).with_concurrency(4).with_order(AfterDead::Block);
        let handled = worker
            .run_until_drained(async |tx, _message| {
                tx.call(|conn| conn.execute("INSERT INTO points VALUES (10)", [])).await?;
                Ok::<_, HandlerError>(())
            })
            .await
            .unwrap();
        assert_eq!(credits(&store).await, 20, "{handled:?}");
        assert_eq!(states(&store).await, [0, 20, 0]);
        let left = "SELECT count(*) FROM inbox_messages WHERE lease_token IS NOT NULL OR attempts <> 1";
        assert_eq!(count(&store, left).await, 0);
    }
}

#[tokio::test]
async fn two_that_create_the_table_at_once_both_succeed() {
    let (file, store) = File::new().await;
    let other = file.store();
    let (one, two) = tokio::join!(store.create_message_schema(), other.create_message_schema());
    one.unwrap();
    two.unwrap();
    let consumer = Consumer::new("another").unwrap();
    Inbox::new(other, consumer).receive(&envelope("m")).await.unwrap();
    assert!(claim(&store, None).await.is_empty(), "another consumer's");
}

/// A handler is the one writer while it runs, so no renewal gets through, and here each takes longer than
/// the lease. What waits in the worker's hand must not be taken over by its own next claim.
#[tokio::test]
async fn d04_a_worker_does_not_take_over_what_waits_in_its_own_hand() {
    let store = with_clock().await;
    for id in ["a", "b", "c", "d"] {
        receive(&store, id).await;
    }
    let handler = async |tx: &mut SqliteTx, _: &StoredMessage| {
        let later = i64::try_from(2 * LEASE.as_micros())?;
        const ADVANCE: &str = "UPDATE inbox_test_clock SET shift_micros = shift_micros + ?1";
        tx.call(move |conn| conn.execute(ADVANCE, [later])).await?;
        Ok::<_, HandlerError>(())
    };
    let report = Worker::new(inbox(&store)).with_lease(LEASE).run_until_drained(handler).await.unwrap();
    assert_eq!((report.done, report.taken_over, report.lost), (4, 0, 0), "{report:?}");
}

/// Of one id twice in a batch, where the first cannot be kept, the second is kept with its own payload.
#[tokio::test]
async fn r18_a_repeat_whose_first_fails_is_kept_with_its_own_payload() {
    let store = in_memory().await;
    store.create_message_schema().await.unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON inbox_messages WHEN NEW.payload = x'626164'
                  BEGIN SELECT raise(ABORT, 'bad'); END";
    store.call(move |conn| conn.execute_batch(refuse)).await.unwrap();
    let batch = [Envelope::new(message("m"), "bad"), Envelope::new(message("m"), "good")];
    let answers = inbox(&store).receive_batch(&batch).await.unwrap();
    assert!(matches!(answers[..], [BatchReceived::Failed(_), BatchReceived::Kept]), "{answers:?}");
    let kept = inbox(&store).messages(&Filter::id(message("m").id().clone())).await.unwrap();
    assert_eq!(kept.messages.iter().map(|one| &*one.payload).collect::<Vec<_>>(), [b"good"]);
}
