//! The deferred inbox: what is kept, claimed and settled, and what a claim reads (D1 to D11).

use std::time::Duration;

use inbox_core::{
    AfterDead, Begin, Claim, Complete, Count, Deferred, End, Envelope, Fail, Filter, Lease, MessageRow,
    OrderingKey, Received, Release, Renew, Renewal, State, Transactional, Unblock,
};
use inbox_sqlite::SqliteStore;

use crate::stand::{File, consumer, in_memory, inbox, message};

const LEASE: Duration = Duration::from_secs(30);

async fn with_messages(store: &SqliteStore) {
    store.create_message_schema().await.unwrap();
}

async fn receive(store: &SqliteStore, id: &str) {
    let envelope = Envelope::new(message(id), id.as_bytes());
    assert_eq!(inbox(store).receive(&envelope).await.unwrap(), Received::Kept);
}

async fn receive_of(store: &SqliteStore, id: &str, key: &str) {
    let envelope =
        Envelope::new(message(id), id.as_bytes()).with_ordering_key(OrderingKey::new(key).unwrap());
    assert_eq!(inbox(store).receive(&envelope).await.unwrap(), Received::Kept);
}

/// Claims, and answers the rows with their leases.
async fn claim(store: &SqliteStore, limit: u32, order: Option<AfterDead>) -> Vec<(MessageRow, Lease)> {
    let consumer = consumer();
    let request = Claim::new(&consumer, LEASE, 2).limit(limit).order(order);
    let rows = store.claim(&request).await.unwrap();
    let leased = |row: MessageRow| {
        let lease = Lease { sequence: row.sequence, token: request.token };
        (row, lease)
    };
    rows.into_iter().map(leased).collect()
}

fn ids(claimed: &[(MessageRow, Lease)]) -> Vec<&str> {
    claimed.iter().map(|(row, _)| std::str::from_utf8(&row.message_id).unwrap()).collect()
}

#[tokio::test]
async fn smoke() {
    for store in [in_memory().await, File::new().await.1] {
        with_messages(&store).await;
        with_messages(&store).await;
        let consumer = consumer();
        for id in ["a", "b", "c"] {
            receive_of(&store, id, "k").await;
        }
        receive(&store, "d").await;
        let claimed = claim(&store, 10, Some(AfterDead::Block)).await;
        assert_eq!(ids(&claimed), ["a", "d"]);
        assert_eq!(claimed[0].0.payload, b"a");
        let leases = [claimed[0].1, claimed[1].1];
        let renewed = store.renew(&Renew::new(&consumer, &leases, LEASE)).await.unwrap();
        assert_eq!(renewed, [Renewal::Renewed; 2]);
        let mut tx = store.begin(None).await.unwrap();
        assert_eq!(store.complete(&mut tx, &Complete::new(&consumer, &leases[..1])).await.unwrap(), [true]);
        let renewed = store.renew(&Renew::new(&consumer, &leases, Duration::from_secs(1))).await.unwrap();
        assert_eq!(renewed, [Renewal::Locked; 2]);
        store.commit(tx, End::new(&consumer, &[]).completed(&leases[..1])).await.unwrap();
        store.fail(&Fail::new(&consumer, leases[1], None, "\"no\"")).await.unwrap();
        assert!(claim(&store, 10, Some(AfterDead::Block)).await.is_empty());
        store.unblock(&Unblock::new(&consumer, &[OrderingKey::new("k").unwrap()])).await.unwrap();
        let claimed = claim(&store, 10, Some(AfterDead::Block)).await;
        assert_eq!(ids(&claimed), ["b"]);
        let released = store.release(&Release::new(&consumer, &[claimed[0].1, leases[0]])).await.unwrap();
        assert_eq!(released, 1);
        let counts = store.count(&Count::new(&consumer, 10)).await.unwrap();
        assert_eq!(counts.iter().map(|count| count.count).collect::<Vec<_>>(), [2, 1, 1], "{counts:?}");
        assert_eq!(counts[2].state, State::Dead);
        assert_eq!(inbox(&store).replay(&Filter::state(State::Dead)).await.unwrap(), 1);
        let listing = inbox(&store).messages(&Filter::state(State::Pending).with_payloads()).await.unwrap();
        assert_eq!(listing.messages.len(), 3);
        let d = &inbox(&store).messages(&Filter::id(message("d").id().clone())).await.unwrap().messages[0];
        assert_eq!(d.history.len(), 2, "{d:?}");
        assert_eq!((d.last_error(), d.allowed, d.attempts), (Some("no"), Some(2), 1));
        store.verify_messages().await.unwrap();
    }
}
