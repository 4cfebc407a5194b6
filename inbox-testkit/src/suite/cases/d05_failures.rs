//! D5 and D6: failed attempts wait, then the message is dead; a damaged row stops nobody.

use std::time::Duration;

use inbox_core::{Backoff, Filter, IncidentKind, State, StoredMessage};

use super::deferred::{
    LEASE, PART, assert_nothing_due, claim, claim_one, counts, envelope, kept, receive, take,
};
use super::{cases, id, until};
use crate::suite::deferred::keeper::{Doing, Handling, Setup};

cases! {
    /// A failed attempt bears no lease any more, and its next one comes when its wait is over, by the
    /// database's clock.
    once(Deferred, Clock) fn d05_failed_waits_for_its_next_attempt(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        keeper.fail(claim_one(&*keeper).await.lease, Some(LEASE), "\"busy\"").await.expect("fail");
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.state, message.leased, message.attempts), (State::Pending, false, 1));
        assert_nothing_due(&*keeper, "it waits for its next attempt").await;
        stage.advance_clock(PART).await;
        assert_nothing_due(&*keeper, "it waits for its next attempt").await;
        stage.advance_clock(LEASE - PART).await;
        assert_eq!(claim_one(&*keeper).await.row.attempts, 2);
    }

    /// A failed attempt that is to be tried at once is due at once.
    once(Deferred) fn d05_failed_without_a_wait_is_due_at_once(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let claimed = claim_one(&*keeper).await;
        keeper.fail(claimed.lease, Some(Duration::ZERO), "\"busy\"").await.expect("fail");
        assert_eq!(claim_one(&*keeper).await.row.attempts, 2);
    }

    /// A dead message keeps the error of each attempt, whatever is in its text, and is never claimed again.
    once(Deferred) fn d05_dead_letter_tells_what_happened(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let errors = ["first", "it said \"no\\pe\"\n", "é😀'; --"];
        let json = ["\"first\"", r#""it said \"no\\pe\"\n""#, "\"é😀'; --\""];
        for (n, json) in json.iter().enumerate() {
            let retry_after = (n < 2).then_some(Duration::ZERO);
            keeper.fail(claim_one(&*keeper).await.lease, retry_after, json).await.expect("fail");
        }
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.state, message.leased, message.attempts), (State::Dead, false, 3));
        let history: Vec<_> =
            message.history.iter().map(|one| (one.kind, one.attempt, one.error.as_deref())).collect();
        let expected = [1, 2, 3].map(|n| (IncidentKind::Failed, n, Some(errors[n as usize - 1])));
        assert_eq!(history, expected);
        assert_eq!(message.last_error(), Some(errors[2]));
        for incident in &message.history {
            assert!(incident.at >= message.received_at && incident.at <= message.state_since + PART);
        }
        assert_nothing_due(&*keeper, "it is dead").await;
    }

    /// A worker's failed message is tried again when its backoff has passed by the database's clock.
    once(Deferred, Clock) fn d05_worker_tries_again_after_the_backoff(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let script = Handling::new(|message| if message.attempts == 1 { Doing::Fail } else { Doing::Effect });
        let setup = Setup { backoff: Backoff::new(LEASE, LEASE), ..Setup::default() };
        let run = keeper.work(&setup, None, &script);
        let advance = async {
            until("the first attempt has failed", async || kept(&*keeper, "m-1").await.history.len() == 1).await;
            stage.advance_clock(LEASE).await;
        };
        let (report, ()) = tokio::join!(run, advance);
        let report = report.expect("work");
        assert_eq!((report.retried, report.done, script.calls()), (1, 1, 2), "{report:?}");
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A worker's message that fails each time is dead after the attempts that it may have, with all its
    /// errors; no effect of it is left, and the others are handled.
    once(Deferred) fn d05_worker_gives_up_after_the_last_attempt(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "bad", "c"].map(envelope)).await;
        let script = Handling::new(|m| if m.id().as_str() == "bad" { Doing::Fail } else { Doing::Effect });
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((report.done, report.retried, report.dead), (2, 2, 1), "{report:?}");
        let message = kept(&*keeper, "bad").await;
        assert_eq!((message.state, message.attempts, message.history.len()), (State::Dead, 3, 3));
        assert!(message.last_error().is_some_and(|error| error.contains("as the case wants")));
        assert_eq!((stage.effects("bad").await, stage.effects("a").await, stage.effects("c").await), (0, 1, 1));
    }

    /// An error that says never to try again makes the message dead at once.
    once(Deferred) fn d05_never_retry_is_dead_at_once(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let script = Handling::new(|_| Doing::NeverRetry);
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((report.dead, report.retried, script.calls()), (1, 0, 1), "{report:?}");
        assert_eq!((kept(&*keeper, "m-1").await.state, stage.effects("m-1").await), (State::Dead, 0));
    }

    /// A row that somebody else has damaged is claimed like others, is reported as damaged, and hides no
    /// other (B79).
    once(Deferred, Sql) fn d06_b79_damaged_row_hides_no_other(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "bad", "c"].map(envelope)).await;
        damage(&*stage).await;
        let listing = keeper.messages(&Filter::state(State::Pending)).await.expect("messages");
        assert_eq!((listing.messages.len(), listing.damaged.len()), (2, 1), "{listing:?}");
        assert_eq!(listing.damaged[0].message_id, "bad");
        let claimed = claim(&*keeper, take(10)).await;
        assert_eq!(claimed.len(), 3);
        for one in claimed {
            let text = one.id();
            assert_eq!(StoredMessage::try_from(one.row).is_ok(), text != "bad", "{text}");
        }
    }

    /// A worker makes a damaged row a dead letter at once, with what is wrong in it, and handles the
    /// others; the row's bytes are kept, so that it can be mended and replayed (B79).
    once(Deferred, Sql) fn d06_b79_worker_sets_a_damaged_row_aside(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "bad", "c"].map(envelope)).await;
        damage(&*stage).await;
        let script = Handling::effect();
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((report.done, report.dead, script.calls()), (2, 1, 2), "{report:?}");
        assert_eq!(counts(&*keeper).await, [0, 2, 1]);
        let table = stage.messages_table();
        stage.execute(&format!("UPDATE {table} SET headers = '[]' WHERE message_id = 'bad'")).await;
        let message = kept(&*keeper, "bad").await;
        assert_eq!((message.state, &message.payload[..]), (State::Dead, &b"payload of bad"[..]));
        assert!(message.last_error().is_some_and(|error| error.contains("headers")), "{message:?}");
        assert_eq!(keeper.replay(&Filter::id(id("bad"))).await.expect("replay"), 1);
        keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!(stage.effects("bad").await, 1);
    }
}

/// Damages the row of the message `bad`, as another program may.
async fn damage(stage: &dyn crate::suite::stage::Stage) {
    let table = stage.messages_table();
    stage.execute(&format!("UPDATE {table} SET headers = '{{' WHERE message_id = 'bad'")).await;
}
