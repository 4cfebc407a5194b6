//! The deferred inbox on sqlx: what is particular to the driver. The rest is shared code, see `tests/sqlite`.

use std::time::Duration;

use inbox_core::{
    AfterDead, Begin as _, Claim, Complete, Consumer, ContentType, Deferred as _, End, Envelope, ErrorKind,
    Fail, Filter, KeepMessages as _, KeepRequest, Lease, MessageRow, OrderingKey, Received, Renew, Renewal,
    State, Transactional as _,
};
use inbox_sqlite::on_sqlx::SqlxSqliteStore;

use crate::stand::{File, assert_sound, consumer, credit, credits, in_memory, inbox, kind, message, sql};

const LEASE: Duration = Duration::from_secs(30);

async fn both() -> [(Option<File>, SqlxSqliteStore); 2] {
    let (file, on_file) = File::new().await;
    let both = [(None, in_memory().await), (Some(file), on_file)];
    for (_, store) in &both {
        store.create_message_schema().await.unwrap();
        store.create_message_schema().await.unwrap();
    }
    both
}

async fn receive(store: &SqlxSqliteStore, id: &str) {
    let envelope = Envelope::new(message(id), id.as_bytes());
    assert_eq!(inbox(store).receive(&envelope).await.unwrap(), Received::Kept);
}

/// Claims, and answers the rows with their leases.
async fn claim(
    store: &SqlxSqliteStore,
    consumer: &Consumer,
    order: Option<AfterDead>,
) -> Vec<(MessageRow, Lease)> {
    let request = Claim::new(consumer, LEASE, 2).limit(10).order(order);
    let rows = store.claim(&request).await.unwrap();
    let leased = |row: MessageRow| {
        let lease = Lease { sequence: row.sequence, token: request.token };
        (row, lease)
    };
    rows.into_iter().map(leased).collect()
}

#[tokio::test]
async fn b03_what_is_received_comes_back_byte_for_byte() {
    for (_file, store) in both().await {
        let payload: Vec<u8> = (0..70_000_u32).map(|n| (n % 256) as u8).collect();
        let whole = Envelope::new(message("m").with_payload(&payload), payload.clone())
            .with_header("trace", vec![0xff, 0, 0x80])
            .with_content_type(ContentType::new("application/json").unwrap())
            .with_ordering_key(OrderingKey::new("42").unwrap());
        inbox(&store).receive(&whole).await.unwrap();
        inbox(&store).receive(&Envelope::new(message("empty"), [])).await.unwrap();

        let filter = Filter::state(State::Pending).with_payloads();
        let read = inbox(&store).messages(&filter).await.unwrap();

        assert!(read.damaged.is_empty(), "{:?}", read.damaged);
        let [one, empty] = &read.messages[..] else { panic!("{read:?}") };
        assert_eq!((&one.message, &one.payload), (whole.message(), &payload));
        assert_eq!(&one.headers, whole.headers());
        assert_eq!(one.content_type.as_ref(), whole.content_type());
        assert_eq!(one.ordering_key.as_ref(), whole.ordering_key());
        assert!(empty.payload.is_empty() && empty.content_type.is_none());
    }
}

#[tokio::test]
async fn b53_texts_are_text_and_bytes_are_blobs() {
    for (_file, store) in both().await {
        let key = OrderingKey::new("42").unwrap();
        inbox(&store).receive(&Envelope::new(message("42"), b"42").with_ordering_key(key)).await.unwrap();
        let consumer = consumer();
        let [(_, lease)] = claim(&store, &consumer, Some(AfterDead::Block)).await[..] else { panic!() };
        store.fail(&Fail::new(&consumer, lease, Some(Duration::ZERO), "\"no\"")).await.unwrap();
        claim(&store, &consumer, None).await;

        let classes: String = sqlx::query_scalar(
            "SELECT typeof(message_id) || typeof(payload) || typeof(headers) || typeof(ordering_key)
                    || typeof(lease_token) || typeof(history) || typeof(due_at) FROM inbox_messages",
        )
        .fetch_one(store.pool())
        .await
        .unwrap();
        assert_eq!(classes, "textblobtexttextblobtextinteger");
    }
}

#[tokio::test]
async fn r12_a_commit_proves_the_completion() {
    for (_file, store) in both().await {
        receive(&store, "m").await;
        let consumer = consumer();
        let [(_, lease)] = claim(&store, &consumer, None).await[..] else { panic!() };
        let end = || End::new(&consumer, &[]).completed(std::slice::from_ref(&lease));

        for undoing in ["COMMIT; BEGIN", "ROLLBACK; BEGIN", "ROLLBACK TO a"] {
            let mut tx = store.begin(None).await.unwrap();
            sql(&mut tx, "SAVEPOINT a").await.unwrap();
            assert_eq!(store.complete(&mut tx, &Complete::new(&consumer, &[lease])).await.unwrap(), [true]);
            credit(&mut tx).await.unwrap();
            sql(&mut tx, undoing).await.unwrap();
            assert_eq!(kind(store.commit(tx, end()).await), Some(ErrorKind::TransactionLost), "{undoing}");
            assert_sound(&store).await;
            let set_back = "UPDATE inbox_messages SET state = 'pending', lease_token = ?1";
            sqlx::query(set_back).bind(&lease.token.as_bytes()[..]).execute(store.pool()).await.unwrap();
        }
        let mut tx = store.begin(None).await.unwrap();
        assert_eq!(store.complete(&mut tx, &Complete::new(&consumer, &[lease])).await.unwrap(), [true]);
        store.commit(tx, end()).await.unwrap();
        assert_eq!(credits(&store).await, 1, "the one of the raw COMMIT");
        let mut tx = store.begin(None).await.unwrap();
        assert_eq!(store.complete(&mut tx, &Complete::new(&consumer, &[lease])).await.unwrap(), [false]);
        store.rollback(tx, End::new(&consumer, &[])).await.unwrap();
    }
}

#[tokio::test]
async fn r12_nothing_is_kept_or_completed_where_no_transaction_is_open() {
    for (_file, store) in both().await {
        receive(&store, "m").await;
        let consumer = consumer();
        let [(_, lease)] = claim(&store, &consumer, None).await[..] else { panic!() };

        let mut tx = store.begin(None).await.unwrap();
        sql(&mut tx, "COMMIT").await.unwrap();
        let envelope = Envelope::new(message("n"), b"n");
        let kept = store.keep(&mut tx, &KeepRequest::new(&consumer, &[&envelope])).await;
        assert_eq!(kind(kept), Some(ErrorKind::TransactionLost));
        drop(tx);
        crate::stand::mend(&store).await;

        let mut tx = store.begin(None).await.unwrap();
        sql(&mut tx, "COMMIT").await.unwrap();
        let completed = store.complete(&mut tx, &Complete::new(&consumer, &[lease])).await;
        assert_eq!(kind(completed), Some(ErrorKind::TransactionLost));
        drop(tx);
        crate::stand::mend(&store).await;

        let left = inbox(&store).messages(&Filter::state(State::Pending)).await.unwrap();
        assert_eq!(left.messages.len(), 1);
        assert!(left.messages[0].leased);
    }
}

#[tokio::test]
async fn d04_beside_a_writer_a_lease_is_locked_and_a_claim_busy() {
    for (file, store) in both().await {
        let store = store.with_wait(Duration::from_millis(20));
        for id in ["m", "n"] {
            receive(&store, id).await;
        }
        let consumer = consumer();
        let claimed = claim(&store, &consumer, None).await;
        let leases = [claimed[0].1, claimed[1].1];
        store.fail(&Fail::new(&consumer, leases[1], None, "\"no\"")).await.unwrap();

        let mut tx = store.begin(None).await.unwrap();
        assert_eq!(store.complete(&mut tx, &Complete::new(&consumer, &leases)).await.unwrap(), [true, false]);
        let renewed = store.renew(&Renew::new(&consumer, &leases, LEASE)).await.unwrap();
        let busy = store.claim(&Claim::new(&consumer, LEASE, 2)).await;

        // In memory there is no second connection that could look.
        let second = if file.is_some() { Renewal::Lost } else { Renewal::Locked };
        assert_eq!(renewed, [Renewal::Locked, second]);
        assert_eq!(kind(busy), Some(ErrorKind::Busy));
        store.rollback(tx, End::new(&consumer, &[]).completed(&leases[..1])).await.unwrap();
        assert_eq!(
            store.renew(&Renew::new(&consumer, &leases, LEASE)).await.unwrap(),
            [Renewal::Renewed, Renewal::Lost]
        );
    }
}

#[tokio::test]
async fn b57_two_connections_claim_one_row_once() {
    let (file, store) = File::new().await;
    store.create_message_schema().await.unwrap();
    for round in 0..20 {
        receive(&store, &round.to_string()).await;
        let other = SqlxSqliteStore::new(sqlx::SqlitePool::connect_lazy_with(file.options()));
        let consumer = consumer();
        let (one, two) = tokio::join!(claim(&store, &consumer, None), claim(&other, &consumer, None));
        assert_eq!(one.len() + two.len(), 1);
        other.pool().close().await;
    }
}

#[tokio::test]
async fn r16_a_missing_claim_index_is_refused() {
    for (_file, store) in both().await {
        assert_eq!(store.verify_messages().await.unwrap().warnings().count(), 0);
        sqlx::raw_sql("DROP INDEX inbox_messages_claim").execute(store.pool()).await.unwrap();
        let refused = store.verify_messages().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Schema);
        assert!(refused.to_string().contains("(consumer, due_at) WHERE state = 'pending'"), "{refused}");
    }
}

#[tokio::test]
async fn a_missing_table_says_what_to_call() {
    let store = in_memory().await;
    let error = inbox(&store).receive(&Envelope::new(message("m"), b"m")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("run create_message_schema"), "{error}");
    assert!(!crate::stand::is_registered(&store, "m").await, "nothing is kept half");
}
