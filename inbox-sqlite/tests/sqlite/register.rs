//! New, duplicate, mismatch; one by one, in batches, and many at once (R1 to R3, R10, R11).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use inbox_core::{
    BatchOutcome, Begin, Consumer, ErrorKind, Inbox, MessageId, Outcome, Registered, Registration,
};
use inbox_sqlite::SqliteStore;

use crate::stand::{AppError, File, count, credit, credits, in_memory, inbox, is_registered, message};

#[tokio::test]
async fn r02_a_duplicate_shows_the_original() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let before = SystemTime::now() - Duration::from_millis(1);

    let first = inbox.process(&message("m"), async |tx| credit(tx).await).await.unwrap();
    let again = inbox.process(&message("m"), async |tx| credit(tx).await).await.unwrap();

    assert_eq!(first, Outcome::Processed(()));
    let Outcome::Duplicate(original) = again else { panic!("{again:?}") };
    assert_eq!(original.event_type, "PaymentConfirmed");
    assert!(original.registered_at >= before && original.registered_at <= SystemTime::now());
    assert_eq!(credits(&store).await, 1);
}

#[tokio::test]
async fn r03_the_same_transaction_sees_its_own_registration() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let Registered::New(mut tx) =
        inbox.register(store.begin(None).await.unwrap(), &message("m")).await.unwrap()
    else {
        panic!("new")
    };
    assert!(matches!(tx.register_if_new(&message("m")).await.unwrap(), Registration::Duplicate(_)));
    tx.commit().await.unwrap();
    assert!(is_registered(&store, "m").await);
}

#[tokio::test]
async fn b71_consumers_are_independent_and_keys_are_not_joined() {
    let store = in_memory().await;
    for (name, id) in [("billing", "m"), ("mailing", "m"), ("ab", "c"), ("a", "bc")] {
        let inbox = Inbox::new(store.clone(), Consumer::new(name).unwrap());
        let outcome = inbox.process(&message(id), async |tx| credit(tx).await).await.unwrap();
        assert!(outcome.is_processed(), "{name} {id}");
    }
}

#[tokio::test]
async fn r07_ids_are_compared_byte_by_byte() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let ids = [
        "42",
        "042",
        "42 ",
        " 42",
        "4.2e1",
        "ä",
        "a\u{308}",
        "Ä",
        "ß",
        "ss",
        "\u{feff}42",
        "\u{ffff}",
        "\u{fffd}",
    ];
    for id in ids {
        let outcome = inbox.process(&message(id), async |tx| credit(tx).await).await.unwrap();
        assert!(outcome.is_processed(), "{id:?}");
    }
    for id in ids {
        assert!(is_registered(&store, id).await, "{id:?}");
    }
}

#[tokio::test]
async fn r11_another_payload_under_the_same_id_is_an_error() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let with = |payload: &[u8]| message("m").with_payload(payload);
    inbox.process(&with(b"1"), async |tx| credit(tx).await).await.unwrap();

    let mismatch = inbox.process(&with(b"2"), async |tx| credit(tx).await).await;
    let AppError::Inbox(error) = mismatch.unwrap_err() else { panic!("of the inbox") };
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    for same in [with(b"1"), message("m")] {
        let outcome = inbox.process(&same, async |tx| credit(tx).await).await.unwrap();
        assert!(!outcome.is_processed());
    }
    assert_eq!(credits(&store).await, 1);
}

#[tokio::test]
async fn b74_a_batch_answers_by_position() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    inbox.process(&message("b"), async |tx| credit(tx).await).await.unwrap();
    let batch = [message("d"), message("a"), message("b"), message("b"), message("a").with_payload(b"x")];

    let outcomes = inbox
        .process_batch(&batch, async |tx, new| {
            assert_eq!(new.iter().map(|message| message.id().as_str()).collect::<Vec<_>>(), ["d", "a"]);
            for _ in new {
                credit(tx).await?;
            }
            Ok::<_, AppError>(())
        })
        .await
        .unwrap();

    use BatchOutcome::{Duplicate, Processed};
    assert!(
        matches!(outcomes[..], [Processed, Processed, Duplicate(_), Duplicate(_), Duplicate(_)]),
        "{outcomes:?}"
    );
    assert_eq!(credits(&store).await, 3);
}

#[tokio::test]
async fn r10_a_mismatch_in_a_batch_is_an_answer_at_its_position() {
    let store = in_memory().await;
    let inbox = inbox(&store);
    let batch =
        [message("a").with_payload(b"1"), message("a").with_payload(b"2"), message("a").with_payload(b"1")];

    let mut tx = inbox.begin().await.unwrap();
    let answers = tx.register_batch(&batch).await.unwrap();
    tx.commit().await.unwrap();

    assert!(
        matches!(answers[..], [Registration::New, Registration::Mismatch(_), Registration::Duplicate(_)]),
        "{answers:?}"
    );
}

#[tokio::test]
async fn r10_a_batch_of_20000_ids_is_one_transaction() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let batch: Vec<_> = (0..20_000).map(|n| message(&format!("{n:x}"))).collect();

    for expected_new in [20_000, 0] {
        let mut tx = inbox.begin().await.unwrap();
        let answers = tx.register_batch(&batch).await.unwrap();
        assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), expected_new);
        tx.commit().await.unwrap();
    }
    assert_eq!(count(&store, "SELECT count(*) FROM inbox").await, 20_000);
}

#[tokio::test]
async fn an_empty_batch_is_no_error() {
    let store = in_memory().await;
    let mut tx = store.begin(None).await.unwrap();
    assert!(inbox(&store).register_batch(&mut tx, &[]).await.unwrap().is_empty());
}

/// B70, R1: as many deliveries as tasks, handlers counted outside of the database.
async fn one_effect_of_many_deliveries(stores: Vec<SqliteStore>) {
    let committed = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (inbox, committed) = (inbox(&stores[n % stores.len()]), Arc::clone(&committed));
            tokio::spawn(async move {
                let outcome = inbox.process(&message("m"), async |tx| credit(tx).await).await?;
                committed.fetch_add(u32::from(outcome.is_processed()), Ordering::Relaxed);
                Ok::<_, AppError>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(committed.load(Ordering::Relaxed), 1);
    assert_eq!(credits(&stores[0]).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b70_sixteen_deliveries_at_once_have_one_effect_in_memory() {
    one_effect_of_many_deliveries(vec![in_memory().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b70_sixteen_deliveries_at_once_have_one_effect_on_a_file() {
    let (_file, store) = File::new().await;
    one_effect_of_many_deliveries(vec![store]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b70_stores_of_several_processes_share_a_file() {
    let (file, store) = File::new().await;
    one_effect_of_many_deliveries(vec![store, file.store(), file.store(), file.store()]).await;
}

#[tokio::test]
async fn forget_makes_the_id_new_again_and_find_sees_committed_rows_only() {
    let (_file, store) = File::new().await;
    let inbox = inbox(&store);
    let id = MessageId::new("m").unwrap();
    let mut tx = inbox.begin().await.unwrap();
    assert!(tx.register_if_new(&message("m")).await.unwrap().is_new());
    assert_eq!(inbox.find(&id).await.unwrap(), None, "not committed yet");
    tx.commit().await.unwrap();

    assert!(inbox.find(&id).await.unwrap().is_some());
    assert!(inbox.forget(&id).await.unwrap());
    assert!(!inbox.forget(&id).await.unwrap());
    assert_eq!(inbox.find(&id).await.unwrap(), None);
}

#[tokio::test]
async fn without_a_table_the_error_says_create_schema() {
    let store = SqliteStore::in_memory().unwrap();
    let inbox = inbox(&store);
    let register = inbox.process(&message("m"), async |tx| credit(tx).await).await;
    let AppError::Inbox(register) = register.unwrap_err() else { panic!("of the inbox") };
    for error in [
        register,
        inbox.find(&MessageId::new("m").unwrap()).await.unwrap_err(),
        inbox.forget(&MessageId::new("m").unwrap()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("run create_schema"), "{error}");
    }
}

#[tokio::test]
async fn only_create_schema_creates_a_file() {
    let file = File::empty();
    let store = file.store();
    for error in [
        SqliteStore::open(file.path()).await.unwrap_err(),
        store.verify().await.unwrap_err(),
        inbox(&store).begin().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(!file.path().exists());
    store.create_schema().await.unwrap();
    SqliteStore::open(file.path()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r15_many_processes_may_create_the_schema_at_once() {
    let file = File::empty();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = file.store();
            tokio::spawn(async move { store.create_schema().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert!(file.store().verify().await.unwrap().findings().is_empty());
}
