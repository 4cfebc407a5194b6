//! The transaction was moved into `register`; what commits is the guard that came back.

use inbox_core::{Inbox, Message};
use inbox_postgres::PostgresStore;
use sqlx::{Postgres, Transaction};

type Failed = Box<dyn std::error::Error>;

async fn commit_what_was_moved(
    inbox: &Inbox<PostgresStore>,
    tx: Transaction<'_, Postgres>,
    message: &Message,
) -> Result<(), Failed> {
    let _registered = inbox.register(tx, message).await?;
    tx.commit().await?;
    Ok(())
}

fn main() {}
