//! [`DeferredStand`]: how the suite reaches a store that keeps whole messages (D1 to D11).

mod adapter;
pub(super) mod keeper;

use std::sync::Arc;

use inbox_core::{Begin, Deferred, Inbox};

pub(super) use adapter::Tools;
use keeper::TestKeeper;

/// What a stand answers whose store keeps messages: [`KeepsMessages`] is one for every such store.
pub trait DeferredStand<S: Begin>: Send + Sync {
    /// The inbox as the suite's cases use it. Part of the suite, not for a stand to write.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "written here only")]
    fn keeper<'a>(&self, tools: &'a dyn Tools<S>, inbox: Inbox<Arc<S>>) -> Box<dyn TestKeeper + 'a>
    where
        S: 'a;
}

/// Answer `Some(&KeepsMessages)` from [`Stand::deferred`](super::Stand::deferred) if the store implements
/// [`Deferred`], and the cases of the deferred inbox are run on it.
#[derive(Debug, Clone, Copy)]
pub struct KeepsMessages;

impl<S: Deferred + 'static> DeferredStand<S> for KeepsMessages {
    #[allow(private_interfaces, reason = "written here only")]
    fn keeper<'a>(&self, tools: &'a dyn Tools<S>, inbox: Inbox<Arc<S>>) -> Box<dyn TestKeeper + 'a>
    where
        S: 'a,
    {
        Box::new(adapter::Keeper { tools, inbox })
    }
}
