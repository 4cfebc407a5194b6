//! Watching for messages by LISTEN and NOTIFY.

use async_trait::async_trait;
use inbox_core::{Consumer, Error, TableName, Watch};
use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::{PostgresStore, errors};

/// The longest name of a channel in bytes: one less than the server's NAMEDATALEN.
const LONGEST: usize = 63;

/// The channel of a table: its name with its schema; of a long one, the beginning and a hash of it all.
pub(crate) fn channel_of(messages: &TableName) -> String {
    let name = format!("{}.{}", messages.schema(), messages.table());
    if name.len() <= LONGEST {
        return name;
    }
    // FNV-1a. Where two tables met on one channel, their workers would look once too often.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{}_{hash:016x}", &name[..LONGEST - 17])
}

/// Listens on a connection of its own, which is not one of the store's pool.
pub(crate) async fn watch(
    store: &PostgresStore,
    consumer: &Consumer,
) -> Result<Option<Box<dyn Watch>>, Error> {
    let (Some(channel), true) = (store.channel(), store.prepared()) else {
        return Ok(None);
    };
    let doing = format!("watch for messages of consumer {:?}", consumer.as_str());
    let options = store.pool().options();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(options.get_acquire_timeout())
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with((*store.pool().connect_options()).clone());
    let failed = |source| errors::begin_error(&*doing, source);
    let mut listener = PgListener::connect_with(&pool).await.map_err(failed)?;
    listener.eager_reconnect(false);
    listener.listen(channel).await.map_err(failed)?;
    Ok(Some(Box::new(Listening { listener, consumer: consumer.clone(), lost: false, doing })))
}

struct Listening {
    listener: PgListener,
    consumer: Consumer,
    /// The connection was lost, and with it perhaps news.
    lost: bool,
    doing: String,
}

#[async_trait]
impl Watch for Listening {
    async fn changed(&mut self) -> Result<(), Error> {
        let told = self.next().await;
        told.map_err(|source| errors::error(&*self.doing, source))
    }
}

impl Listening {
    async fn next(&mut self) -> Result<(), sqlx::Error> {
        loop {
            // Said once it listens again: whoever looks now misses nothing that comes later.
            if self.lost {
                sqlx::raw_sql("SELECT 1").execute(&mut self.listener).await?;
                self.lost = false;
                return Ok(());
            }
            match self.listener.try_recv().await? {
                Some(told) if told.payload() == self.consumer.as_str() => return Ok(()),
                Some(_) => {}
                None => self.lost = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channels_of_long_names_fit_and_differ() {
        let schema = "s".repeat(40);
        let channel = |table: &str| channel_of(&TableName::new(&schema, table).unwrap().messages());
        let long = "t".repeat(30);
        assert_eq!(channel(&format!("{long}a")).len(), LONGEST);
        assert_ne!(channel(&format!("{long}a")), channel(&format!("{long}b")));
        assert_eq!(channel_of(&TableName::new("app", "inbox").unwrap().messages()), "app.inbox_messages");
    }
}
