//! A running server of whatever engine: its URL, its databases, its end.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;
use url::Url;

use super::database::{Engine, Fresh, Maintenance};
use super::installation::is_root;
use super::supervisor::Supervised;
use super::{ServerError, places};

/// Parses the URL of a server, named by where it came from: it may hold a password.
pub(super) fn parse(url: &str, place: &str) -> Result<Url, ServerError> {
    Url::parse(url).map_err(|source| ServerError::Url { place: place.to_owned(), source })
}

/// What keeps a server running that is none of this machine's own.
#[cfg(feature = "containers")]
type Container = super::container::Running;
#[cfg(not(feature = "containers"))]
type Container = std::convert::Infallible;

pub(super) struct Server<E: Engine> {
    url: Url,
    version: E::Version,
    maintenance: Arc<Maintenance>,
    own: Mutex<Option<Supervised>>,
    _container: Option<Container>,
}

impl<E: Engine> Server<E> {
    /// A server that runs already, and is never stopped here.
    pub(super) async fn at(url: Url) -> Result<Self, ServerError> {
        Self::connect(url, None, None).await
    }

    /// A server that was started here.
    pub(super) async fn started(url: Url, own: Supervised) -> Result<Self, ServerError> {
        Self::connect(url, Some(own), None).await
    }

    #[cfg(feature = "containers")]
    pub(super) async fn in_container(url: Url, container: Container) -> Result<Self, ServerError> {
        Self::connect(url, None, Some(container)).await
    }

    async fn connect(
        url: Url,
        own: Option<Supervised>,
        container: Option<Container>,
    ) -> Result<Self, ServerError> {
        let (maintenance, version) = Maintenance::start::<E>(&url).await?;
        let maintenance = Arc::new(maintenance);
        Ok(Self { url, version, maintenance, own: Mutex::new(own), _container: container })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn version(&self) -> &E::Version {
        &self.version
    }

    pub(super) fn process_id(&self) -> Option<u32> {
        self.own().as_ref().and_then(Supervised::pid)
    }

    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.own().as_ref().map(|own| own.folder().to_path_buf())
    }

    pub(super) async fn fresh(&self) -> Result<Fresh, ServerError> {
        Fresh::create(&self.maintenance, &self.url).await
    }

    /// Stops a server that was started here, and waits until its process and its folder are gone.
    pub(super) async fn stop(&self) {
        let own = self.own().take();
        if let Some(own) = own {
            own.stop().await;
        }
    }

    fn own(&self) -> MutexGuard<'_, Option<Supervised>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The servers that all tests of this process share, each started once, or found not to start.
pub(super) struct Shared<W, S> {
    servers: LazyLock<Mutex<HashMap<W, Slot<S>>>>,
}

type Slot<S> = Arc<OnceCell<Result<S, ServerError>>>;

impl<W: Eq + Hash, S: Clone> Shared<W, S> {
    pub(super) const fn new() -> Self {
        Self { servers: LazyLock::new(Mutex::default) }
    }

    pub(super) async fn get(
        &self,
        wanted: W,
        start: impl Future<Output = Result<S, ServerError>>,
    ) -> Result<S, ServerError> {
        let slot: Slot<S> =
            self.servers.lock().unwrap_or_else(PoisonError::into_inner).entry(wanted).or_default().clone();
        slot.get_or_init(|| start).await.clone()
    }
}

/// The ways out for whoever has no server.
pub(super) struct Advice<'a> {
    /// What was asked for, in words.
    pub(super) server: &'a str,
    pub(super) package: &'a str,
    /// The variable that gives exactly this server.
    pub(super) variable: &'a str,
    pub(super) stand: &'a str,
    /// The stand of tests that start a server of their own.
    pub(super) own_stand: &'a str,
    /// The only folders that were looked in.
    pub(super) programs: Option<&'a [PathBuf]>,
}

impl Advice<'_> {
    pub(super) fn not_found(&self) -> ServerError {
        let Self { server, package, variable, .. } = self;
        // Whoever gave a URL is not to be told to give one.
        let (instead, stand) = match places::given_url(variable) {
            Some(_) => (
                format!(
                    "the one that {variable} gives is shared, and not for tests that change or end theirs: "
                ),
                self.own_stand,
            ),
            None => (format!("set {variable} to the URL of a server that tests may use, or "), self.stand),
        };
        let root = if is_root() { "" } else { " (as root: only root can run an unpacked server)" };
        let looked = match self.programs {
            Some(folders) => format!("; looked in {folders:?} only"),
            None => String::new(),
        };
        ServerError::NotFound {
            advice: format!(
                "{instead}install {server} (package `{package}`), or run `cargo xtask servers` in a checkout of \
                 inbox{root}, or enable the feature `containers` of inbox-testkit where a container engine runs, \
                 or leave its tests out with INBOX_TEST_SKIP={stand}{looked}"
            ),
            server: (*server).to_owned(),
        }
    }
}
