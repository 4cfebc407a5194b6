//! What the statements read, by SQLite's own plans and counts (D9).

use std::sync::Arc;
use std::time::Duration;

use inbox_core::{AfterDead, Claim, Consumer, OrderingKey, TableName, Unblock};
use rusqlite::{Connection, StatementStatus};

use super::super::driver::at_once;
use crate::deferred::{claim, operate, settle};
use crate::statements::Statements;

const LEASE: Duration = Duration::from_secs(30);

/// Rows ?1 to ?2 of the table, each of a state, a due time and a key.
const FILL: &str = "
    WITH RECURSIVE numbers (n) AS (VALUES (?1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
    INSERT INTO inbox_messages (sequence, consumer, message_id, event_type, payload, headers, ordering_key, state,
                                due_at, not_before, attempts, history, received_at, state_since)
    SELECT n, 'loyalty', 'm-' || n, 'Paid', x'00', '[]', ?5, ?3, ?4, ?4, 0, '', 0, n FROM numbers";

const NONE: [i64; 0] = [];

/// Far in the future, in microseconds since 1970.
const LATER: i64 = 4_000_000_000_000_000;

fn set_up() -> (Connection, Statements) {
    let conn = Connection::open_in_memory().unwrap();
    super::super::connections::hold_statements(&conn);
    let sql = Statements::new(TableName::new("main", "inbox").unwrap());
    conn.execute_batch(&sql.messages.create_table).unwrap();
    (conn, sql)
}

fn fill(conn: &Connection, rows: std::ops::RangeInclusive<i64>, state: &str, due_at: i64, key: Option<&str>) {
    conn.execute(FILL, rusqlite::params![rows.start(), rows.end(), state, due_at, key]).unwrap();
}

/// 200,000 done, 20,000 dead, 20,000 that are not due yet.
fn fill_beside(conn: &Connection) {
    fill(conn, 1_000_001..=1_200_000, "done", 1, None);
    fill(conn, 1_200_001..=1_220_000, "dead", 1, Some("k"));
    fill(conn, 1_220_001..=1_240_000, "pending", LATER, None);
}

fn claim(conn: &Connection, sql: &Statements, limit: u32, order: Option<AfterDead>) -> Vec<i64> {
    let consumer = Consumer::new("loyalty").unwrap();
    let request = Claim::new(&consumer, LEASE, 5).limit(limit).order(order);
    let rows = at_once(claim::claim(&mut &*conn, sql, &request)).unwrap();
    rows.iter().map(|row| row.sequence).collect()
}

/// The steps of SQLite's machine that statements took since they were last asked.
fn steps(conn: &Connection, texts: &[&Arc<str>]) -> i64 {
    let of = |text: &&Arc<str>| {
        let statement = conn.prepare_cached(text).unwrap();
        assert_eq!(statement.reset_status(StatementStatus::FullscanStep), 0, "{text}");
        assert_eq!(statement.reset_status(StatementStatus::Sort), 0, "{text}");
        i64::from(statement.reset_status(StatementStatus::VmStep))
    };
    texts.iter().map(of).sum()
}

fn plan(conn: &Connection, text: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    // Its parameters stay unbound: only the plan is asked for.
    let lines = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    lines.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
}

#[test]
fn d09_a_claim_reads_as_many_rows_with_200_000_done_beside() {
    for order in [None, Some(AfterDead::Block), Some(AfterDead::Pass)] {
        let read = [false, true].map(|beside| {
            let (conn, sql) = set_up();
            fill(&conn, 1..=1000, "pending", 1, None);
            fill(&conn, 1001..=1010, "pending", 2, Some("k"));
            if beside {
                fill_beside(&conn);
            }
            assert_eq!(claim(&conn, &sql, 10, order), (1..=10).collect::<Vec<_>>());
            let messages = &sql.messages;
            let candidates = match order {
                None => &messages.candidates,
                Some(_) => &messages.candidates_in_order,
            };
            steps(&conn, &[candidates, &messages.claim, &messages.postpone])
        });
        assert_eq!(read[0], read[1], "{order:?}");
    }
}

#[test]
fn d09_an_empty_claim_reads_nothing_with_240_000_beside() {
    let (conn, sql) = set_up();
    fill_beside(&conn);
    for order in [None, Some(AfterDead::Block)] {
        assert_eq!(claim(&conn, &sql, 10, order), NONE);
    }
    let read = steps(&conn, &[&sql.messages.candidates, &sql.messages.candidates_in_order]);
    assert!(read < 200, "{read} steps");
}

#[test]
fn d09_what_is_blocked_is_read_once_and_then_not_before_it_is_looked_at_again() {
    let (conn, sql) = set_up();
    fill(&conn, 1..=1, "pending", LATER, Some("k"));
    fill(&conn, 2..=20_001, "pending", 1, Some("k"));
    fill(&conn, 20_002..=20_002, "pending", 2, Some("free"));
    let blocked_and_due = || -> i64 {
        let count = "SELECT count(*) FROM inbox_messages WHERE ordering_key = 'k' AND due_at = 1";
        conn.query_row(count, [], |row| row.get(0)).unwrap()
    };

    assert_eq!(claim(&conn, &sql, 1, Some(AfterDead::Block)), NONE);
    assert_eq!(blocked_and_due(), 10_000, "a claim looks at 50 windows of 200");
    assert_eq!(claim(&conn, &sql, 1, Some(AfterDead::Block)), NONE);
    assert_eq!(claim(&conn, &sql, 1, Some(AfterDead::Block)), [20_002]);
    steps(&conn, &[&sql.messages.candidates_in_order, &sql.messages.postpone]);
    assert_eq!(claim(&conn, &sql, 1, Some(AfterDead::Block)), NONE);

    let read = steps(&conn, &[&sql.messages.candidates_in_order, &sql.messages.postpone]);
    assert!(read < 200, "{read} steps");
}

#[test]
fn d07_with_dead_ones_of_its_key_beside_a_candidate_is_one_look() {
    let read = [false, true].map(|beside| {
        let (conn, sql) = set_up();
        if beside {
            fill(&conn, 1..=20_000, "dead", 1, Some("k"));
        }
        fill(&conn, 20_001..=20_001, "pending", 1, Some("k"));
        assert_eq!(claim(&conn, &sql, 1, Some(AfterDead::Pass)), [20_001]);
        steps(&conn, &[&sql.messages.candidates_in_order])
    });
    assert!(read[1] <= read[0] + 10, "{read:?}");
}

#[test]
fn every_statement_finds_its_rows_by_an_index() {
    let (conn, sql) = set_up();
    let messages = &sql.messages;
    for analyzed in [false, true] {
        if analyzed {
            fill_beside(&conn);
            conn.execute_batch("ANALYZE").unwrap();
        }
        for (text, index) in [
            (&messages.candidates, "inbox_messages_claim (consumer=? AND due_at<?)"),
            (&messages.candidates_in_order, "inbox_messages_claim (consumer=? AND due_at<?)"),
            (
                &messages.candidates_in_order,
                "inbox_messages_key (consumer=? AND ordering_key=? AND state=? AND rowid<?)",
            ),
            (&messages.unblock, "inbox_messages_key (consumer=? AND ordering_key=? AND state=?)"),
            (&messages.select_id, "inbox_messages_id (consumer=? AND message_id=?)"),
            (&messages.replay_id, "inbox_messages_id (consumer=? AND message_id=?)"),
            (&messages.select_in_state, "inbox_messages_state (consumer=? AND state=? AND state_since>"),
            (&messages.replay_in_state, "inbox_messages_state (consumer=? AND state=? AND state_since<?)"),
            (&messages.count, "COVERING INDEX inbox_messages_state (consumer=? AND state=?)"),
            (&messages.complete, "INTEGER PRIMARY KEY (rowid=?)"),
            (&messages.still_leased, "INTEGER PRIMARY KEY (rowid=?)"),
            (&messages.renew, "INTEGER PRIMARY KEY (rowid=?)"),
            (&messages.fail, "INTEGER PRIMARY KEY (rowid=?)"),
            (&messages.release, "INTEGER PRIMARY KEY (rowid=?)"),
            (&messages.claim, "INTEGER PRIMARY KEY (rowid=?)"),
            (&messages.postpone, "INTEGER PRIMARY KEY (rowid=?)"),
        ] {
            let plan = plan(&conn, text);
            assert!(plan.contains(index), "{text}\n{plan}");
            assert!(!plan.contains("SCAN inbox_messages"), "{text}\n{plan}");
        }
    }
}

#[test]
fn a_count_reads_no_further_than_it_is_told() {
    let (conn, sql) = set_up();
    fill_beside(&conn);
    let consumer = Consumer::new("loyalty").unwrap();
    let request = inbox_core::Count::new(&consumer, 1000);
    let counts = at_once(operate::count(&mut &conn, &sql, &request)).unwrap();
    assert_eq!(counts.iter().map(|count| count.count).collect::<Vec<_>>(), [1000; 3]);
    let statement = conn.prepare_cached(&sql.messages.count).unwrap();
    let steps = statement.get_status(StatementStatus::VmStep);
    assert!(steps < 30_000, "{steps}");
}

#[test]
fn d07_unblock_lets_the_first_of_a_key_go_on_and_no_other() {
    let (conn, sql) = set_up();
    fill(&conn, 1..=3, "pending", 1, Some("k"));
    conn.execute_batch("UPDATE inbox_messages SET due_at = 9000000000000000").unwrap();
    let consumer = Consumer::new("loyalty").unwrap();
    let keys = [OrderingKey::new("k").unwrap(), OrderingKey::new("none").unwrap()];

    at_once(settle::unblock(&mut &conn, &sql, &Unblock::new(&consumer, &keys))).unwrap();

    let due: String = conn
        .query_row("SELECT group_concat(sequence) FROM inbox_messages WHERE due_at = not_before", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(due, "1");
}
