//! What the docs show of a consumer on MySQL and MariaDB.

use inbox_testkit::servers::{MySqlServer, MySqlWanted, skip_requested};

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
    for wanted in MySqlWanted::ALL {
        if skip_requested(wanted.stand()) {
            eprintln!("skipped by INBOX_TEST_SKIP: {}", wanted.stand());
            continue;
        }
        let database = MySqlServer::shared(wanted).await?.fresh_database().await?;
        let message = inbox::Message::new(inbox::MessageId::new("payment-17")?, "PaymentConfirmed")?;
        let mut handled = 0;
        for _start in 1..=2 {
            let inbox = connect(database.url()).await?;
            let outcome = inbox.process(&message, async |_tx| anyhow::Ok(())).await?;
            handled += i32::from(matches!(outcome, inbox::Outcome::Processed(())));
        }
        assert_eq!(handled, 1, "{wanted}");
        database.close().await?;
    }
    Ok(())
}
