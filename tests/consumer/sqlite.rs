//! What the docs show of a consumer on SQLite.

mod on_a_file {
    // region: on a file
    use inbox::sqlite::SqliteStore;
    use inbox::{Consumer, Inbox};

    async fn connect(path: &str) -> anyhow::Result<Inbox<SqliteStore>> {
        let store = SqliteStore::new(path)?; // one per file and process; clone it, or the inbox
        store.create_schema().await?; // creates file and table if they are missing, else verifies
        Ok(Inbox::new(store, Consumer::new("loyalty")?))
    }
    // endregion: on a file

    // region: by value on sqlite
    use inbox::{Begin, Message, Registered};

    async fn on_payment(inbox: &Inbox<SqliteStore>, message: &Message) -> anyhow::Result<()> {
        let tx = inbox.store().begin(inbox.wait()).await?;
        if let Registered::New(mut tx) = inbox.register(tx, message).await? {
            tx.call(|db| db.execute("UPDATE account SET points = points + 10", [])).await?;
            tx.commit().await?;
        }
        Ok(())
    }
    // endregion: by value on sqlite

    #[tokio::test]
    async fn a_file_is_created_used_and_purged() -> anyhow::Result<()> {
        let folder = super::super::Folder::new("rusqlite")?;
        let path = folder.0.join("app.db");
        let inbox = connect(path.to_str().expect("a path in UTF-8")).await?;
        let account = "CREATE TABLE account (points INTEGER); INSERT INTO account VALUES (0)";
        inbox.store().call(move |db| db.execute_batch(account)).await?;
        let message = Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
        for _delivery in 1..=2 {
            on_payment(&inbox, &message).await?;
        }
        let points: i64 =
            inbox.store().call(|db| db.query_row("SELECT points FROM account", [], |row| row.get(0))).await?;
        assert_eq!(points, 10);

        let aged = "UPDATE inbox SET registered_at = registered_at - 91 * 86400 * 1000000";
        for (before, deleted) in [("SELECT 1", 0), (aged, 1), ("SELECT 1", 0)] {
            inbox.store().call(move |db| db.execute_batch(before)).await?;
            let purged = inbox.store().call(|db| db.execute(include_str!("purge_sqlite.sql"), [])).await?;
            assert_eq!(purged, deleted, "after {before}");
        }
        Ok(())
    }
}

mod blocking {
    // region: blocking
    use inbox::sqlite::{Blocking, SqliteStore, rusqlite::Connection};
    use inbox::{Inbox, Message};

    fn on_payment(
        inbox: &Inbox<SqliteStore>,
        db: &mut Connection,
        message: &Message,
    ) -> anyhow::Result<bool> {
        let outcome = inbox.blocking_process(db, message, |tx| {
            tx.execute("UPDATE account SET points = points + 10", [])?;
            anyhow::Ok(())
        })?;
        Ok(outcome.is_processed())
    }
    // endregion: blocking

    #[test]
    fn a_blocking_consumer_needs_no_runtime() -> anyhow::Result<()> {
        let mut db = Connection::open_in_memory()?;
        let store = SqliteStore::in_memory()?; // only its table's name and its wait are used
        inbox::sqlite::create_schema_on(&db, store.table())?;
        db.execute_batch("CREATE TABLE account (points INTEGER)")?;
        let inbox = Inbox::new(store, inbox::Consumer::new("loyalty")?);
        let message = Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
        assert!(on_payment(&inbox, &mut db, &message)?);
        assert!(!on_payment(&inbox, &mut db, &message)?);
        Ok(())
    }
}

mod handlers {
    // region: own error
    use std::sync::atomic::{AtomicU32, Ordering};

    use inbox::sqlite::{SqliteStore, rusqlite};
    use inbox::{Inbox, Message};

    #[derive(Debug)]
    enum AppError {
        Inbox(inbox::Error),
        Sqlite(rusqlite::Error),
    }

    impl From<inbox::Error> for AppError {
        fn from(error: inbox::Error) -> Self {
            Self::Inbox(error)
        }
    }

    impl From<rusqlite::Error> for AppError {
        fn from(error: rusqlite::Error) -> Self {
            Self::Sqlite(error)
        }
    }

    async fn on_payment(inbox: &Inbox<SqliteStore>, message: &Message) -> Result<u32, AppError> {
        let runs = AtomicU32::new(0);
        let again = |error: &AppError| matches!(error, AppError::Sqlite(e) if inbox::sqlite::is_retryable(e));
        inbox
            .process_retrying(message, again, async |tx| {
                runs.fetch_add(1, Ordering::Relaxed); // not `runs += 1`
                tx.call(|db| db.execute("UPDATE account SET points = points + 10", [])).await?;
                Ok::<_, AppError>(())
            })
            .await?;
        Ok(runs.into_inner())
    }
    // endregion: own error

    #[tokio::test]
    async fn a_handler_fails_with_the_services_own_error() -> anyhow::Result<()> {
        let store = SqliteStore::in_memory()?;
        store.create_schema().await?;
        let inbox = Inbox::new(store, inbox::Consumer::new("loyalty")?);
        let message = Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
        let error = on_payment(&inbox, &message).await.expect_err("there is no table account");
        assert!(matches!(&error, AppError::Sqlite(e) if e.to_string().contains("account")), "{error:?}");

        inbox.store().call(|db| db.execute_batch("CREATE TABLE account (points INTEGER)")).await?;
        assert!(matches!(on_payment(&inbox, &message).await, Ok(1)));
        assert!(matches!(on_payment(&inbox, &message).await, Ok(0)), "a duplicate runs no handler");

        inbox.store().call(|db| db.execute_batch("DROP TABLE inbox")).await?;
        let error = on_payment(&inbox, &message).await.expect_err("there is no inbox");
        assert!(matches!(&error, AppError::Inbox(e) if e.kind() == inbox::ErrorKind::Schema), "{error:?}");
        Ok(())
    }
}

mod at_once {
    // region: at once
    use std::time::Duration;

    use inbox::{Inbox, RetryPolicy};

    fn impatient<S>(inbox: Inbox<S>) -> Inbox<S> {
        inbox.with_wait(Duration::ZERO).with_retry(RetryPolicy::none())
    }
    // endregion: at once

    #[tokio::test]
    async fn an_impatient_inbox_is_busy_at_once() -> anyhow::Result<()> {
        let store = inbox::sqlite::SqliteStore::in_memory()?;
        store.create_schema().await?;
        let inbox = Inbox::new(store, inbox::Consumer::new("loyalty")?);
        let _held = inbox.begin().await?;
        let error = impatient(inbox.clone()).begin().await.expect_err("the writer is taken");
        assert_eq!(error.kind(), inbox::ErrorKind::Busy);
        Ok(())
    }
}
