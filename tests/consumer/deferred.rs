//! What the docs show of the deferred inbox.

mod receiving {
    // region: receive
    use inbox::{ContentType, Deferred, Envelope, Headers, Inbox, Message, MessageId, OrderingKey};

    struct Delivery {
        id: String,
        event_type: String,
        headers: Vec<(String, Vec<u8>)>,
        account: String,
        body: Vec<u8>,
    }

    fn envelope(delivery: Delivery) -> Result<Envelope, inbox::Error> {
        let Delivery { id, event_type, headers, account, body } = delivery;
        let message = Message::new(MessageId::new(id)?, event_type)?;
        Ok(Envelope::new(message, body)
            .fingerprinted() // one id with two payloads is a `Mismatch` then
            .with_headers(Headers::from_iter(headers))
            .with_content_type(ContentType::new("application/json")?)
            .with_ordering_key(OrderingKey::new(account)?)) // only a worker with an order looks at it
    }

    /// Acknowledge the delivery once this is `Ok`.
    async fn on_delivery<S: Deferred>(inbox: &Inbox<S>, delivery: Delivery) -> Result<(), inbox::Error> {
        inbox.receive(&envelope(delivery)?).await?; // `Received::Kept` or `Received::Duplicate`
        Ok(())
    }
    // endregion: receive

    // region: receive a batch
    use inbox::BatchReceived::*;

    /// What to do with each delivery of a poll.
    enum Next {
        Acknowledge,
        Park,
        /// Judge the error as that of a single message.
        Judge(inbox::Error),
    }

    async fn on_poll<S: Deferred>(inbox: &Inbox<S>, poll: &[Envelope]) -> Result<Vec<Next>, inbox::Error> {
        let answers = inbox.receive_batch(poll).await?;
        let next = answers.into_iter().map(|answer| match answer {
            Kept | Duplicate(_) => Next::Acknowledge,
            Mismatch(_) => Next::Park,
            Failed(error) => Next::Judge(error),
        });
        Ok(next.collect())
    }
    // endregion: receive a batch

    // region: receive in a transaction
    use inbox::sqlite::SqliteStore;

    /// With something of your own in the same transaction: here the place in the stream.
    async fn on_record(inbox: &Inbox<SqliteStore>, offset: i64, envelope: &Envelope) -> anyhow::Result<()> {
        let mut tx = inbox.begin().await?;
        tx.receive(envelope).await?;
        tx.call(move |db| db.execute("UPDATE stream SET offset = ?1", [offset])).await?;
        tx.commit().await?; // acknowledge after it, never before
        Ok(())
    }
    // endregion: receive in a transaction

    #[tokio::test]
    async fn what_is_delivered_twice_is_kept_once() -> anyhow::Result<()> {
        let inbox = super::inbox().await?;
        let delivery = |id: &str, body: &str| Delivery {
            id: id.to_owned(),
            event_type: "PaymentConfirmed".to_owned(),
            headers: vec![("traceparent".to_owned(), b"00-1".to_vec())],
            account: "account-7".to_owned(),
            body: body.as_bytes().to_vec(),
        };
        for _delivery in 1..=2 {
            on_delivery(&inbox, delivery("a", "10")).await?;
        }
        let poll = [
            envelope(delivery("a", "10"))?,
            envelope(delivery("b", "10"))?,
            envelope(delivery("a", "11"))?,
            envelope(delivery("c", &"long".repeat(5 << 20)))?,
        ];
        let next = on_poll(&inbox, &poll).await?;
        assert!(matches!(&next[..2], [Next::Acknowledge, Next::Acknowledge]));
        assert!(matches!(&next[2], Next::Park));
        assert!(matches!(&next[3], Next::Judge(error) if error.kind() == inbox::ErrorKind::InvalidMessage));

        let stream = "CREATE TABLE stream (offset INTEGER); INSERT INTO stream VALUES (0)";
        inbox.store().call(move |db| db.execute_batch(stream)).await?;
        on_record(&inbox, 8, &envelope(delivery("d", "10"))?).await?;
        let offset: i64 =
            inbox.store().call(|db| db.query_row("SELECT offset FROM stream", [], |row| row.get(0))).await?;
        assert_eq!(offset, 8);
        assert_eq!(inbox.message_counts(10).await?.pending.count, 3);
        Ok(())
    }
}

mod working {
    // region: work
    use std::time::Duration;

    use inbox::sqlite::SqliteStore;
    use inbox::{HandlerError, Inbox, Worker, WorkerReport};

    async fn work(
        inbox: Inbox<SqliteStore>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<WorkerReport, inbox::Error> {
        Worker::new(inbox)
            .with_handler_timeout(Duration::from_secs(20))
            .run(stop, async |tx, message| {
                // What no attempt can read is a dead letter at once.
                let points: i64 =
                    serde_json::from_slice(&message.payload).map_err(HandlerError::never_retry)?;
                // What fails here is tried again after the backoff.
                tx.call(move |db| db.execute("UPDATE account SET points = points + ?1", [points])).await?;
                Ok(())
            })
            .await
    }
    // endregion: work

    // region: anyhow in a handler
    use inbox::StoredMessage;
    use inbox::sqlite::SqliteTx;

    async fn handle(tx: &mut SqliteTx, message: &StoredMessage) -> Result<(), HandlerError> {
        credit(tx, message).await.map_err(HandlerError::new)
    }

    async fn credit(tx: &mut SqliteTx, message: &StoredMessage) -> anyhow::Result<()> {
        let points: i64 = serde_json::from_slice(&message.payload)?;
        tx.call(move |db| db.execute("UPDATE account SET points = points + ?1", [points])).await?;
        Ok(())
    }

    async fn drain(inbox: Inbox<SqliteStore>) -> Result<WorkerReport, inbox::Error> {
        Worker::new(inbox).run_until_drained(handle).await
    }
    // endregion: anyhow in a handler

    // region: work in batches
    async fn work_in_batches(
        inbox: Inbox<SqliteStore>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<WorkerReport, inbox::Error> {
        Worker::new(inbox)
            .with_batch(500)
            .run_batches(stop, async |tx, messages: &[StoredMessage]| {
                let mut sum = 0;
                for message in messages {
                    sum +=
                        serde_json::from_slice::<i64>(&message.payload).map_err(HandlerError::never_retry)?;
                }
                tx.call(move |db| db.execute("UPDATE account SET points = points + ?1", [sum])).await?;
                Ok(())
            })
            .await
    }
    // endregion: work in batches

    async fn points(inbox: &Inbox<SqliteStore>) -> anyhow::Result<i64> {
        let points = "SELECT points FROM account";
        Ok(inbox.store().call(move |db| db.query_row(points, [], |row| row.get(0))).await?)
    }

    /// Works beside it until nothing is pending, and then stops it, as a signal would.
    async fn until_drained(inbox: &Inbox<SqliteStore>, work: impl AsyncFnOnce(Stop)) -> anyhow::Result<()> {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let drained = async {
            while inbox.message_counts(1).await?.pending.count > 0 {
                tokio::task::yield_now().await;
            }
            drop(stop);
            anyhow::Ok(())
        };
        tokio::join!(work(stopped), drained).1
    }

    type Stop = tokio::sync::oneshot::Receiver<()>;

    #[tokio::test]
    async fn kept_messages_are_handled_until_the_worker_is_stopped() -> anyhow::Result<()> {
        let inbox = super::inbox().await?;
        super::keep(&inbox, &[("a", "10"), ("b", "5"), ("c", "no number")]).await?;

        let worker = tokio::spawn(work(inbox.clone(), std::future::pending()));
        until_drained(&inbox, async |stopped: Stop| drop(stopped.await)).await?;
        worker.abort();
        assert_eq!(points(&inbox).await?, 15);

        super::keep(&inbox, &[("d", "1")]).await?;
        until_drained(&inbox, async |stopped: Stop| {
            let report = work(inbox.clone(), async { drop(stopped.await) }).await;
            assert!(matches!(report, Ok(WorkerReport { done: 1, dead: 0, .. })), "{report:?}");
        })
        .await?;

        super::keep(&inbox, &[("e", "1"), ("f", "no number"), ("g", "1")]).await?;
        until_drained(&inbox, async |stopped: Stop| {
            let report = work_in_batches(inbox.clone(), async { drop(stopped.await) }).await;
            assert!(matches!(report, Ok(WorkerReport { done: 2, dead: 1, .. })), "{report:?}");
        })
        .await?;

        super::keep(&inbox, &[("h", "1")]).await?;
        assert_eq!(drain(inbox.clone()).await?.done, 1);
        assert_eq!(points(&inbox).await?, 19);
        Ok(())
    }
}

mod operating {
    // region: dead letters
    use std::time::Duration;

    use inbox::{Deferred, Filter, Inbox, MessageId, State};

    /// Every dead letter with its last error, the oldest first.
    async fn dead_letters<S: Deferred>(inbox: &Inbox<S>) -> Result<Vec<String>, inbox::Error> {
        let mut lines = Vec::new();
        let mut filter = Filter::state(State::Dead);
        loop {
            let page = inbox.messages(&filter).await?;
            if page.messages.is_empty() && page.damaged.is_empty() {
                return Ok(lines);
            }
            for message in &page.messages {
                lines.push(format!(
                    "{}: {}",
                    message.id(),
                    message.last_error().unwrap_or("no worker lived")
                ));
            }
            for row in &page.damaged {
                lines.push(format!("{}: {}", row.message_id, row.error));
            }
            filter = filter.after(&page);
        }
    }

    /// Another attempt: for one, and for all that have been dead for an hour.
    async fn replay<S: Deferred>(inbox: &Inbox<S>, id: MessageId) -> Result<u64, inbox::Error> {
        let mut replayed = inbox.replay(&Filter::id(id)).await?;
        let old = Filter::state(State::Dead).older_than(Duration::from_secs(3600)).limit(100);
        loop {
            match inbox.replay(&old).await? {
                0 => return Ok(replayed),
                more => replayed += more, // a transaction each
            }
        }
    }

    /// For a gauge: what is there by state, and how long the oldest has been.
    async fn gauge<S: Deferred>(inbox: &Inbox<S>) -> Result<Vec<(State, u32, Duration)>, inbox::Error> {
        let counts = inbox.message_counts(10_000).await?; // counts no further than that
        Ok(counts.iter().map(|one| (one.state, one.count, one.oldest.unwrap_or_default())).collect())
    }
    // endregion: dead letters

    #[tokio::test]
    async fn dead_letters_are_listed_counted_and_replayed() -> anyhow::Result<()> {
        use inbox::{HandlerError, Worker};
        let inbox = super::inbox().await?;
        super::keep(&inbox, &[("a", "1"), ("b", "2")]).await?;
        let worker = Worker::new(inbox.clone());
        let refuse = async |_: &mut _, _: &_| Err(HandlerError::never_retry("no account"));
        assert_eq!(worker.run_until_drained(refuse).await?.dead, 2);

        assert_eq!(dead_letters(&inbox).await?, ["a: no account", "b: no account"]);
        assert_eq!(replay(&inbox, MessageId::new("a")?).await?, 1);
        let counts: Vec<_> =
            gauge(&inbox).await?.into_iter().map(|(state, count, _)| (state, count)).collect();
        assert_eq!(counts, [(State::Pending, 1), (State::Done, 0), (State::Dead, 1)]);
        assert_eq!(worker.run_until_drained(async |_: &mut _, _: &_| Ok(())).await?.done, 1);
        assert_eq!(dead_letters(&inbox).await?, ["b: no account"]);
        Ok(())
    }
}

use inbox::sqlite::SqliteStore;
use inbox::{BatchReceived, Consumer, Envelope, Inbox, Message, MessageId};

/// An inbox in memory, and an account.
async fn inbox() -> anyhow::Result<Inbox<SqliteStore>> {
    let store = SqliteStore::in_memory()?;
    store.create_schema().await?;
    store.create_message_schema().await?;
    let account = "CREATE TABLE account (points INTEGER); INSERT INTO account VALUES (0)";
    store.call(move |db| db.execute_batch(account)).await?;
    Ok(Inbox::new(store, Consumer::new("loyalty")?))
}

async fn keep(inbox: &Inbox<SqliteStore>, messages: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut envelopes = Vec::new();
    for (id, body) in messages {
        let message = Message::new(MessageId::new(*id)?, "PaymentConfirmed")?;
        envelopes.push(Envelope::new(message, *body));
    }
    let kept = inbox.receive_batch(&envelopes).await?;
    anyhow::ensure!(kept.iter().all(|one| matches!(one, BatchReceived::Kept)), "{kept:?}");
    Ok(())
}
