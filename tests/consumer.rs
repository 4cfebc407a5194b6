//! What the README and the docs show of a consumer, as its author would write it.

#[path = "consumer/deferred.rs"]
mod deferred;
#[cfg(feature = "mysql")]
#[path = "consumer/mysql.rs"]
mod mysql;
#[cfg(feature = "postgres")]
#[path = "consumer/postgres.rs"]
mod postgres;
#[path = "consumer/sqlite.rs"]
mod sqlite;
#[cfg(feature = "sqlite-sqlx")]
#[path = "consumer/sqlite_sqlx.rs"]
mod sqlite_sqlx;

// region: unit test
use inbox::sqlite::SqliteStore;
use inbox::{Consumer, Inbox, Message, MessageId};

/// The code under test: credits a payment's points.
async fn on_payment(inbox: &Inbox<SqliteStore>, id: &str, points: i64) -> anyhow::Result<()> {
    let message = Message::new(MessageId::new(id)?, "PaymentConfirmed")?;
    inbox
        .process(&message, async |tx| {
            tx.call(move |db| db.execute("UPDATE account SET points = points + ?1", [points])).await?;
            anyhow::Ok(())
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_payment_delivered_three_times_is_credited_once() -> anyhow::Result<()> {
    let store = SqliteStore::in_memory()?;
    store.create_schema().await?;
    store
        .call(|db| db.execute_batch("CREATE TABLE account (points INTEGER); INSERT INTO account VALUES (0)"))
        .await?;
    let inbox = Inbox::new(store.clone(), Consumer::new("loyalty")?);

    for _delivery in 1..=3 {
        on_payment(&inbox, "payment-17", 10).await?;
    }

    let points: i64 =
        store.call(|db| db.query_row("SELECT points FROM account", [], |row| row.get(0))).await?;
    assert_eq!(points, 10);
    Ok(())
}
// endregion: unit test

/// A folder that is gone afterwards.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("inbox-consumer-{name}-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
