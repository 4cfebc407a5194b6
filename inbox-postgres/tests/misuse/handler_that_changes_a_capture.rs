//! A handler may run several times, and its captures would keep what a rolled back run did to them.

use inbox_core::{Error, Inbox, Message};
use inbox_postgres::PostgresStore;

async fn counts(inbox: &Inbox<PostgresStore>, message: &Message) -> Result<u32, Error> {
    let mut credited = 0;
    inbox
        .process(message, async |_tx| {
            credited += 1;
            Ok::<_, Error>(())
        })
        .await?;
    Ok(credited)
}

fn main() {}
