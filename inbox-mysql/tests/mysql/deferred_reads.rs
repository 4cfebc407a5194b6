//! How many rows the deferred inbox's statements read, as the server counts them (D9).

use std::time::Duration;

use inbox_core::{AfterDead, Claim, Deferred, Inbox, MessageRow, OrderingKey, Unblock};
use inbox_mysql::MySqlStore;
use sqlx::Row;

use crate::deferred::with_messages;
use crate::stand::{Stand, consumer, on_each_server};

on_each_server![
    d09_a_claim_reads_as_many_rows_with_200_000_done_beside,
    d09_a_claim_in_order_reads_a_blocked_backlog_once_for_each_lease,
];

/// Rows in a state; `due` is when they are.
async fn fill(stand: &Stand, state: &str, count: u32, due: &str, key: &str) {
    stand
        .sql(&format!(
            "INSERT INTO inbox_messages (consumer, message_id, event_type, payload, headers, ordering_key, state,
                                         due_at, not_before, attempts, history, received_at, state_since)
             WITH digit (d) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
                                UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8
                                UNION ALL SELECT 9)
             SELECT 'loyalty', CONCAT('{state}-', a.d, b.d, c.d, e.d, f.d, g.d), 'PaymentConfirmed', 'x', '[]',
                    {key}, '{state}', {due}, {due}, 0, '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
             FROM digit AS a, digit AS b, digit AS c, digit AS e, digit AS f, digit AS g
             LIMIT {count}"
        ))
        .await;
}

/// Longer than filling a table takes.
const LEASE: Duration = Duration::from_secs(3600);

const DUE: &str = "UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE";
const NOT_YET: &str = "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR";

/// How many rows, and entries of indexes, the session of a pool of one connection has read so far.
async fn read_so_far(inbox: &Inbox<MySqlStore>) -> i64 {
    let show = sqlx::raw_sql("SHOW SESSION STATUS LIKE 'Handler\\_read%'");
    let rows = show.fetch_all(inbox.store().pool()).await.unwrap();
    rows.iter().map(|row| row.get_unchecked::<String, _>(1).parse::<i64>().unwrap()).sum()
}

/// How many of them a call reads.
async fn reads<T>(inbox: &Inbox<MySqlStore>, call: impl AsyncFnOnce() -> T) -> (i64, T) {
    let before = read_so_far(inbox).await;
    let of_looking = read_so_far(inbox).await - before;
    let before = read_so_far(inbox).await;
    let answer = call().await;
    (read_so_far(inbox).await - before - of_looking, answer)
}

async fn claim(inbox: &Inbox<MySqlStore>, limit: u32, order: Option<AfterDead>) -> Vec<MessageRow> {
    let consumer = consumer();
    let request = Claim::new(&consumer, LEASE, 5).limit(limit).order(order);
    inbox.store().claim(&request).await.unwrap()
}

async fn d09_a_claim_reads_as_many_rows_with_200_000_done_beside(stand: Stand) {
    let stand = with_messages(stand).await;
    let inbox = stand.inbox_on_one("DO 0").await;
    fill(&stand, "pending", 40, DUE, "NULL").await;
    claim(&inbox, 10, None).await;
    let (alone, claimed) = reads(&inbox, async || claim(&inbox, 10, None).await).await;
    assert_eq!(claimed.len(), 10);

    fill(&stand, "done", 200_000, DUE, "NULL").await;
    fill(&stand, "dead", 20_000, DUE, "NULL").await;
    fill(&stand, "pending", 20_000, NOT_YET, "NULL").await;
    stand.sql("ANALYZE TABLE inbox_messages").await;
    let (beside, claimed) = reads(&inbox, async || claim(&inbox, 10, None).await).await;
    assert_eq!(claimed.len(), 10);
    // More than are due: it must not go on to those that are not.
    let (last, claimed) = reads(&inbox, async || claim(&inbox, 500, None).await).await;
    assert_eq!(claimed.len(), 10);
    let (none, claimed) = reads(&inbox, async || claim(&inbox, 500, None).await).await;
    assert!(claimed.is_empty());
    let (count, counts) = reads(&inbox, async || inbox.message_counts(100).await.unwrap()).await;
    assert_eq!(counts.iter().map(|count| count.count).collect::<Vec<_>>(), [100, 100, 100]);
    // Each of the ten once to be locked, once to be changed, and once to be read.
    assert_eq!((alone, beside), (30, 30));
    // Where the clock did not bound the scan, these would read the 20,000.
    assert!(last <= 31 && none <= 1, "{last}, {none}");
    // A hundred of each state, written aside and counted, and the oldest of each.
    assert!(count <= 606, "{count}");
}

async fn d09_a_claim_in_order_reads_a_blocked_backlog_once_for_each_lease(stand: Stand) {
    let stand = with_messages(stand).await;
    let inbox = stand.inbox_on_one("DO 0").await;
    fill(&stand, "pending", 20_000, DUE, "'account-7'").await;
    stand.sql("ANALYZE TABLE inbox_messages").await;

    let (first, claimed) = reads(&inbox, async || claim(&inbox, 1, Some(AfterDead::Block)).await).await;
    assert_eq!(claimed.len(), 1);
    // A window of 200: each once to be locked, once or twice to be looked at with the first of its key, and once to
    // be postponed.
    assert!(first <= 805, "{first}");
    let postponed =
        "SELECT count(*) FROM inbox_messages WHERE lease_token IS NULL AND due_at > UTC_TIMESTAMP(6)";
    assert_eq!(stand.ask(postponed).await, 199);
    let (second, claimed) = reads(&inbox, async || claim(&inbox, 1, Some(AfterDead::Block)).await).await;
    assert!(claimed.is_empty());
    // Fifty windows at the most.
    assert_eq!(stand.ask(postponed).await, 10_199);
    assert!(second <= 40_250, "{second}");
    let (third, claimed) = reads(&inbox, async || claim(&inbox, 1, Some(AfterDead::Block)).await).await;
    assert!(claimed.is_empty());
    assert_eq!(stand.ask(postponed).await, 19_999);
    assert!(third <= 40_250, "{third}");
    let (fourth, _) = reads(&inbox, async || claim(&inbox, 1, Some(AfterDead::Block)).await).await;
    assert!(fourth <= 1, "{fourth}");

    stand.sql("UPDATE inbox_messages SET lease_token = NULL, state = 'done' WHERE sequence = 1").await;
    let key = [OrderingKey::new("account-7").unwrap()];
    let consumer = consumer();
    let unblock = async || inbox.store().unblock(&Unblock::new(&consumer, &key)).await.unwrap();
    let (unblocking, ()) = reads(&inbox, unblock).await;
    assert!(unblocking <= 2, "{unblocking}");
    let claimed = claim(&inbox, 1, Some(AfterDead::Block)).await;
    assert_eq!(claimed[0].sequence, 2);
}
