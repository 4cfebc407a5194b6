//! An `async move` closure that owns what it captured: the docs of `Handler` show the remedy.

use inbox_core::{Error, Inbox, Message};
use inbox_postgres::PostgresStore;

async fn moves(inbox: &Inbox<PostgresStore>, message: &Message, account: String) -> Result<(), Error> {
    inbox
        .process(message, async move |_tx| {
            println!("credit {account}");
            Ok::<_, Error>(())
        })
        .await?;
    Ok(())
}

fn main() {}
