//! How many rows the deferred inbox's statements read, by the server's own plans (D9).

use inbox_core::{AfterDead, Claim, Deferred, Inbox};
use inbox_postgres::{PostgresStore, sqlx};
use sqlx::AssertSqlSafe;

use crate::deferred::{LEASE, stand};
use crate::stand::{Stand, consumer};

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
