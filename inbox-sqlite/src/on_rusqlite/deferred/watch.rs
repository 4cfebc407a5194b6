//! [`News`]: what was received in this process wakes its workers at once. Other processes do not tell.

use async_trait::async_trait;
use inbox_core::{Error, ErrorKind, Watch};
use tokio::sync::watch;

/// Shared by a store's clones, whatever their table: a worker that is woken for nothing looks once.
#[derive(Debug)]
pub(crate) struct News(watch::Sender<()>);

impl News {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// To be called after the commit: whoever looks before it finds nothing.
    pub(crate) fn tell(&self) {
        self.0.send_replace(());
    }

    pub(crate) fn watch(&self) -> Box<dyn Watch> {
        Box::new(Watching(self.0.subscribe()))
    }
}

struct Watching(watch::Receiver<()>);

#[async_trait]
impl Watch for Watching {
    async fn changed(&mut self) -> Result<(), Error> {
        self.0.changed().await.map_err(|source| {
            Error::new(ErrorKind::Unavailable, "watch for kept messages")
                .with_detail("the store is gone")
                .with_source(source)
        })
    }
}
