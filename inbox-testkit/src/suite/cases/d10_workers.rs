//! D10 and D6: a worker handles each message once, and stops without losing one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inbox_core::{IncidentKind, State};
use tokio::select;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::yield_now;

use super::deferred::{LEASE, counts, envelope, kept, receive};
use super::{cases, until};
use crate::suite::deferred::keeper::{Doing, Handling, Setup, Told};

/// What tells a worker to stop.
fn told() -> (oneshot::Sender<()>, Told) {
    let (sender, receiver) = oneshot::channel();
    let told = async { receiver.await.expect("the case tells it") };
    (sender, Some(Box::pin(told)))
}

async fn until_called(script: &Handling, times: usize) {
    until("the handler is called", async || script.calls() >= times).await;
}

/// The session that a handler noted.
fn session(seen: &str) -> Option<String> {
    seen.strip_prefix("session ").map(str::to_owned)
}

cases! {
    /// A worker handles everything that is pending, each message once, and says so.
    once(Deferred) fn d10_worker_handles_each_message_once(stage) {
        let keeper = stage.keeper("billing");
        let texts: Vec<String> = (0..20).map(|n| format!("m-{n:02}")).collect();
        receive(&*keeper, texts.iter().map(|text| envelope(text))).await;
        let script = Handling::effect();
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((report.done, script.calls()), (20, 20), "{report:?}");
        for text in &texts {
            assert_eq!(stage.effects(text).await, 1, "{text}");
        }
        assert_eq!(counts(&*keeper).await, [0, 20, 0]);
    }

    /// Two workers at once share the messages out, each once; what is received meanwhile is handled too.
    once(Deferred) fn d10_workers_at_once_share_the_messages_out(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, (0..10).map(|n| envelope(&format!("m-{n:02}")))).await;
        let script = Handling::effect();
        let setup = Setup::default();
        let ((stop, told_one), (stop_too, told_two)) = (told(), told());
        let workers = async {
            tokio::join!(keeper.work(&setup, told_one, &script), keeper.work(&setup, told_two, &script))
        };
        let meanwhile = async {
            until_called(&script, 1).await;
            receive(&*keeper, (10..20).map(|n| envelope(&format!("m-{n:02}")))).await;
            until("all are done", async || counts(&*keeper).await == [0, 20, 0]).await;
            let _ = (stop.send(()), stop_too.send(()));
        };
        let ((one, two), ()) = tokio::join!(workers, meanwhile);
        let (one, two) = (one.expect("work"), two.expect("work"));
        assert_eq!((one.done + two.done, script.calls()), (20, 20), "{one:?} {two:?}");
        for n in 0..20 {
            assert_eq!(stage.effects(&format!("m-{n:02}")).await, 1, "m-{n:02}");
        }
    }

    /// A batch is one transaction, and each of its messages is handled once.
    once(Deferred) fn d10_batches_handle_each_message_once(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, (0..10).map(|n| envelope(&format!("m-{n}")))).await;
        let script = Handling::effect();
        let setup = Setup { batch: Some(4), ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!((report.done, script.calls()), (10, 10), "{report:?}");
        for n in 0..10 {
            assert_eq!(stage.effects(&format!("m-{n}")).await, 1, "m-{n}");
        }
        assert_eq!(counts(&*keeper).await, [0, 10, 0]);
    }

    /// A message that fails does not condemn its batch: the others are done, their effects once (R18).
    once(Deferred) fn d06_failing_message_does_not_condemn_its_batch(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "bad", "c"].map(envelope)).await;
        let script = Handling::new(|m| if m.id().as_str() == "bad" { Doing::Fail } else { Doing::Effect });
        let setup = Setup { batch: Some(10), max_attempts: 1, ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!((report.done, report.dead), (2, 1), "{report:?}");
        assert_eq!((stage.effects("a").await, stage.effects("bad").await, stage.effects("c").await), (1, 0, 1));
    }

    /// A panic is a failed attempt with the panic's text; its effect is rolled back, the others go on.
    once(Deferred) fn d06_panicking_handler_stops_nobody(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "bad", "c"].map(envelope)).await;
        let script = Handling::new(|m| if m.id().as_str() == "bad" { Doing::Panic } else { Doing::Effect });
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((report.done, report.retried, report.dead), (2, 2, 1), "{report:?}");
        let message = kept(&*keeper, "bad").await;
        assert_eq!((message.state, message.history.len()), (State::Dead, 3));
        assert!(message.last_error().is_some_and(|error| error.contains("panic")), "{message:?}");
        assert_eq!(stage.effects("bad").await, 0);
    }

    /// A handler that takes longer than it may has failed, and is rolled back.
    once(Deferred) fn d06_handler_that_does_not_end_has_failed(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let script = Handling::new(|_| Doing::Hang);
        let timeout = Some(Duration::from_millis(50));
        let setup = Setup { handler_timeout: timeout, max_attempts: 2, ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!((report.retried, report.dead, script.calls()), (1, 1, 2), "{report:?}");
        let message = kept(&*keeper, "m-1").await;
        assert!(message.last_error().is_some_and(|error| error.contains("did not end")), "{message:?}");
        assert_eq!(stage.effects("m-1").await, 0);
    }

    /// A shutdown lets the handlers that run come to their end, claims nothing more, and leaves the rest as
    /// if it had never been claimed.
    once(Deferred) fn d10_shutdown_finishes_what_runs(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, (0..10).map(|n| envelope(&format!("m-{n}")))).await;
        let gate = Arc::new(Semaphore::new(0));
        let waits = Arc::clone(&gate);
        let script = Handling::new(move |_| Doing::EffectAt(Arc::clone(&waits)));
        let setup = Setup { concurrency: 2, ..Setup::default() };
        let (stop, told) = told();
        let meanwhile = async {
            until_called(&script, 1).await;
            stop.send(()).expect("the worker runs");
            yield_now().await;
            gate.add_permits(10);
        };
        let (report, ()) = tokio::join!(keeper.work(&setup, told, &script), meanwhile);
        let report = report.expect("work");
        let done = u32::try_from(report.done).expect("few");
        assert_eq!((report.done, report.retried), (script.calls() as u64, 0), "{report:?}");
        assert!((1..=2).contains(&done), "{report:?}");
        assert_eq!(counts(&*keeper).await, [10 - done, done, 0]);
        let mut effects = 0;
        for n in 0..10 {
            let message = kept(&*keeper, &format!("m-{n}")).await;
            effects += stage.effects(&format!("m-{n}")).await;
            let expected = if message.state == State::Done { 1 } else { 0 };
            assert_eq!((message.attempts, message.leased), (expected, false), "m-{n}");
        }
        assert_eq!(effects, i64::from(done));
    }

    /// When the grace is over, handlers that still run are rolled back and their attempt has failed, what
    /// has not begun is given back uncounted, and all of it is due at once.
    once(Deferred) fn d10_after_the_grace_what_runs_is_rolled_back(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, (0..6).map(|n| envelope(&format!("m-{n}")))).await;
        let script = Handling::new(|_| Doing::Hang);
        let setup = Setup { grace: Duration::ZERO, ..Setup::default() };
        let (stop, told) = told();
        let meanwhile = async {
            until_called(&script, 1).await;
            stop.send(()).expect("the worker runs");
        };
        let (report, ()) = tokio::join!(keeper.work(&setup, told, &script), meanwhile);
        let report = report.expect("work");
        assert_eq!((report.done, report.retried), (0, script.calls() as u64), "{report:?}");
        for n in 0..6 {
            let text = format!("m-{n}");
            let message = kept(&*keeper, &text).await;
            assert_eq!((message.state, message.leased), (State::Pending, false), "{text}");
            let failed = message.history.iter().filter(|one| one.kind == IncidentKind::Failed).count();
            assert_eq!(usize::try_from(message.attempts).expect("few"), failed, "{text}: {message:?}");
            assert_eq!(stage.effects(&text).await, 0);
        }
        let report = keeper.work(&Setup::default(), None, &Handling::effect()).await.expect("work");
        assert_eq!(report.done, 6, "{report:?}");
    }

    /// A worker that is dropped leaves no transaction open and no effect (R17); its leases run out, and
    /// each message is handled once by the next one.
    once(Deferred, Clock, OpenTransactions) fn d10_dropped_worker_leaves_its_leases_to_run_out(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "b", "c"].map(envelope)).await;
        // With every slot taken no claim is on its way when it is dropped, which would go on by itself.
        let (hanging, setup) = (Handling::new(|_| Doing::Hang), Setup { concurrency: 3, ..Setup::default() });
        select! {
            report = keeper.work(&setup, None, &hanging) => panic!("it hangs: {report:?}"),
            () = until_called(&hanging, 1) => {}
        }
        until("no transaction is open", async || stage.open_transactions().await == 0).await;
        assert_eq!(stage.effects("a").await, 0);
        stage.advance_clock(LEASE).await;
        let report = keeper.work(&setup, None, &Handling::effect()).await.expect("work");
        assert_eq!(report.done, 3, "{report:?}");
        assert!(report.taken_over >= 1, "{report:?}");
        for text in ["a", "b", "c"] {
            assert_eq!(stage.effects(text).await, 1, "{text}");
        }
    }

    /// The server ends every session in which a handler works: the worker goes on by itself. Each message is
    /// handled again under the same lease, and what comes afterwards as before.
    once(Deferred, Kill) fn d10_worker_goes_on_when_its_sessions_end(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "b", "c"].map(envelope)).await;
        let gate = Arc::new(Semaphore::new(0));
        let waits = Arc::clone(&gate);
        let script = Handling::new(move |_| Doing::SessionAt(Arc::clone(&waits)));
        let setup = Setup { concurrency: 3, ..Setup::default() };
        let (stop, told) = told();
        let meanwhile = async {
            let sessions = || script.seen().iter().filter_map(|seen| session(seen)).collect::<Vec<_>>();
            until("every handler works", async || sessions().len() == 3).await;
            for session in sessions() {
                stage.kill(&session).await;
            }
            gate.add_permits(7);
            until("all are done", async || counts(&*keeper).await == [0, 3, 0]).await;
            receive(&*keeper, [envelope("d")]).await;
            until("that is done too", async || counts(&*keeper).await == [0, 4, 0]).await;
            stop.send(()).expect("the worker runs");
        };
        let (report, ()) = tokio::join!(keeper.work(&setup, told, &script), meanwhile);
        let report = report.expect("work");
        assert_eq!((report.done, report.retried, script.calls()), (4, 0, 7), "{report:?}");
        for text in ["a", "b", "c", "d"] {
            assert_eq!((stage.effects(text).await, kept(&*keeper, text).await.attempts), (1, 1), "{text}");
        }
    }

    /// An error of the handler that says nothing about the message is run again as part of the attempt.
    once(Deferred) fn d05_error_of_the_moment_costs_no_attempt(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        let calls = AtomicUsize::new(0);
        let script = Handling::new(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Doing::Fail,
            _ => Doing::Effect,
        });
        let setup = Setup { retryable: true, ..Setup::default() };
        let report = keeper.work(&setup, None, &script).await.expect("work");
        assert_eq!((report.done, report.retried, script.calls()), (1, 0, 2), "{report:?}");
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.attempts, message.history.len(), stage.effects("m-1").await), (1, 0, 1));
    }

    /// A worker buries what earlier workers left without an attempt, and counts it.
    once(Deferred, Clock) fn d10_worker_reports_what_it_found_exhausted(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, ["a", "b"].map(envelope)).await;
        for _ in 0..3 {
            assert_eq!(super::deferred::claim(&*keeper, super::deferred::take(10)).await.len(), 2);
            stage.advance_clock(LEASE).await;
        }
        let script = Handling::effect();
        let report = keeper.work(&Setup::default(), None, &script).await.expect("work");
        assert_eq!((report.exhausted, report.dead, script.calls()), (2, 2, 0), "{report:?}");
        assert_eq!(counts(&*keeper).await, [0, 0, 2]);
    }
}
