//! The side connection that bounds MySQL's waits exactly (R6). On MariaDB it is never used.

use std::time::Duration;

use inbox_core::{ErrorKind, Inbox, InboxStore, Register, Registration};
use inbox_mysql::MySqlStore;
use inbox_testkit::servers::MySqlWanted;
use sqlx::mysql::MySqlPoolOptions;

use crate::stand::{Stand, consumer, message, run, session, show, source_number};

const INTERRUPTED: u16 = 1317;
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Far below the second that MySQL's own bound is then. Not beyond a second: what is left when a slow
/// machine comes to the wait would be less than one, and the two bounds would lie together.
const BELOW_A_SECOND: Duration = Duration::from_millis(100);

/// The stand's inbox with a side pool of one connection.
async fn with_side(stand: &Stand, wait: Duration) -> Inbox<MySqlStore> {
    let side = MySqlPoolOptions::new().max_connections(1).connect(stand.database.url()).await.unwrap();
    let store = stand.store.clone().with_side_pool(side).with_wait(wait);
    Inbox::new(store, consumer())
}

#[tokio::test]
async fn r06_a_wait_ends_between_two_seconds() {
    let Some(stand) = Stand::shared(MySqlWanted::MySql).await else { return };
    let inbox = with_side(&stand, BELOW_A_SECOND).await;
    let mut holder = stand.inbox.begin().await.unwrap();
    holder.register_if_new(&message("m-1")).await.unwrap();

    let mut tx = stand.pool.begin().await.unwrap();
    run(&mut tx, "SET innodb_lock_wait_timeout = 33").await;
    let (consumer, copy) = (consumer(), message("m-1"));
    let busy = inbox.store().register_if_new(&mut tx, &Register::new(&consumer, &copy)).await.unwrap_err();
    assert_eq!((busy.kind(), source_number(&busy)), (ErrorKind::Busy, Some(INTERRUPTED)), "{busy}");
    // Nothing is left of it: the setting, the statement and the next one are the caller's.
    assert_eq!(show(&mut tx, "@@innodb_lock_wait_timeout").await, "33");
    assert_eq!(show(&mut tx, "IFNULL(@inbox_wait, 'unset')").await, "unset");

    holder.commit().await.unwrap();
    let mut tx = inbox.begin().await.unwrap();
    assert!(!tx.register_if_new(&message("m-1")).await.unwrap().is_new());
}

#[tokio::test]
async fn r06_a_batch_that_waits_again_and_again_has_one_bound() {
    let Some(stand) = Stand::shared(MySqlWanted::MySql).await else { return };
    let inbox = with_side(&stand, 3 * BELOW_A_SECOND).await;
    let mut first = stand.inbox.begin().await.unwrap();
    first.register_if_new(&message("a")).await.unwrap();
    let mut second = stand.inbox.begin().await.unwrap();
    second.register_if_new(&message("b")).await.unwrap();

    let mut tx = inbox.begin().await.unwrap();
    let waiting = session(&mut tx).await;
    let batch = [message("a"), message("b"), message("c")];
    let release = async {
        stand.until_waiting(waiting).await;
        first.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(tx.register_batch(&batch), release);
    let busy = answer.unwrap_err();
    assert_eq!((busy.kind(), source_number(&busy)), (ErrorKind::Busy, Some(INTERRUPTED)), "{busy}");
    drop(tx);
    second.rollback().await.unwrap();
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_batch(&batch).await.unwrap().iter().all(Registration::is_new));
}

#[tokio::test]
async fn r06_where_no_side_connection_is_free_the_servers_own_bound_holds() {
    let Some(stand) = Stand::shared(MySqlWanted::MySql).await else { return };
    let side = MySqlPoolOptions::new().max_connections(1).connect(stand.database.url()).await.unwrap();
    let busy_elsewhere = side.acquire().await.unwrap();
    let store = stand.store.clone().with_side_pool(side).with_wait(BELOW_A_SECOND);
    let inbox = Inbox::new(store, consumer());
    let mut holder = stand.inbox.begin().await.unwrap();
    holder.register_if_new(&message("m-1")).await.unwrap();

    let mut tx = inbox.begin().await.unwrap();
    let busy = tx.register_if_new(&message("m-1")).await.unwrap_err();
    assert_eq!((busy.kind(), source_number(&busy)), (ErrorKind::Busy, Some(LOCK_WAIT_TIMEOUT)), "{busy}");
    drop(busy_elsewhere);
}

#[tokio::test]
async fn r06_a_side_connection_is_not_asked_while_nobody_waits() {
    let Some(stand) = Stand::shared(MySqlWanted::MySql).await else { return };
    // Connects nowhere.
    let side = MySqlPoolOptions::new().connect_lazy("mysql://127.0.0.1:1/none").unwrap();
    let inbox = Inbox::new(stand.store.clone().with_side_pool(side), consumer());
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m-1")).await.unwrap().is_new());
    assert!(!tx.register_if_new(&message("m-1")).await.unwrap().is_new());
    tx.register_batch(&[message("m-1"), message("m-2")]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(stand.registered().await, 2);
}

#[tokio::test]
async fn r06_no_wait_lets_a_statement_run_that_waits_for_nobody() {
    let Some(stand) = Stand::shared(MySqlWanted::MySql).await else { return };
    let inbox = with_side(&stand, Duration::ZERO).await;
    for id in ["m-1", "m-2", "m-3"] {
        let mut tx = inbox.begin().await.unwrap();
        assert!(tx.register_if_new(&message(id)).await.unwrap().is_new());
        tx.commit().await.unwrap();
    }
    let mut holder = stand.inbox.begin().await.unwrap();
    holder.register_if_new(&message("held")).await.unwrap();
    let mut tx = inbox.begin().await.unwrap();
    let busy = tx.register_if_new(&message("held")).await.unwrap_err();
    assert_eq!((busy.kind(), source_number(&busy)), (ErrorKind::Busy, Some(INTERRUPTED)), "{busy}");
}
