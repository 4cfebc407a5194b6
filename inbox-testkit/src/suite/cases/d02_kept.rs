//! D1, D2 and D11: what is received is kept, whole and once.

use std::time::{Duration, SystemTime};

use inbox_core::{
    BatchReceived, Envelope, ErrorKind, Filter, Headers, NotBefore, Received, Registration, State,
    StoredMessage, micros_of,
};

use super::deferred::{
    assert_nothing_due, claim_one, complete, counts, envelope, kept, ordering_key, receive,
};
use super::{assert_kind, cases, deliver, drop_after, id, message, until};
use crate::suite::Need;

cases! {
    /// A message is pending, then done or dead, and nothing else: received, completed, failed for good.
    once(Deferred) fn d01_states_are_pending_done_and_dead(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        assert_eq!(kept(&*keeper, "m-1").await.state, State::Pending);
        complete(&*keeper, &claim_one(&*keeper).await).await;
        assert_eq!(kept(&*keeper, "m-1").await.state, State::Done);
        receive(&*keeper, [envelope("m-2")]).await;
        keeper.fail(claim_one(&*keeper).await.lease, None, "\"broken\"").await.expect("fail");
        assert_eq!(kept(&*keeper, "m-2").await.state, State::Dead);
        assert_eq!(counts(&*keeper).await, [0, 1, 1]);
    }

    /// The table itself refuses a lease on a row that is not pending, and a state that does not exist: look
    /// for a CHECK that is missing, or that NULL passes.
    once(Deferred, Sql) fn d01_table_refuses_other_states(stage) {
        let keeper = stage.keeper("billing");
        receive(&*keeper, [envelope("m-1")]).await;
        claim_one(&*keeper).await;
        let table = stage.messages_table();
        for state in ["done", "dead", "other", ""] {
            let sql = format!("UPDATE {table} SET state = '{state}'");
            assert!(stage.try_execute(&sql).await.is_err(), "a leased row became {state:?}");
        }
        stage.execute(&format!("UPDATE {table} SET state = 'done', lease_token = NULL")).await;
    }

    /// What a committed transaction received is kept as pending, at every level.
    every_level(Deferred) fn d02_received_is_kept_at_the_commit(stage) {
        let keeper = stage.keeper("billing");
        let mut tx = keeper.begin().await.expect("begin");
        assert_eq!(tx.receive(&envelope("m-1")).await.expect("receive"), Received::Kept);
        assert_eq!(tx.receive_by_reference(&envelope("m-2")).await.expect("receive"), Received::Kept);
        tx.commit().await.expect("commit");
        assert_eq!(counts(&*keeper).await, [2, 0, 0]);
        let message = kept(&*keeper, "m-1").await;
        assert_eq!((message.attempts, message.leased, message.history.len()), (0, false, 0));
    }

    /// A transaction that is rolled back, or dropped, keeps nothing of what it received, and the id is new
    /// again: look for a second connection that keeps by itself.
    every_level(Deferred) fn d02_rolled_back_receive_keeps_nothing(stage) {
        let keeper = stage.keeper("billing");
        let mut tx = keeper.begin().await.expect("begin");
        tx.receive(&envelope("m-1")).await.expect("receive");
        tx.rollback().await.expect("roll back");
        let mut tx = keeper.begin().await.expect("begin");
        tx.receive_by_reference(&envelope("m-1")).await.expect("receive");
        drop(tx);
        assert_eq!(counts(&*keeper).await, [0, 0, 0]);
        receive(&*keeper, [envelope("m-1")]).await;
        assert_eq!(counts(&*keeper).await, [1, 0, 0]);
    }

    /// A redelivery is a duplicate and keeps nothing more, while the message is pending, in the same
    /// transaction, and after it was handled.
    once(Deferred) fn d02_duplicate_keeps_nothing_more(stage) {
        let keeper = stage.keeper("billing");
        let mut tx = keeper.begin().await.expect("begin");
        assert_eq!(tx.receive(&envelope("m-1")).await.expect("receive"), Received::Kept);
        let repeat = tx.receive(&envelope("m-1")).await.expect("receive");
        assert!(matches!(repeat, Received::Duplicate(_)), "{repeat:?}");
        tx.commit().await.expect("commit");
        for state in ["pending", "done"] {
            let answer = keeper.receive(&envelope("m-1")).await.expect("receive");
            assert!(matches!(answer, Received::Duplicate(_)), "{state}: {answer:?}");
            if state == "pending" {
                complete(&*keeper, &claim_one(&*keeper).await).await;
            }
        }
        assert_eq!(counts(&*keeper).await, [0, 1, 0]);
    }

    /// One registration serves both ways: what a direct inbox has handled is not kept, and what is kept is
    /// a duplicate for a direct inbox. Consumers are independent.
    once(Deferred) fn d02_direct_and_deferred_share_the_registration(stage) {
        let (inbox, keeper) = (stage.inbox("billing"), stage.keeper("billing"));
        deliver(&*inbox, &message("m-1")).await;
        let answer = keeper.receive(&envelope("m-1")).await.expect("receive");
        assert!(matches!(answer, Received::Duplicate(_)), "{answer:?}");
        receive(&*keeper, [envelope("m-2")]).await;
        assert!(!deliver(&*inbox, &message("m-2")).await.is_new());
        receive(&*stage.keeper("audit"), [envelope("m-1"), envelope("m-2")]).await;
        assert_eq!(counts(&*keeper).await, [1, 0, 0]);
        assert_eq!(counts(&*stage.keeper("audit")).await, [2, 0, 0]);
    }

    /// One id with two payloads is an error, and of the second nothing is kept (R11).
    once(Deferred) fn d02_mismatch_keeps_nothing(stage) {
        let keeper = stage.keeper("billing");
        let with = |payload: &str| Envelope::new(message("m-1").with_payload(payload.as_bytes()), payload);
        receive(&*keeper, [with("ten")]).await;
        assert_kind(keeper.receive(&with("eleven")).await, ErrorKind::Mismatch);
        let mut tx = keeper.begin().await.expect("begin");
        assert_kind(tx.receive(&with("eleven")).await, ErrorKind::Mismatch);
        tx.rollback().await.expect("roll back");
        assert_eq!(counts(&*keeper).await, [1, 0, 0]);
        assert_eq!(kept(&*keeper, "m-1").await.payload, b"ten");
    }

    /// A batch answers by position, with repeats, duplicates, mismatches and messages over the limit in it,
    /// and keeps what is new in its order.
    once(Deferred) fn d02_batch_is_received_by_position(stage) {
        let keeper = stage.keeper("billing");
        let small = keeper.with_max_payload(20);
        let with = |text: &str, payload: &str| Envelope::new(message(text).with_payload(payload.as_bytes()), payload);
        receive(&*small, [envelope("known"), with("other", "ten")]).await;
        let batch = [
            with("z", "first"),
            envelope("known"),
            with("other", "eleven"),
            with("long", "more than twenty bytes"),
            with("z", "first"),
            with("a", "second"),
        ];
        let answers = small.receive_batch(&batch).await.expect("receive");
        assert!(
            matches!(
                &answers[..],
                [
                    BatchReceived::Kept,
                    BatchReceived::Duplicate(_),
                    BatchReceived::Mismatch(_),
                    BatchReceived::Failed(long),
                    BatchReceived::Duplicate(_),
                    BatchReceived::Kept,
                ] if long.kind() == ErrorKind::InvalidMessage
            ),
            "{answers:?}"
        );
        assert_eq!(counts(&*keeper).await, [4, 0, 0]);
        let (first, second) = (kept(&*keeper, "z").await, kept(&*keeper, "a").await);
        assert!(first.sequence < second.sequence, "kept in the order given, not in that of the ids");
        assert_eq!((first.payload, second.payload), (b"first".to_vec(), b"second".to_vec()));
        assert!(small.receive_batch(&[]).await.expect("an empty batch").is_empty());
    }

    /// A batch larger than any limit on binds is kept whole and in order.
    once(Deferred) fn d02_large_batch_is_kept_in_order(stage) {
        let keeper = stage.keeper("billing");
        let batch: Vec<Envelope> = (0..3000).rev().map(|n| envelope(&format!("m-{n:04}"))).collect();
        let answers = keeper.receive_batch(&batch).await.expect("receive");
        assert!(answers.iter().all(|answer| matches!(answer, BatchReceived::Kept)));
        let listing = keeper.messages(&Filter::state(State::Pending).limit(5000)).await.expect("messages");
        let mut messages = listing.messages;
        messages.sort_by_key(|message| message.sequence);
        let found: Vec<&str> = messages.iter().map(|message| message.id().as_str()).collect();
        let given: Vec<&str> = batch.iter().map(|envelope| envelope.message().id().as_str()).collect();
        assert!(found == given, "{} of {} kept, or not in their order", found.len(), given.len());
    }

    /// Payload, headers, content type, ordering key, event type and fingerprint come back byte for byte,
    /// to a worker and to an operator (B03): look for a text type, a cut, or a re-encoding.
    once(Deferred) fn d02_b03_everything_comes_back_byte_for_byte(stage) {
        let keeper = stage.keeper("billing");
        let payload: Vec<u8> = (0..=255).cycle().take(70_001).collect();
        let headers: Headers = [
            ("trace", b"abc".to_vec()),
            ("trace", b" second ".to_vec()),
            ("Bytes", vec![0xff, 0x00, 0x80]),
            ("", "ü\\\"'\n\t😀".as_bytes().to_vec()),
        ]
        .into_iter()
        .collect();
        let whole = Envelope::new(message("m-1").with_payload(&payload), payload.clone())
            .with_headers(headers)
            .with_content_type(inbox_core::ContentType::new("application/x; é ").expect("valid"))
            .with_ordering_key(ordering_key(" Key-é😀 "));
        let bare = Envelope::new(message("m-2"), "");
        receive(&*keeper, [whole.clone(), bare.clone()]).await;

        let listing = Filter::state(State::Pending).with_payloads();
        let mut seen = keeper.messages(&listing).await.expect("messages").messages;
        for claimed in super::deferred::claim(&*keeper, super::deferred::take(10)).await {
            seen.push(StoredMessage::try_from(claimed.row).expect("the row is sound"));
        }
        assert_eq!(seen.len(), 4);
        for found in seen {
            let given = if found.id().as_str() == "m-1" { &whole } else { &bare };
            assert_eq!(&found.message, given.message());
            assert!(found.payload == given.payload(), "the payload of {} differs", found.id());
            assert_eq!(&found.headers, given.headers());
            assert_eq!(found.content_type.as_ref(), given.content_type());
            assert_eq!(found.ordering_key.as_ref(), given.ordering_key());
        }
    }

    /// A time of the sender's is kept to the microsecond (B23): neither rounded nor cut.
    once(Deferred) fn d02_b23_not_before_is_kept_to_the_microsecond(stage) {
        let keeper = stage.keeper("billing");
        let (first, second) = (Duration::new(4_000_000_000, 999_999_000), Duration::new(4_000_000_001, 1_000));
        for (text, time) in [("m-1", first), ("m-2", second)] {
            let time = SystemTime::UNIX_EPOCH + time;
            receive(&*keeper, [envelope(text).not_before(time)]).await;
            assert_eq!(micros_of(kept(&*keeper, text).await.due_at), micros_of(time), "{text}");
        }
    }

    /// Times beyond what an engine can keep are no error: before 1970 is due, after 9999 is never.
    once(Deferred) fn d02_extreme_times_are_kept(stage) {
        let keeper = stage.keeper("billing");
        let never = SystemTime::UNIX_EPOCH + Duration::from_secs(400_000_000_000);
        let past = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        receive(&*keeper, [envelope("late").not_before(never), envelope("later").delayed(Duration::MAX)]).await;
        assert_nothing_due(&*keeper, "it is due in a thousand years").await;
        receive(&*keeper, [envelope("early").not_before(past)]).await;
        assert_eq!(claim_one(&*keeper).await.id(), "early");
    }

    /// Without the table of kept messages receiving is an error of kind `Schema`, and the id is not
    /// registered: a redelivery would be a duplicate of nothing (R9).
    once(Deferred, Sql) fn d02_failed_keep_registers_nothing(stage) {
        let (inbox, keeper) = (stage.inbox("billing"), stage.keeper("billing"));
        stage.execute(&format!("DROP TABLE {}", stage.messages_table())).await;
        assert_kind(keeper.receive(&envelope("m-1")).await, ErrorKind::Schema);
        let mut tx = keeper.begin().await.expect("begin");
        assert!(tx.receive(&envelope("m-1")).await.is_err());
        assert!(tx.commit().await.is_err(), "the guard committed a registration without its message");
        if stage.capabilities().proves_commit {
            let mut tx = keeper.begin().await.expect("begin");
            assert!(tx.receive_by_reference(&envelope("m-1")).await.is_err());
            assert!(tx.commit().await.is_err(), "the store did not condemn the transaction");
        }
        assert!(inbox.find(&id("m-1")).await.expect("find").is_none(), "registered, but not kept");
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }

    /// A `receive` that is dropped at any of its awaits has either kept the message or left nothing (R17).
    once(Deferred) fn d02_dropped_receive_is_whole_or_nothing(stage) {
        let keeper = stage.keeper("billing");
        for place in 0..24 {
            let text = format!("m-{place}");
            drop(drop_after(place, keeper.receive(&envelope(&text))).await);
            if stage.offers(Need::OpenTransactions) {
                until("no transaction is open", async || stage.open_transactions().await == 0).await;
            }
            keeper.receive(&envelope(&text)).await.expect("receive");
            kept(&*keeper, &text).await;
        }
        assert_eq!(counts(&*keeper).await, [24, 0, 0]);
    }

    /// A payload over the limit is refused before any SQL, one at the limit is kept; the refusal condemns
    /// nothing.
    once(Deferred, Sql) fn d11_long_payload_is_refused_before_any_sql(stage) {
        let keeper = stage.keeper("billing");
        let small = keeper.with_max_payload(10);
        let (long, fits) = (Envelope::new(message("m-1"), "12345678901"), Envelope::new(message("m-1"), "1234567890"));
        let mut tx = small.begin().await.expect("begin");
        assert_kind(tx.receive(&long).await, ErrorKind::InvalidMessage);
        assert_kind(tx.receive_by_reference(&long).await, ErrorKind::InvalidMessage);
        assert_eq!(tx.receive(&fits).await.expect("receive"), Received::Kept);
        tx.commit().await.expect("commit");
        assert_eq!(counts(&*keeper).await, [1, 0, 0]);
        stage.execute(&format!("DROP TABLE {}", stage.messages_table())).await;
        assert_kind(small.receive(&long).await, ErrorKind::InvalidMessage);
    }

    /// Headers over 1 MiB are refused likewise, and headers just below are kept.
    once(Deferred) fn d11_long_headers_are_refused(stage) {
        let keeper = stage.keeper("billing");
        let with = |bytes: usize| envelope("m-1").with_header("long", "x".repeat(bytes));
        assert_kind(keeper.receive(&with(Headers::MAX_BYTES)).await, ErrorKind::InvalidMessage);
        assert_eq!(counts(&*keeper).await, [0, 0, 0]);
        receive(&*keeper, [with(Headers::MAX_BYTES - 20)]).await;
        assert_eq!(kept(&*keeper, "m-1").await.headers.get("long").map(<[u8]>::len), Some(Headers::MAX_BYTES - 20));
    }

    /// A delay counts from receiving, by the database's clock.
    once(Deferred) fn d02_delay_counts_from_receiving(stage) {
        let keeper = stage.keeper("billing");
        let delayed = envelope("m-1").delayed(Duration::from_secs(3600));
        assert_eq!(delayed.when(), NotBefore::After(Duration::from_secs(3600)));
        receive(&*keeper, [delayed]).await;
        let message = kept(&*keeper, "m-1").await;
        let delay = message.due_at.duration_since(message.received_at).expect("later than received");
        // The clock may be read once for each column.
        assert!(delay.abs_diff(Duration::from_secs(3600)) < Duration::from_secs(1), "{delay:?}");
        assert_nothing_due(&*keeper, "it is due in an hour").await;
    }
}
