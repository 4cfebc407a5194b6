//! A handler's future must be `Send`, so that `process` works inside `tokio::spawn`.

use std::rc::Rc;

use inbox_core::{Error, Inbox, Message};
use inbox_postgres::PostgresStore;

async fn holds_an_rc(inbox: &Inbox<PostgresStore>, message: &Message) -> Result<(), Error> {
    inbox
        .process(message, async |_tx| {
            let local = Rc::new(1);
            std::future::ready(()).await;
            drop(local);
            Ok::<_, Error>(())
        })
        .await?;
    Ok(())
}

fn main() {}
