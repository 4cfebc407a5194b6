//! By value the transaction comes back for a new message only: no effect without a registration.

use inbox_core::{Inbox, Message, Registered};
use inbox_postgres::PostgresStore;
use sqlx::{Executor, Postgres, Transaction};

type Failed = Box<dyn std::error::Error>;

async fn effect_of_a_duplicate(
    inbox: &Inbox<PostgresStore>,
    mut tx: Transaction<'_, Postgres>,
    message: &Message,
) -> Result<(), Failed> {
    match inbox.register(tx, message).await? {
        Registered::New(new) => new.commit().await?,
        Registered::Duplicate(_) => {
            tx.execute("UPDATE account SET points = points + 10").await?;
        }
    }
    Ok(())
}

fn main() {}
