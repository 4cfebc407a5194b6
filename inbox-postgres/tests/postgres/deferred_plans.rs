//! How many rows the deferred inbox's statements read, by the server's own plans (D9).

use std::time::Duration;

use inbox_core::{
    AfterDead, Claim, Deferred, Fail, Filter, Inbox, Lease, OrderingKey, Release, Renew, State, Unblock,
};
use inbox_postgres::{PostgresStore, sqlx};
use sqlx::AssertSqlSafe;

use crate::deferred::{LEASE, receive, stand};
use crate::stand::{Stand, consumer, message, try_run};

/// Rows of a state beside those that are due; `due` is when they are.
async fn fill(stand: &Stand, state: &str, count: u32, due: &str, key: &str) {
    stand
        .sql(&format!(
            "INSERT INTO inbox_messages (consumer, message_id, event_type, payload, headers, ordering_key, state,
                                         due_at, not_before, received_at, state_since)
             SELECT 'loyalty', '{state}-' || number, 'PaymentConfirmed', 'x', '[]', {key}, '{state}',
                    {due}, {due}, now(), now()
             FROM generate_series(1, {count}) AS number"
        ))
        .await;
}

/// A table with so many done messages, and others that are no claim's business.
async fn filled(done: u32) -> Option<Stand> {
    let stand = stand().await?;
    fill(&stand, "done", done, "now() - interval '1 hour'", "NULL").await;
    fill(&stand, "dead", 20_000, "now() - interval '1 hour'", "NULL").await;
    fill(&stand, "pending", 20_000, "now() + interval '1 hour'", "NULL").await;
    stand.sql("ANALYZE inbox_messages").await;
    Some(stand)
}

/// The statement that this connection has prepared and that contains `part`, run once more.
async fn plan_of(inbox: &Inbox<PostgresStore>, part: &str, args: &str) -> Vec<String> {
    let pool = inbox.store().pool();
    let name: String = sqlx::query_scalar(
        "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%' || $1 || '%' AND statement NOT LIKE '%pg_prepared%'",
    )
    .bind(part)
    .fetch_one(pool)
    .await
    .expect("a prepared statement");
    let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE {name}({args})");
    sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_all(pool).await.expect("a plan")
}

/// How many rows of the table of messages a plan looked at: what its scans gave, and what they removed.
fn rows_read(plan: &[String]) -> f64 {
    let mut read = 0.0;
    let mut loops = 0.0;
    let mut of_table = false;
    for line in plan {
        let number = |after: &str| {
            let rest = &line[line.find(after)? + after.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            rest[..end].parse::<f64>().ok()
        };
        if line.contains("(actual") || line.contains("(never executed)") {
            of_table =
                line.contains("Scan") && line.contains("inbox_messages") && !line.contains("never executed");
            loops = number("loops=").unwrap_or(0.0);
            if of_table {
                read += number("rows=").expect("rows") * loops;
            }
        } else if of_table {
            read += number("Rows Removed by Filter: ").unwrap_or(0.0) * loops;
            read += number("Rows Removed by Index Recheck: ").unwrap_or(0.0) * loops;
        }
    }
    read
}

const TOKEN: &str = "'\\x00112233445566778899aabbccddeeff'";

#[tokio::test]
async fn d09_a_claim_reads_as_many_rows_with_200_000_done_beside() {
    let Some(stand) = filled(200_000).await else { return };
    for plans in ["force_custom_plan", "force_generic_plan"] {
        fill(&stand, "pending", 100, "now() - interval '1 minute'", "NULL").await;
        let inbox = stand.inbox_with(&[("plan_cache_mode", plans)], 1).await;
        inbox.store().claim(&Claim::new(&consumer(), LEASE, 5)).await.unwrap();
        // More than are due: where the clock did not bound the scan, it would go on to those that are not.
        let plan = plan_of(&inbox, "chosen AS", &format!("'loyalty', 200, {TOKEN}, 60000000, 5")).await;
        let read = rows_read(&plan);
        // Each of the 99 once to be chosen, and once to be changed.
        assert!((198.0..=250.0).contains(&read), "{read} rows read:\n{}", plan.join("\n"));
    }
}

#[tokio::test]
async fn d09_a_claim_in_order_reads_a_window_of_a_blocked_backlog_and_then_none() {
    let Some(stand) = filled(20_000).await else { return };
    fill(&stand, "pending", 20_000, "now() - interval '1 minute'", "'account-7'").await;
    stand.sql("ANALYZE inbox_messages").await;
    let inbox = stand.inbox_with(&[], 1).await;
    let consumer = consumer();
    let in_order = |limit| Claim::new(&consumer, LEASE, 5).limit(limit).order(Some(AfterDead::Block));
    let first = inbox.store().claim(&in_order(1)).await.unwrap();
    assert_eq!(first.len(), 1);

    // The first claim postponed its window, all but the message that it took, and so does each later one.
    let locked = plan_of(&inbox, "SELECT sequence%FOR UPDATE SKIP LOCKED", "'loyalty', 200").await;
    assert!(rows_read(&locked) <= 200.0, "{}", locked.join("\n"));
    let postponed = "SELECT count(*) FROM inbox_messages
                     WHERE ordering_key IS NOT NULL AND lease_token IS NULL AND due_at > clock_timestamp()";
    assert_eq!(stand.ask(postponed).await, 199);
    let sequences = "(SELECT array_agg(sequence) FROM (SELECT sequence FROM inbox_messages
                      WHERE ordering_key IS NOT NULL AND state = 'pending' AND due_at < now()
                      ORDER BY due_at, sequence LIMIT 200) AS due)";
    let sequences: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(format!("SELECT unnest({sequences})")))
        .fetch_all(&stand.pool)
        .await
        .unwrap();
    let array = sequences.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let args = format!("'loyalty', 1, {TOKEN}, 60000000, 5, '{{{array}}}', true");
    let looked = plan_of(&inbox, "postponed AS", &args).await;
    // Each of the window to be looked at, its predecessor, and itself again to be postponed.
    let read = rows_read(&looked);
    assert!(read <= 650.0, "{read} rows read:\n{}", looked.join("\n"));
}

#[tokio::test]
async fn counts_are_read_from_an_index_no_further_than_asked() {
    let Some(stand) = filled(20_000).await else { return };
    let inbox = stand.inbox_with(&[], 1).await;
    let counts = inbox.message_counts(100).await.unwrap();
    assert_eq!(counts.iter().map(|count| count.count).collect::<Vec<_>>(), [100, 100, 100]);
    let plan = plan_of(&inbox, "WITH states", "'loyalty', 100").await;
    let text = plan.join("\n");
    assert!(!text.contains("Seq Scan"), "{text}");
    let read = rows_read(&plan);
    // Up to a hundred of each state, and the oldest of each.
    assert!(read <= 303.0, "{read} rows read:\n{text}");
}

/// Has each statement prepared on the inbox's one connection, by a message or two.
async fn warm_up(inbox: &Inbox<PostgresStore>) {
    let (store, consumer) = (inbox.store(), consumer());
    let claimed = async |order| -> Lease {
        let claim = Claim::new(&consumer, LEASE, 9).order(order);
        let rows = store.claim(&claim).await.unwrap();
        Lease { sequence: rows[0].sequence, token: claim.token }
    };
    receive(inbox, "warm").await;
    let lease = claimed(None).await;
    store.renew(&Renew::new(&consumer, &[lease], LEASE)).await.unwrap();
    store.release(&Release::new(&consumer, &[lease])).await.unwrap();
    let lease = claimed(Some(AfterDead::Block)).await;
    store.fail(&Fail::new(&consumer, lease, Some(Duration::ZERO), "\"e\"")).await.unwrap();
    let key = OrderingKey::new("key-1").unwrap();
    store.unblock(&Unblock::new(&consumer, &[key])).await.unwrap();
    let lease = claimed(None).await;
    // An aborted transaction has the rows looked at.
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.complete(&[lease]).await.unwrap(), [true]);
    assert!(try_run(&mut tx, "SELECT 1/0").await.is_err());
    tx.rollback().await.unwrap();
    store.fail(&Fail::new(&consumer, lease, None, "\"e\"")).await.unwrap();
    assert_eq!(inbox.replay(&Filter::id(message("warm").id().clone())).await.unwrap(), 1);
    assert_eq!(inbox.messages(&Filter::id(message("warm").id().clone())).await.unwrap().messages.len(), 1);
    let lease = claimed(None).await;
    store.fail(&Fail::new(&consumer, lease, None, "\"e\"")).await.unwrap();
    assert_eq!(inbox.replay(&Filter::state(State::Dead)).await.unwrap(), 1);
    store.fail(&Fail::new(&consumer, claimed(None).await, None, "\"e\"")).await.unwrap();
}

/// 20,000 rows, of which none is due: done, and pending under the lease of [`TOKEN`].
async fn fill_unseen(stand: &Stand) {
    fill(stand, "done", 10_000, "now() - interval '1 hour'", "NULL").await;
    fill(stand, "pending", 10_000, "now() + interval '1 hour'", "'key-' || number").await;
    stand.sql(&format!("UPDATE inbox_messages SET lease_token = {TOKEN} WHERE state = 'pending'")).await;
}

/// Runs each statement once more for three leases, or ten messages, and says what read more.
async fn read_too_much(stand: &Stand, inbox: &Inbox<PostgresStore>) -> Vec<String> {
    fill(stand, "pending", 20, "now() - interval '1 hour'", "NULL").await;
    let of =
        |what: &str| format!("SELECT sequence FROM inbox_messages WHERE {what} ORDER BY sequence LIMIT 30");
    let leased: Vec<i64> =
        sqlx::query_scalar(AssertSqlSafe(of("lease_token IS NOT NULL AND state = 'pending'")))
            .fetch_all(&stand.pool)
            .await
            .unwrap();
    let due: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(of("lease_token IS NULL AND state = 'pending'")))
        .fetch_all(&stand.pool)
        .await
        .unwrap();
    let array = |sequences: &[i64]| {
        format!("'{{{}}}'", sequences.iter().map(i64::to_string).collect::<Vec<_>>().join(","))
    };
    let tokens = format!("ARRAY[{TOKEN}, {TOKEN}, {TOKEN}]::bytea[]");
    let leases = |from: usize| format!("'loyalty', {}, {tokens}", array(&leased[from..from + 3]));
    let mut too_much = Vec::new();
    for (name, part, args) in [
        ("renew", "renewed AS", format!("{}, 60000000", leases(0))),
        ("release", "attempts - 1", format!("{}, '1s'", leases(3))),
        ("complete", "completed AS", format!("{}, '1s', 'inbox.test'", leases(6))),
        ("fail", "\"failed\"", format!("'loyalty', {}, {TOKEN}, '1s', '\"e\"', NULL", leased[9])),
        ("done", "SELECT count(*)%= 'done'", format!("'loyalty', {}", array(&leased[6..9]))),
        ("unblock", "first AS", "'loyalty', '{key-11,key-12,key-13}', '1s'".to_owned()),
        (
            "replay by id",
            "message_id%replayed AS",
            "'loyalty', '1s', NULL, '{done-1,done-2,done-3}'".to_owned(),
        ),
        (
            "replay by state",
            "event_type%replayed AS",
            "'loyalty', '1s', NULL, 'done', NULL, NULL, 3".to_owned(),
        ),
        (
            "select by id",
            "headers%ORDER BY message.sequence",
            "'loyalty', '{done-4,done-5,done-6}'".to_owned(),
        ),
        ("lock", "SELECT sequence_FROM%SKIP LOCKED", "'loyalty', 10".to_owned()),
        (
            "claim in order",
            "postponed AS",
            format!("'loyalty', 10, {TOKEN}, 60000000, 5, {}, true", array(&due[..10])),
        ),
        ("claim", "FOR UPDATE SKIP LOCKED%taken AS", format!("'loyalty', 10, {TOKEN}, 60000000, 5")),
    ] {
        let plan = plan_of(inbox, part, &args).await;
        let read = rows_read(&plan);
        // Up to three looks at each of ten.
        if !(1.0..=36.0).contains(&read) {
            too_much.push(format!("{name} read {read} rows:\n{}", plan.join("\n")));
        }
    }
    too_much
}

#[tokio::test]
async fn d09_plans_made_before_a_burst_look_rows_up_without_any_statistics() {
    for plans in ["force_custom_plan", "force_generic_plan", "auto"] {
        let Some(stand) = stand().await else { return };
        stand.sql("ALTER TABLE inbox_messages SET (autovacuum_enabled = false)").await;
        let inbox = stand.inbox_with(&[("plan_cache_mode", plans)], 1).await;
        // As often as it takes the server to settle for a generic plan.
        for _ in 0..if plans == "auto" { 7 } else { 1 } {
            warm_up(&inbox).await;
            stand.sql("DELETE FROM inbox_messages; DELETE FROM inbox").await;
        }
        fill_unseen(&stand).await;
        let too_much = read_too_much(&stand, &inbox).await;
        assert!(too_much.is_empty(), "{plans}: {}", too_much.join("\n\n"));
    }
}

#[tokio::test]
async fn d09_rows_are_looked_up_with_the_statistics_of_an_empty_table() {
    for plans in ["force_custom_plan", "force_generic_plan"] {
        let Some(stand) = stand().await else { return };
        stand.sql("ALTER TABLE inbox_messages SET (autovacuum_enabled = false)").await;
        stand.sql("ANALYZE inbox_messages").await;
        fill_unseen(&stand).await;
        let inbox = stand.inbox_with(&[("plan_cache_mode", plans)], 1).await;
        warm_up(&inbox).await;
        let too_much = read_too_much(&stand, &inbox).await;
        assert!(too_much.is_empty(), "{plans}: {}", too_much.join("\n\n"));
    }
}
