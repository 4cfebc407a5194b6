//! What the docs show of a consumer on PostgreSQL.

mod batch {
    // region: batch
    use std::collections::HashMap;

    use inbox::postgres::{PostgresStore, is_retryable, sqlx};
    use inbox::{BatchOutcome, Inbox, Message};

    struct Payment {
        message: Message,
        account: i64,
        points: i64,
    }

    async fn on_payments(
        inbox: &Inbox<PostgresStore>,
        payments: &[Payment],
    ) -> anyhow::Result<Vec<BatchOutcome<anyhow::Error>>> {
        let messages: Vec<Message> = payments.iter().map(|payment| payment.message.clone()).collect();
        let mut by_id = HashMap::new();
        for payment in payments {
            by_id.entry(payment.message.id()).or_insert(payment); // of two copies the first, as the inbox does
        }
        inbox
            .process_batch_retrying(
                &messages,
                |error: &anyhow::Error| error.downcast_ref::<sqlx::Error>().is_some_and(is_retryable),
                async |tx, new: &[&Message]| {
                    for message in new {
                        let Payment { account, points, .. } = by_id[message.id()];
                        sqlx::query("UPDATE account SET points = points + $1 WHERE id = $2")
                            .bind(points)
                            .bind(account)
                            .execute(&mut **tx)
                            .await?;
                    }
                    anyhow::Ok(())
                },
            )
            .await
    }
    // endregion: batch

    #[tokio::test]
    async fn each_new_message_of_a_batch_finds_its_record() -> anyhow::Result<()> {
        let Some((store, _database)) = super::fresh().await? else { return Ok(()) };
        let table =
            "CREATE TABLE account (id bigint, points bigint); INSERT INTO account VALUES (7, 0), (8, 0)";
        sqlx::raw_sql(table).execute(store.pool()).await?;
        let inbox = Inbox::new(store, inbox::Consumer::new("loyalty")?);
        let payment = |id: &str, account, points| {
            let message = Message::new(inbox::MessageId::new(id)?, "PaymentConfirmed")?;
            anyhow::Ok(Payment { message, account, points })
        };

        on_payments(&inbox, &[payment("a", 7, 10)?]).await?;
        let outcomes =
            on_payments(&inbox, &[payment("a", 7, 10)?, payment("b", 8, 5)?, payment("b", 8, 6)?]).await?;

        assert!(matches!(
            outcomes[..],
            [BatchOutcome::Duplicate(_), BatchOutcome::Processed, BatchOutcome::Duplicate(_)]
        ));
        let points: Vec<i64> = sqlx::query_scalar("SELECT points FROM account ORDER BY id")
            .fetch_all(inbox.store().pool())
            .await?;
        assert_eq!(points, [10, 5]);
        Ok(())
    }
}

mod two_databases {
    // region: two databases
    use inbox::postgres::{PostgresStore, sqlx};
    use inbox::sqlite::{SqliteStore, SqliteTx};
    use inbox::{Begin, Inbox, Message};

    /// What the consumer asks of a database.
    trait Accounts: Begin {
        fn credit(tx: &mut Self::Tx, points: i64) -> impl Future<Output = anyhow::Result<()>> + Send;
    }

    impl Accounts for PostgresStore {
        async fn credit(tx: &mut sqlx::PgTransaction<'static>, points: i64) -> anyhow::Result<()> {
            sqlx::query("UPDATE account SET points = points + $1").bind(points).execute(&mut **tx).await?;
            Ok(())
        }
    }

    impl Accounts for SqliteStore {
        async fn credit(tx: &mut SqliteTx, points: i64) -> anyhow::Result<()> {
            tx.call(move |db| db.execute("UPDATE account SET points = points + ?1", [points])).await?;
            Ok(())
        }
    }

    async fn on_payment<S: Accounts>(inbox: &Inbox<S>, message: &Message) -> anyhow::Result<bool> {
        let outcome = inbox.process(message, async |tx| S::credit(tx, 10).await).await?;
        Ok(outcome.is_processed())
    }
    // endregion: two databases

    #[tokio::test]
    async fn one_consumer_serves_two_databases() -> anyhow::Result<()> {
        let message = Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
        let consumer = inbox::Consumer::new("loyalty")?;
        const ACCOUNT: &str = "CREATE TABLE account (points bigint)";

        let store = SqliteStore::in_memory()?;
        store.create_schema().await?;
        store.call(|db| db.execute_batch(ACCOUNT)).await?;
        assert!(on_payment(&Inbox::new(store, consumer.clone()), &message).await?);

        let Some((store, _database)) = super::fresh().await? else { return Ok(()) };
        sqlx::raw_sql(ACCOUNT).execute(store.pool()).await?;
        assert!(on_payment(&Inbox::new(store, consumer), &message).await?);
        Ok(())
    }
}

mod test_on_postgres {
    // region: test on postgres
    use inbox::postgres::{PostgresStore, sqlx::PgPool};
    use inbox::{Consumer, Inbox, MessageId};
    use inbox_testkit::servers::{PostgresServer, Wanted};

    async fn test_on_postgres() -> anyhow::Result<()> {
        let server = PostgresServer::shared(Wanted::Any).await?; // started once for all tests of the process
        let database = server.fresh_database().await?; // removed when it is dropped
        let store = PostgresStore::new(PgPool::connect(database.url()).await?);
        store.create_schema().await?;
        let inbox = Inbox::new(store, Consumer::new("loyalty")?);
        assert!(inbox.find(&MessageId::new("payment-17")?).await?.is_none());
        Ok(())
    }
    // endregion: test on postgres

    #[tokio::test]
    async fn a_test_has_a_database_of_its_own() -> anyhow::Result<()> {
        match inbox_testkit::skip_requested("postgres") {
            true => Ok(()),
            false => test_on_postgres().await,
        }
    }
}

mod migration {
    // region: migration
    use inbox::postgres::sqlx::{AssertSqlSafe, PgConnection, raw_sql};
    use inbox::postgres::{ddl, grants, operator_grants};
    use inbox::{Identifier, TableName};

    async fn migrate(conn: &mut PgConnection, app: &str, operator: &str) -> anyhow::Result<()> {
        let table = TableName::new("public", "inbox")?;
        let text = [
            ddl(&table),
            grants(&table, &Identifier::new(app)?),
            operator_grants(&table, &Identifier::new(operator)?),
        ];
        raw_sql(AssertSqlSafe(text.concat())).execute(conn).await?; // names that needed escaping were refused
        Ok(())
    }
    // endregion: migration

    #[tokio::test]
    async fn the_text_of_a_migration_runs_and_so_does_a_purge() -> anyhow::Result<()> {
        use inbox::postgres::sqlx;
        let Some((store, _database)) = super::fresh().await? else { return Ok(()) };
        let me: String = sqlx::query_scalar("SELECT current_user::text").fetch_one(store.pool()).await?;
        let mut conn = store.pool().acquire().await?;
        migrate(&mut conn, &me, &me).await?;

        let rows = "INSERT INTO inbox (consumer, message_id, event_type, registered_at) VALUES
                    ('loyalty', 'old', 'PaymentConfirmed', now() - interval '91 days'),
                    ('loyalty', 'young', 'PaymentConfirmed', now() - interval '89 days')";
        sqlx::raw_sql(rows).execute(&mut *conn).await?;
        for deleted in [1, 0] {
            let purge = sqlx::raw_sql(include_str!("purge_postgres.sql")).execute(&mut *conn).await?;
            assert_eq!(purge.rows_affected(), deleted);
        }
        Ok(())
    }
}

/// An empty database with an inbox, or none if PostgreSQL is left out by name.
async fn fresh() -> anyhow::Result<Option<(inbox::postgres::PostgresStore, inbox_testkit::servers::Database)>>
{
    use inbox_testkit::servers::{PostgresServer, Wanted};
    if inbox_testkit::skip_requested("postgres") {
        return Ok(None);
    }
    let database = PostgresServer::shared(Wanted::Any).await?.fresh_database().await?;
    let pool = inbox::postgres::sqlx::PgPool::connect(database.url()).await?;
    let store = inbox::postgres::PostgresStore::new(pool);
    store.create_schema().await?;
    Ok(Some((store, database)))
}
