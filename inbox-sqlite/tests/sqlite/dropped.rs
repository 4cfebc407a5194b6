//! Dropped futures and panics leave no open transaction and no half-made registration (R17, R18).
//!
//! What shows an open transaction is another connection that becomes the writer.

use std::sync::mpsc;

use inbox_core::{Begin, End, ErrorKind, Inbox, InboxStore, Transactional};
use inbox_sqlite::SqliteStore;
use tokio::sync::oneshot;

use crate::stand::{
    AppError, File, consumer, credit, credits, in_memory, inbox, is_registered, message, poll_once,
};

/// The store and a foreign connection can both become the writer, and "m" is not registered.
async fn assert_free(file: &File, store: &SqliteStore) {
    let tx = store.begin(None).await.unwrap();
    store.rollback(tx, End::new(&consumer(), &[])).await.unwrap();
    let foreign = file.foreign();
    tokio::task::spawn_blocking(move || foreign.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap())
        .await
        .unwrap();
    assert!(!is_registered(store, "m").await);
    assert_eq!(credits(store).await, 0);
}

#[tokio::test]
async fn r17_begin_dropped_after_any_number_of_polls() {
    let (file, store) = File::new().await;
    for polls in 0..6 {
        let mut begin = store.begin(None);
        for _ in 0..polls {
            if poll_once(&mut begin).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);
        assert_free(&file, &store).await;
    }
}

#[tokio::test]
async fn r17_begin_dropped_while_it_queues_in_the_store() {
    let (file, store) = File::new().await;
    let holder = store.begin(None).await.unwrap();
    let mut begin = store.begin(None);
    assert!(poll_once(&mut begin).await.is_none());
    drop(begin);
    store.rollback(holder, End::new(&consumer(), &[])).await.unwrap();
    assert_free(&file, &store).await;
}

#[tokio::test]
async fn r17_begin_dropped_while_sqlite_waits_for_another_process() {
    let (file, store) = File::new().await;
    let foreign = file.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut begin = store.begin(None);
    assert!(poll_once(&mut begin).await.is_none());
    drop(begin);
    foreign.execute_batch("ROLLBACK").unwrap();
    assert_free(&file, &store).await;
}

#[tokio::test]
async fn r17_a_call_dropped_before_it_is_polled_has_not_happened() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    drop(tx.call(|conn| conn.execute_batch("INSERT INTO points VALUES (1)")));
    tx.commit().await.unwrap();
    assert!(is_registered(&store, "m").await);
    assert_eq!(credits(&store).await, 0);
}

#[tokio::test]
async fn r17_a_call_dropped_while_its_closure_runs_condemns_the_transaction() {
    let (file, store) = File::new().await;
    let inbox = inbox(&store);
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    let (started, has_started) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel();

    let mut call = Box::pin(tx.call(move |conn| {
        conn.execute_batch("INSERT INTO points VALUES (1)")?;
        started.send(()).unwrap();
        may_go_on.recv().unwrap();
        Ok::<_, rusqlite::Error>(())
    }));
    assert!(poll_once(&mut call).await.is_none());
    has_started.await.unwrap();
    drop(call);
    let later: rusqlite::Result<()> = tx.call(|_| Ok(())).await;
    go_on.send(()).unwrap();

    assert!(later.unwrap_err().to_string().contains("cancelled"));
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Aborted);
    assert_free(&file, &store).await;
}

#[tokio::test]
async fn r17_register_dropped_after_any_number_of_polls() {
    let (file, store) = File::new().await;
    for polls in 0..4 {
        let mut tx = store.begin(None).await.unwrap();
        let (inbox, message) = (inbox(&store), message("m"));
        let mut register = Box::pin(inbox.register_if_new(&mut tx, &message));
        for _ in 0..polls {
            if poll_once(&mut register).await.is_some() {
                break;
            }
        }
        drop(register);
        drop(tx);
        assert_free(&file, &store).await;
    }
}

#[tokio::test]
async fn r17_commit_dropped_leaves_all_or_nothing() {
    for polls in 0..4 {
        let (file, store) = File::new().await;
        let mut tx = store.begin(None).await.unwrap();
        assert!(inbox(&store).register_if_new(&mut tx, &message("m")).await.unwrap().is_new());
        credit(&mut tx).await.unwrap();
        let (consumer, registered) = (consumer(), [message("m").id().clone()]);

        let mut commit = store.commit(tx, End::new(&consumer, &registered));
        for _ in 0..polls {
            if poll_once(&mut commit).await.is_some() {
                break;
            }
        }
        drop(commit);

        // The writer's turn comes when the commit has run to its end.
        let effects = credits(&store).await;
        assert_eq!(effects, i64::from(is_registered(&store, "m").await), "{polls} polls");
        assert!(polls > 0 || effects == 0);
        file.foreign().execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
    }
}

#[tokio::test]
async fn r17_process_dropped_inside_the_handler() {
    let (file, store) = File::new().await;
    let inbox = inbox(&store);
    let message = message("m");
    let mut process: std::pin::Pin<Box<dyn Future<Output = _>>> =
        Box::pin(inbox.process(&message, async |tx| {
            credit(tx).await?;
            std::future::pending::<Result<(), AppError>>().await
        }));
    let in_the_handler = async {
        // The handler has the writer once a begin without a wait is refused.
        while store.begin(Some(std::time::Duration::ZERO)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut process => unreachable!("the handler never ends"),
        () = in_the_handler => {}
    }
    drop(process);
    assert_free(&file, &store).await;
}

/// Runs a handler in a task and expects it to panic.
async fn panics(inbox: Inbox<SqliteStore>, in_call: bool) {
    let task = tokio::spawn(async move {
        inbox
            .process(&message("m"), async |tx| {
                credit(tx).await?;
                if !in_call {
                    panic!("in the handler");
                }
                tx.call(|_| -> Result<(), AppError> { panic!("in the call") }).await
            })
            .await
    });
    let panic = task.await.unwrap_err().into_panic();
    let text = panic.downcast_ref::<&str>().copied();
    assert_eq!(text, Some(if in_call { "in the call" } else { "in the handler" }));
}

#[tokio::test]
async fn r18_a_panic_rolls_back_and_goes_on() {
    let (file, store) = File::new().await;
    for in_call in [false, true] {
        panics(inbox(&store), in_call).await;
        assert_free(&file, &store).await;
    }
}

#[tokio::test]
async fn r18_a_caught_panic_of_a_call_leaves_the_transaction_condemned() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    tx = tokio::spawn(async move {
        let caught =
            CatchUnwind(Box::pin(tx.call(|_| -> rusqlite::Result<()> { panic!("in the call") }))).await;
        assert!(caught.is_err());
        tx
    })
    .await
    .unwrap();
    assert!(credit(&mut tx).await.is_err());
    let committed = store.commit(tx, End::new(&consumer(), &[])).await;
    assert_eq!(committed.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(credits(&store).await, 0);
}

struct CatchUnwind<F>(std::pin::Pin<Box<F>>);

impl<F: Future> Future for CatchUnwind<F> {
    type Output = std::thread::Result<F::Output>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let poll = std::panic::AssertUnwindSafe(|| self.0.as_mut().poll(context));
        match std::panic::catch_unwind(poll) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    }
}

#[tokio::test]
async fn an_in_memory_database_survives_condemned_transactions() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    store.condemn(&mut tx).await;
    drop(tx);
    assert_eq!(credits(&store).await, 0);
}
