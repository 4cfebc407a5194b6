//! What the docs show of a consumer on MySQL and MariaDB.

use inbox_testkit::servers::{MySqlDatabase, MySqlServer, MySqlWanted, skip_requested};

// region: on mysql
use inbox::mysql::{MySqlStore, sqlx};
use inbox::{Consumer, Inbox};

async fn connect(url: &str) -> anyhow::Result<Inbox<MySqlStore>> {
    let store = MySqlStore::new(sqlx::MySqlPool::connect(url).await?)?; // the URL must name a database
    store.create_schema().await?; // creates the table `inbox` in it, or verifies what is there
    Ok(Inbox::new(store, Consumer::new("loyalty")?))
}
// endregion: on mysql

#[tokio::test]
async fn a_service_on_mysql_or_mariadb_may_start_again() -> anyhow::Result<()> {
    for database in databases().await? {
        let message = inbox::Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
        let mut handled = 0;
        for _start in 1..=2 {
            let inbox = connect(database.url()).await?;
            let outcome = inbox.process(&message, async |_tx| anyhow::Ok(())).await?;
            handled += i32::from(matches!(outcome, inbox::Outcome::Processed(())));
        }
        assert_eq!(handled, 1, "{}", database.url());
        database.close().await?;
    }
    Ok(())
}

mod nested {
    // region: nested
    use inbox::mysql::MySqlStore;
    use inbox::mysql::sqlx::{self, Connection, MySql, Transaction};
    use inbox::{ErrorKind, Inbox, Message};

    /// In a handler: credits a bonus once, whichever message brings it.
    async fn bonus(
        inbox: &Inbox<MySqlStore>,
        tx: &mut Transaction<'_, MySql>,
        bonus: &Message,
    ) -> anyhow::Result<()> {
        let mut nested = inbox.guard(tx.begin().await?).await?; // a savepoint, with a guard of its own
        match nested.register_if_new(bonus).await {
            Ok(answer) if answer.is_new() => {
                sqlx::query("UPDATE account SET points = points + 100").execute(&mut **nested).await?;
                nested.commit().await?;
            }
            Err(error) if error.kind() != ErrorKind::Mismatch => return Err(error.into()),
            _ => nested.rollback().await?, // what `tx` did before stays, and `tx` can be committed
        }
        Ok(())
    }
    // endregion: nested

    #[tokio::test]
    async fn a_mismatch_in_a_nested_transaction_leaves_the_outer_one() -> anyhow::Result<()> {
        for database in super::databases().await? {
            let inbox = super::connect(database.url()).await?;
            let pool = inbox.store().pool();
            sqlx::raw_sql("CREATE TABLE account (points BIGINT)").execute(pool).await?;
            sqlx::raw_sql("INSERT INTO account VALUES (0)").execute(pool).await?;
            let message = |id: &str, payload: &[u8]| {
                let message = Message::new(inbox::MessageId::new(id)?, "PaymentConfirmed")?;
                anyhow::Ok(message.with_payload(payload))
            };
            for (id, payload) in [("a", "new"), ("b", "new"), ("c", "another")] {
                let brought = message("bonus", payload.as_bytes())?;
                inbox
                    .process(&message(id, b"payment")?, async |tx| {
                        sqlx::query("UPDATE account SET points = points + 1").execute(&mut **tx).await?;
                        bonus(&inbox, tx, &brought).await
                    })
                    .await?;
            }
            let points: i64 = sqlx::query_scalar("SELECT points FROM account").fetch_one(pool).await?;
            assert_eq!(points, 103, "{}", database.url());
            database.close().await?;
        }
        Ok(())
    }
}

mod ping_on_release {
    // region: ping on release
    use std::time::Duration;

    use inbox::mysql::sqlx::{self, Connection, MySqlPool, mysql::MySqlPoolOptions};

    async fn connect(url: &str) -> Result<MySqlPool, sqlx::Error> {
        let options = MySqlPoolOptions::new().after_release(|conn, _| {
            Box::pin(async move {
                match tokio::time::timeout(Duration::from_secs(1), conn.ping()).await {
                    Ok(answer) => answer.map(|()| true),
                    Err(_) => Err(sqlx::Error::PoolTimedOut), // any error closes it at once
                }
            })
        });
        options.connect(url).await
    }
    // endregion: ping on release

    #[tokio::test]
    async fn a_statement_that_was_given_up_takes_no_connection_of_the_pool() -> anyhow::Result<()> {
        use std::future::{Future, poll_fn};
        use std::task::Poll;
        for database in super::databases().await? {
            let pool = connect(database.url()).await?;
            // More often than the pool has connections.
            for attempt in 0..12 {
                let mut tx = pool.begin().await?;
                let never_prepared_before = sqlx::AssertSqlSafe(format!("SELECT 1, {attempt}"));
                let mut statement = Box::pin(sqlx::query(never_prepared_before).execute(&mut *tx));
                poll_fn(|cx| Poll::Ready(statement.as_mut().poll(cx).is_ready())).await;
            }
            let one: i64 = sqlx::query_scalar("SELECT 1").fetch_one(&pool).await?;
            assert_eq!(one, 1, "{}", database.url());
            database.close().await?;
        }
        Ok(())
    }
}

/// An empty database on each server that is not left out by name.
async fn databases() -> anyhow::Result<Vec<MySqlDatabase>> {
    let mut databases = Vec::new();
    for wanted in MySqlWanted::ALL {
        if skip_requested(wanted.stand()) {
            eprintln!("skipped by INBOX_TEST_SKIP: {}", wanted.stand());
            continue;
        }
        databases.push(MySqlServer::shared(wanted).await?.fresh_database().await?);
    }
    Ok(databases)
}
