//! D2: a claim takes what is due, each message once, by the database's clock.

use std::time::{Duration, SystemTime};

use inbox_core::{State, StoredMessage, micros_of};

use super::deferred::{
    LEASE, PART, assert_leased, assert_nothing_due, claim, claim_one, counts, envelope, ids, kept, receive,
    take,
};
use super::{cases, drop_after, until};
use crate::suite::deferred::keeper::{Take, TestKeeper};

/// Claims until nothing is left, a few at a time.
async fn claim_all(keeper: &dyn TestKeeper) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let claimed = claim(keeper, take(3)).await;
        if claimed.is_empty() {
            return all;
        }
        assert!(claimed.len() <= 3, "more than the limit: {:?}", ids(&claimed));
        all.extend(ids(&claimed));
    }
}

cases! {
    /// A claim counts the attempt, leases the row for as long as it says, and answers with the row as it
    /// is now, payload included; the same is committed.
    once(Deferred) fn d02_claim_leases_and_counts(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        let answered = StoredMessage::try_from(claimed.row).expect("the row is sound");
        assert_eq!((answered.state, answered.leased, answered.attempts), (State::Pending, true, 1));
        assert_eq!(answered.payload, b"payload of m-1");
        let lease = answered.due_at.duration_since(answered.received_at).expect("later than received");
        assert!(lease >= LEASE && lease < LEASE + Duration::from_secs(60), "{lease:?}");
        assert_eq!(kept(&*keeper, "m-1").await, answered, "the answer is what is committed");
        assert_nothing_due(&*keeper, "it is leased").await;
    }

    /// Claimers at the same time get different messages, and together all of them, each once (B47, B57):
    /// look for a SELECT whose lock ends before the UPDATE, or for a claim that waits for others' rows
    /// and takes them a second time.
    once(Deferred) fn d02_b57_claimers_at_once_share_the_messages_out(stage) {
        let keeper = stage.keeper("billing");
        let texts: Vec<String> = (0..40).map(|n| format!("m-{n:02}")).collect();
        receive(&*keeper, texts.iter().map(|text| envelope(text))).await;
        let again = || claim_all(&*keeper);
        let (a, b, c, d) = tokio::join!(again(), again(), again(), again());
        let mut all = [a, b, c, d].concat();
        all.sort();
        assert_eq!(all, texts);
    }

    /// A claim of one takes one (B46), and leaves the others to others.
    once(Deferred) fn d02_b46_claim_takes_no_more_than_its_limit(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, (0..20).map(|n| envelope(&format!("m-{n}")))).await;
        assert_eq!(claim(&*keeper, take(1)).await.len(), 1);
        assert_eq!(claim(&*keeper, take(100)).await.len(), 19);
    }

    /// A claim takes its own consumer's messages.
    once(Deferred) fn d02_claims_of_consumers_are_independent(stage) {
        let (billing, audit) = (stage.keeper("billing"), stage.keeper("Billing"));
        receive(&*billing, [envelope("m-1")]).await;
        assert_nothing_due(&*audit, "it is another consumer's").await;
        receive(&*audit, [envelope("m-2")]).await;
        assert_eq!(claim_one(&*billing).await.id(), "m-1");
        assert_eq!(claim_one(&*audit).await.id(), "m-2");
    }

    /// What has been due longest is taken first, whatever was received first.
    once(Deferred, Clock) fn d02_longest_due_is_first(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1").delayed(PART), envelope("m-2")]).await;
        stage.advance_clock(PART + LEASE).await;
        receive(&*keeper, [envelope("m-3")]).await;
        for expected in ["m-2", "m-1", "m-3"] {
            assert_eq!(ids(&claim(&*keeper, take(1)).await), [expected]);
        }
    }

    /// A delay ends when the database's clock says so, not before.
    once(Deferred, Clock) fn d02_delayed_waits_for_the_databases_clock(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1").delayed(LEASE)]).await;
        assert_nothing_due(&*keeper, "its hour has not passed").await;
        stage.advance_clock(PART).await;
        assert_nothing_due(&*keeper, "its hour has not passed").await;
        stage.advance_clock(LEASE - PART).await;
        assert_eq!(claim_one(&*keeper).await.id(), "m-1");
    }

    /// A time of the sender's is compared with the database's clock, to the microsecond: of the claim's
    /// own time, which its lease shows, none is earlier.
    once(Deferred, Clock) fn d02_not_before_is_compared_with_the_databases_clock(stage) {
        let keeper = stage.keeper("billing");
        let (soon, later) = (SystemTime::now() + LEASE, SystemTime::now() + 3 * LEASE);
        receive(&*keeper, [envelope("soon").not_before(soon), envelope("later").not_before(later)]).await;
        assert_nothing_due(&*keeper, "it is due in an hour").await;
        stage.advance_clock(2 * LEASE).await;
        let claimed = claim_one(&*keeper).await;
        assert_eq!(claimed.id(), "soon");
        let claimed_at = claimed.row.due_at - i64::try_from(LEASE.as_micros()).expect("an hour");
        assert!(claimed_at >= micros_of(soon) && claimed_at < micros_of(later), "{claimed_at}");
    }

    /// Only the database's clock counts (B86): days ahead of the process, it dates what is received, ends
    /// delays and leases, and a time that lies ahead of the process is past.
    once(Deferred, Clock) fn d02_b86_the_processs_clock_plays_no_part(stage) {
        const DAY: Duration = Duration::from_secs(86_400);
        let keeper = stage.keeper("billing");
        stage.advance_clock(10 * DAY).await;
        let process = SystemTime::now();
        receive(&*keeper, [envelope("m-1").not_before(process + 5 * DAY)]).await;
        let claimed = StoredMessage::try_from(claim_one(&*keeper).await.row).expect("the row is sound");
        for time in [claimed.received_at, claimed.state_since, claimed.due_at] {
            assert!(time > process + 9 * DAY && time < process + 11 * DAY, "{time:?}, not {process:?}");
        }
        stage.advance_clock(LEASE).await;
        assert_eq!(claim_one(&*keeper).await.row.attempts, 2, "the lease ran out by the database's clock");
    }

    /// A claim that is dropped at any of its awaits leaves no transaction open (R17), and loses no message:
    /// what it leased is claimed again when the lease has run out.
    once(Deferred, Clock, OpenTransactions) fn d02_dropped_claim_leaves_nothing_open(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, (0..24).map(|n| envelope(&format!("m-{n}")))).await;
        let one = take(1);
        for place in 0..24 {
            drop(drop_after(place, keeper.claim(&one)).await);
            until("no transaction is open", async || stage.open_transactions().await == 0).await;
        }
        stage.advance_clock(LEASE).await;
        assert_eq!(claim(&*keeper, take(100)).await.len(), 24);
        assert_eq!(counts(&*keeper).await, [24, 0, 0]);
    }

    /// A claim takes rows that were committed after later ones were (B57): look for a claim that remembers
    /// the last sequence it has seen.
    once(Deferred, OpenTogether) fn d02_late_commit_of_an_earlier_row_is_not_skipped(stage) {
        let keeper = stage.keeper("billing");
        let mut early = keeper.begin().await.expect("begin");
        early.receive(&envelope("m-1")).await.expect("receive");
        receive(&*keeper, [envelope("m-2")]).await;
        assert_eq!(claim_one(&*keeper).await.id(), "m-2");
        early.commit().await.expect("commit");
        assert_eq!(claim_one(&*keeper).await.id(), "m-1");
    }

    /// A lease as long as any can be asked for is no error, and one of no time runs out at once.
    once(Deferred) fn d02_extreme_leases_are_no_error(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1"), envelope("m-2")]).await;
        let claimed = claim(&*keeper, Take { lease: Duration::MAX, ..take(1) }).await;
        assert_leased(&*keeper, &claimed[0].id(), 1).await;
        let no_time = Take { lease: Duration::ZERO, ..take(10) };
        for attempt in 1..=3 {
            let claimed = claim(&*keeper, no_time).await;
            assert_eq!(claimed.len(), 1, "attempt {attempt}");
            assert_eq!(claimed[0].row.attempts, attempt);
        }
    }
}
