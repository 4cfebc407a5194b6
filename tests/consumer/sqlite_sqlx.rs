//! What the docs show of a consumer on SQLite through sqlx.

// region: sqlite through sqlx
use inbox::sqlite::on_sqlx::{SqlxSqliteStore, is_retryable};
use inbox::sqlite::sqlx;
use inbox::sqlite::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use inbox::{Consumer, Inbox, Message};

async fn connect(path: &str) -> anyhow::Result<Inbox<SqlxSqliteStore>> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let store = SqlxSqliteStore::new(SqlitePool::connect_with(options).await?); // one per file and process
    store.create_schema().await?;
    Ok(Inbox::new(store, Consumer::new("loyalty")?))
}

async fn on_payment(inbox: &Inbox<SqlxSqliteStore>, message: &Message) -> anyhow::Result<bool> {
    let again = |error: &anyhow::Error| error.downcast_ref().is_some_and(is_retryable);
    let outcome = inbox
        .process_retrying(message, again, async |tx| {
            sqlx::query("UPDATE account SET points = points + 10").execute(&mut **tx).await?;
            anyhow::Ok(())
        })
        .await?;
    Ok(outcome.is_processed())
}
// endregion: sqlite through sqlx

// region: in memory through sqlx
use inbox::sqlite::sqlx::sqlite::SqlitePoolOptions;

async fn in_memory() -> Result<SqlitePool, sqlx::Error> {
    let one = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    one.connect("sqlite::memory:").await
}
// endregion: in memory through sqlx

#[tokio::test]
async fn a_file_is_created_and_a_payment_credited_once() -> anyhow::Result<()> {
    let folder = super::Folder::new("sqlx")?;
    let path = folder.0.join("app.db");
    let inbox = connect(path.to_str().expect("a path in UTF-8")).await?;
    credited_once(&inbox).await?;
    assert!(inbox.store().verify().await?.warnings().next().is_none(), "the settings are the ones to have");
    Ok(())
}

#[tokio::test]
async fn a_database_in_memory_does_for_a_test() -> anyhow::Result<()> {
    let store = SqlxSqliteStore::new(in_memory().await?);
    store.create_schema().await?;
    credited_once(&Inbox::new(store, Consumer::new("loyalty")?)).await
}

async fn credited_once(inbox: &Inbox<SqlxSqliteStore>) -> anyhow::Result<()> {
    let pool = inbox.store().pool();
    sqlx::raw_sql("CREATE TABLE account (points INTEGER); INSERT INTO account VALUES (0)")
        .execute(pool)
        .await?;
    let message = Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
    assert!(on_payment(inbox, &message).await?);
    assert!(!on_payment(inbox, &message).await?);
    let points: i64 = sqlx::query_scalar("SELECT points FROM account").fetch_one(pool).await?;
    assert_eq!(points, 10);
    Ok(())
}
