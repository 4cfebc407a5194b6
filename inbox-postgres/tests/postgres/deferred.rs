//! The deferred inbox where PostgreSQL is particular: locks, bytes, notifications, and how transactions end.

use std::time::Duration;

use inbox_core::{
    Claim, Consumer, Deferred, Envelope, Error, ErrorKind, Fail, Filter, GuardedTx, Identifier, Inbox, Lease,
    MessageRow, Received, Release, Renew, Renewal, State, TableName, Watch,
};
use inbox_postgres::{PostgresStore, grants, message_grants, sqlx};
use sqlx::{Postgres, Transaction};

use crate::stand::{Stand, consumer, effect, kind, message, pid, run, try_run};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// How long a test waits for news that is to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stand with the table of kept messages.
pub(crate) async fn stand() -> Option<Stand> {
    let stand = Stand::new().await?;
    stand.store.create_message_schema().await.expect("the schema of kept messages");
    Some(stand)
}

fn envelope(id: &str) -> Envelope {
    Envelope::new(message(id), b"payload".as_slice())
}

pub(crate) async fn receive(inbox: &Inbox<PostgresStore>, id: &str) {
    assert_eq!(inbox.receive(&envelope(id)).await.unwrap(), Received::Kept);
}

async fn claim(store: &PostgresStore, limit: u32) -> Vec<(MessageRow, Lease)> {
    let consumer = consumer();
    let request = Claim::new(&consumer, LEASE, 5).limit(limit);
    let rows = store.claim(&request).await.unwrap();
    let lease = |row: &MessageRow| Lease { sequence: row.sequence, token: request.token };
    rows.into_iter().map(|row| (row.clone(), lease(&row))).collect()
}

fn id(row: &MessageRow) -> &str {
    std::str::from_utf8(&row.message_id).unwrap()
}

async fn state(inbox: &Inbox<PostgresStore>, id: &str) -> State {
    let listing = inbox.messages(&Filter::id(message(id).id().clone())).await.unwrap();
    listing.messages[0].state
}

/// A transaction with its message completed, as a worker's.
async fn completed<'i>(
    inbox: &'i Inbox<PostgresStore>,
    lease: Lease,
) -> GuardedTx<'i, PostgresStore, Transaction<'static, Postgres>> {
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.complete(&[lease]).await.unwrap(), [true]);
    tx
}

async fn leased(stand: &Stand, id: &str) -> Lease {
    receive(&stand.inbox, id).await;
    claim(&stand.store, 1).await[0].1
}

#[tokio::test]
async fn b46_limit_one_claims_one_row_with_any_plan() {
    let Some(stand) = stand().await else { return };
    let options =
        ["hashjoin", "mergejoin", "material", "seqscan", "sort", "indexscan", "bitmapscan", "memoize"];
    for left in ["indexscan", "seqscan"] {
        let off: Vec<String> = options
            .iter()
            .filter(|option| **option != left)
            .map(|option| format!("enable_{option}"))
            .collect();
        let off: Vec<(&str, &str)> = off.iter().map(|option| (option.as_str(), "off")).collect();
        for plan in ["force_custom_plan", "force_generic_plan"] {
            let settings = [off.as_slice(), &[("plan_cache_mode", plan)]].concat();
            let inbox = stand.inbox_with(&settings, 1).await;
            for number in 0..5 {
                receive(&inbox, &format!("{left}-{plan}-{number}")).await;
            }
            for _ in 0..5 {
                assert_eq!(claim(inbox.store(), 1).await.len(), 1, "{left} {plan}");
            }
            assert!(claim(inbox.store(), 1).await.is_empty());
            completes_and_settles_one_of_two(&stand, &inbox).await;
        }
    }
}

/// Of two messages under one token, what is done to one neither changes nor locks the other.
async fn completes_and_settles_one_of_two(stand: &Stand, inbox: &Inbox<PostgresStore>) {
    receive(inbox, &format!("one of {}", stand.registered().await)).await;
    receive(inbox, &format!("two of {}", stand.registered().await)).await;
    let leases: Vec<Lease> = claim(inbox.store(), 2).await.into_iter().map(|(_, lease)| lease).collect();
    let consumer = consumer();
    let free = async || {
        let both = stand.store.renew(&Renew::new(&consumer, &leases, LEASE)).await.unwrap();
        both[1] == Renewal::Renewed
    };
    assert_eq!(
        inbox.store().renew(&Renew::new(&consumer, &leases[..1], LEASE)).await.unwrap(),
        [Renewal::Renewed]
    );
    let tx = completed(inbox, leases[0]).await;
    assert!(free().await);
    tx.rollback().await.unwrap();
    assert_eq!(inbox.store().release(&Release::new(&consumer, &leases[..1])).await.unwrap(), 1);
    assert!(free().await);
    inbox.store().fail(&Fail::new(&consumer, leases[1], None, "\"e\"")).await.unwrap();
    assert_eq!(claim(inbox.store(), 9).await.len(), 1);
}

#[tokio::test]
async fn b47_a_claim_passes_over_a_row_that_another_transaction_has_locked() {
    let Some(stand) = stand().await else { return };
    receive(&stand.inbox, "m-1").await;
    receive(&stand.inbox, "m-2").await;
    let mut other = stand.pool.begin().await.unwrap();
    run(&mut other, "SELECT FROM inbox_messages WHERE message_id = 'm-1' FOR UPDATE").await;

    let taken = claim(&stand.store, 1).await;
    assert_eq!(id(&taken[0].0), "m-2");
    assert!(claim(&stand.store, 1).await.is_empty());
    other.rollback().await.unwrap();
    assert_eq!(id(&claim(&stand.store, 1).await[0].0), "m-1");
}

#[tokio::test]
async fn b03_a_payload_comes_back_byte_for_byte_and_its_times_to_the_microsecond() {
    let Some(stand) = stand().await else { return };
    let payload: Vec<u8> = (0..70_000_u32).map(|number| (number * 7 % 256) as u8).collect();
    let time = std::time::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_457);
    let envelope = Envelope::new(message("m"), payload.clone())
        .with_header("name", b"\0\xff".as_slice())
        .not_before(time);
    stand.inbox.receive(&envelope).await.unwrap();

    let listing = stand.inbox.messages(&Filter::id(message("m").id().clone())).await.unwrap();
    let kept = &listing.messages[0];
    assert_eq!(kept.payload, payload);
    assert_eq!(&kept.headers, envelope.headers());
    assert_eq!(kept.due_at, time);
    let micros = "SELECT (extract(epoch FROM received_at) * 1000000)::bigint FROM inbox_messages";
    let received = kept.received_at.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(received.as_micros(), u128::try_from(stand.ask(micros).await).unwrap());
}

#[tokio::test]
async fn b92_the_messages_of_two_schemas_do_not_meet() {
    let Some(stand) = stand().await else { return };
    let store = stand.store.clone().with_table(TableName::new("app", "inbox").unwrap());
    store.create_schema().await.unwrap();
    store.create_message_schema().await.unwrap();
    let other = Inbox::new(store, consumer());
    receive(&stand.inbox, "m").await;
    receive(&other, "m").await;

    assert_eq!(claim(&stand.store, 9).await.len(), 1);
    assert_eq!(claim(other.store(), 9).await.len(), 1);
    // A session whose search path has the other first changes nothing.
    let confused = stand.inbox_with(&[("search_path", "app")], 1).await;
    assert!(claim(confused.store(), 9).await.is_empty());
}

#[tokio::test]
async fn d01_what_is_received_in_a_callers_transaction_is_kept_with_its_commit_only() {
    let Some(stand) = stand().await else { return };
    for (id, commits) in [("lost", false), ("kept", true)] {
        let mut tx = stand.pool.begin().await.unwrap();
        assert_eq!(stand.inbox.receive_in(&mut tx, &envelope(id)).await.unwrap(), Received::Kept);
        assert!(claim(&stand.store, 9).await.is_empty());
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    let taken = claim(&stand.store, 9).await;
    assert_eq!(taken.iter().map(|(row, _)| id(row)).collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn r12_a_commit_proves_the_completion() {
    let Some(stand) = stand().await else { return };
    let lease = leased(&stand, "good").await;
    completed(&stand.inbox, lease).await.commit().await.unwrap();
    assert_eq!(state(&stand.inbox, "good").await, State::Done);

    let lease = leased(&stand, "swallowed").await;
    let mut tx = completed(&stand.inbox, lease).await;
    assert!(try_run(&mut tx, "SELECT 1/0").await.is_err());
    assert_eq!(kind(tx.commit().await), ErrorKind::Aborted);
    assert_eq!(state(&stand.inbox, "swallowed").await, State::Pending);

    for ended in ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"] {
        let lease = leased(&stand, ended).await;
        let mut tx = completed(&stand.inbox, lease).await;
        run(&mut tx, ended).await;
        effect(&mut tx).await;
        assert_eq!(kind(tx.commit().await), ErrorKind::TransactionLost, "{ended}");
    }
}

#[tokio::test]
async fn r12_a_rollback_tells_a_completion_that_was_committed_by_sql() {
    let Some(stand) = stand().await else { return };
    let lease = leased(&stand, "good").await;
    completed(&stand.inbox, lease).await.rollback().await.unwrap();
    let renewed = stand.store.renew(&Renew::new(&consumer(), &[lease], LEASE)).await.unwrap();
    assert_eq!(renewed, [Renewal::Renewed]);

    // What a failing handler leaves, as a rule.
    let mut tx = completed(&stand.inbox, lease).await;
    assert!(try_run(&mut tx, "SELECT 1/0").await.is_err());
    tx.rollback().await.unwrap();

    for (place, ended) in ["COMMIT", "COMMIT; BEGIN", "COMMIT; BEGIN; SELECT 1/0"].into_iter().enumerate() {
        let lease = leased(&stand, &format!("m-{place}")).await;
        let mut tx = completed(&stand.inbox, lease).await;
        let _ = try_run(&mut tx, ended).await;
        assert_eq!(kind(tx.rollback().await), ErrorKind::TransactionLost, "{ended}");
    }
}

#[tokio::test]
async fn d03_completing_restores_the_lock_timeout_and_waits_no_longer_than_the_store() {
    let Some(stand) = stand().await else { return };
    let lease = leased(&stand, "m").await;
    let holder = completed(&stand.inbox, lease).await;
    let hasty = Inbox::new(stand.store.clone().with_wait(Duration::from_millis(1)), consumer());
    let mut tx = hasty.begin().await.unwrap();
    assert_eq!(kind(tx.complete(&[lease]).await), ErrorKind::Busy);
    drop(tx);
    let renewed = stand.store.renew(&Renew::new(&consumer(), &[lease], LEASE)).await.unwrap();
    assert_eq!(renewed, [Renewal::Locked]);
    assert_eq!(
        kind(hasty.store().fail(&Fail::new(&consumer(), lease, None, "\"e\"")).await),
        ErrorKind::Busy
    );
    holder.rollback().await.unwrap();

    let mut tx = completed(&stand.inbox, lease).await;
    assert_eq!(crate::stand::show(&mut tx, "lock_timeout").await, "0");
}

/// Another transaction has changed a row, but the statement began before that was committed.
#[tokio::test]
async fn d02_a_claim_goes_through_beside_a_change_whatever_level_sessions_begin_at() {
    let Some(stand) = stand().await else { return };
    for level in ["read committed", "repeatable read", "serializable"] {
        receive(&stand.inbox, level).await;
        let inbox = stand.inbox_with(&[("default_transaction_isolation", level)], 1).await;
        let backend = pid(&mut inbox.store().pool().acquire().await.unwrap()).await;
        // Prepared, and what is due given back.
        let (_, lease) = claim(inbox.store(), 1).await.remove(0);
        inbox.store().release(&Release::new(&consumer(), &[lease])).await.unwrap();

        let mut other = stand.pool.begin().await.unwrap();
        run(&mut other, "LOCK TABLE inbox_messages; UPDATE inbox_messages SET due_at = due_at").await;
        let changed = async {
            stand.until_waiting(backend).await;
            other.commit().await.unwrap();
        };
        let (taken, ()) = tokio::join!(claim(inbox.store(), 9), changed);
        assert_eq!(taken.iter().map(|(row, _)| id(row)).collect::<Vec<_>>(), [level]);

        let lease = taken[0].1;
        let mut other = stand.pool.begin().await.unwrap();
        run(&mut other, "UPDATE inbox_messages SET due_at = due_at WHERE lease_token IS NOT NULL").await;
        let changed = async {
            stand.until_waiting(backend).await;
            other.commit().await.unwrap();
        };
        let consumer = consumer();
        let fail = Fail::new(&consumer, lease, None, "\"e\"");
        let (failed, ()) = tokio::join!(inbox.store().fail(&fail), changed);
        failed.unwrap();
    }
}

#[tokio::test]
async fn d02_two_workers_claim_all_whatever_level_sessions_begin_at() {
    let Some(stand) = stand().await else { return };
    for level in ["repeatable read", "serializable"] {
        for number in 0..60 {
            receive(&stand.inbox, &format!("{level}-{number}")).await;
        }
        let inbox = stand.inbox_with(&[("default_transaction_isolation", level)], 4).await;
        let worker = async || {
            let mut taken = 0;
            loop {
                let leases: Vec<Lease> =
                    claim(inbox.store(), 3).await.into_iter().map(|(_, lease)| lease).collect();
                taken += leases.len();
                for lease in &leases {
                    inbox.store().fail(&Fail::new(&consumer(), *lease, None, "\"e\"")).await.unwrap();
                }
                if leases.is_empty() {
                    return taken;
                }
            }
        };
        let (one, other) = tokio::join!(worker(), worker());
        assert_eq!(one + other, 60, "{level}");
    }
}

#[tokio::test]
async fn d03_completing_goes_on_after_a_change_that_it_waited_for() {
    let Some(stand) = stand().await else { return };
    for (change, held) in [("due_at = now()", true), ("lease_token = '\\x00'", false)] {
        let leases = [leased(&stand, change).await];
        let mut other = stand.pool.begin().await.unwrap();
        let change = format!("UPDATE inbox_messages SET {change} WHERE sequence = {}", leases[0].sequence);
        run(&mut other, &change).await;
        let mut tx = stand.inbox.begin().await.unwrap();
        let backend = pid(&mut tx).await;
        let changed = async {
            stand.until_waiting(backend).await;
            other.commit().await.unwrap();
        };
        let (completed, ()) = tokio::join!(tx.complete(&leases), changed);
        assert_eq!(completed.unwrap(), [held]);
    }
}

async fn watch(inbox: &Inbox<PostgresStore>) -> Box<dyn Watch> {
    inbox.store().watch(inbox.consumer()).await.unwrap().expect("PostgreSQL tells")
}

async fn told(watch: &mut Box<dyn Watch>) {
    tokio::time::timeout(PATIENCE, watch.changed()).await.expect("news").unwrap();
}

/// Whether there is news already. The server delivers what was committed before with the next answer, so
/// a marker that comes later ends the wait.
async fn next_payload(stand: &Stand) -> sqlx::postgres::PgListener {
    let mut listener = sqlx::postgres::PgListener::connect_with(&stand.pool).await.unwrap();
    listener.listen("public.inbox_messages").await.unwrap();
    listener
}

#[tokio::test]
async fn a_commit_wakes_the_watcher_and_a_rollback_does_not() {
    let Some(stand) = stand().await else { return };
    let mut watch = watch(&stand.inbox).await;
    let mut listener = next_payload(&stand).await;
    let mut tx = stand.pool.begin().await.unwrap();
    stand.inbox.receive_in(&mut tx, &envelope("rolled back")).await.unwrap();
    tx.rollback().await.unwrap();
    // Neither does one that is not due yet.
    stand.inbox.receive(&envelope("later").delayed(LEASE)).await.unwrap();
    // A batch tells once.
    stand.inbox.receive_batch(&[envelope("m-1"), envelope("m-2")]).await.unwrap();
    told(&mut watch).await;
    stand.sql("NOTIFY \"public.inbox_messages\", 'the end'").await;

    let mut payloads = Vec::new();
    while payloads.last().is_none_or(|last| last != "the end") {
        payloads.push(listener.recv().await.unwrap().payload().to_owned());
    }
    assert_eq!(payloads, ["loyalty", "the end"]);
}

#[tokio::test]
async fn a_replay_wakes_the_watcher_of_its_consumer_only() {
    let Some(stand) = stand().await else { return };
    let lease = leased(&stand, "m").await;
    stand.store.fail(&Fail::new(&consumer(), lease, None, "\"e\"")).await.unwrap();
    let mut ours = watch(&stand.inbox).await;
    let mut theirs = watch(&Inbox::new(stand.store.clone(), Consumer::new("other").unwrap())).await;
    assert_eq!(stand.inbox.replay(&Filter::state(State::Dead)).await.unwrap(), 1);
    told(&mut ours).await;
    stand.sql("NOTIFY \"public.inbox_messages\", 'other'").await;
    told(&mut theirs).await;
}

#[tokio::test]
async fn a_watcher_whose_connection_is_killed_says_so_and_watches_on() {
    let Some(stand) = stand().await else { return };
    let mut watch = watch(&stand.inbox).await;
    let listeners = "SELECT pid::bigint FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let pid = i32::try_from(stand.ask(listeners).await).unwrap();
    stand.kill(pid).await;
    told(&mut watch).await;
    receive(&stand.inbox, "m").await;
    told(&mut watch).await;
}

#[tokio::test]
async fn without_notifications_nobody_is_told() {
    let Some(stand) = stand().await else { return };
    let quiet = Inbox::new(stand.store.clone().with_notifications(false), consumer());
    assert!(quiet.store().watch(quiet.consumer()).await.unwrap().is_none());
    let mut listener = next_payload(&stand).await;
    receive(&quiet, "m").await;
    stand.sql("NOTIFY \"public.inbox_messages\", 'the end'").await;
    assert_eq!(listener.recv().await.unwrap().payload(), "the end");
}

#[tokio::test]
async fn the_message_grants_let_a_role_receive_and_work_and_nothing_else() {
    let Some(stand) = stand().await else { return };
    let app = stand.role("app").await;
    let role = Identifier::new(&*app).unwrap();
    stand.sql(&grants(stand.store.table(), &role)).await;
    let inbox = stand.inbox_with(&[("role", &app)], 2).await;
    let refused = inbox.store().verify_messages().await.expect_err("no rights yet").to_string();
    assert!(refused.contains("message_grants"), "{refused}");
    assert_eq!(kind(inbox.receive(&envelope("m")).await), ErrorKind::Schema);

    stand.sql(&message_grants(stand.store.table(), &role)).await;
    inbox.store().verify_messages().await.unwrap();
    receive(&inbox, "m").await;
    let lease = claim(inbox.store(), 1).await[0].1;
    inbox.store().fail(&Fail::new(&consumer(), lease, Some(Duration::ZERO), "\"e\"")).await.unwrap();
    let lease = claim(inbox.store(), 1).await[0].1;
    assert_eq!(inbox.store().release(&Release::new(&consumer(), &[lease])).await.unwrap(), 1);
    let lease = claim(inbox.store(), 1).await[0].1;
    completed(&inbox, lease).await.commit().await.unwrap();
    inbox.message_counts(10).await.unwrap();
    assert_eq!(inbox.replay(&Filter::state(State::Done)).await.unwrap(), 1);
    for forbidden in ["DELETE FROM inbox_messages", "UPDATE inbox_messages SET payload = ''"] {
        let mut conn = inbox.store().pool().acquire().await.unwrap();
        assert!(try_run(&mut conn, forbidden).await.is_err(), "{forbidden}");
    }
    drop(inbox);
    stand.sql(&format!("DROP OWNED BY {app}; DROP ROLE {app}")).await;
}

#[tokio::test]
async fn unprepared_nothing_is_kept_on_the_connection() {
    let Some(stand) = stand().await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    let inbox = Inbox::new(inbox.store().clone().unprepared(), consumer());
    receive(&inbox, "m").await;
    let lease = claim(inbox.store(), 1).await[0].1;
    inbox.store().renew(&Renew::new(&consumer(), &[lease], LEASE)).await.unwrap();
    completed(&inbox, lease).await.commit().await.unwrap();
    inbox.replay(&Filter::state(State::Done)).await.unwrap();
    inbox.message_counts(10).await.unwrap();
    assert!(inbox.store().watch(inbox.consumer()).await.unwrap().is_none());
    let kept: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%inbox_messages\" %'",
    )
    .persistent(false)
    .fetch_one(inbox.store().pool())
    .await
    .unwrap();
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn without_the_table_the_error_says_what_to_run() {
    let Some(stand) = Stand::new().await else { return };
    let error: Error = stand.inbox.receive(&envelope("m")).await.expect_err("no table");
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("create_message_schema"), "{error}");
    assert_eq!(stand.registered().await, 0);
}
