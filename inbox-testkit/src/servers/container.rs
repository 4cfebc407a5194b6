//! A server in a container, through testcontainers. Needs a container engine and the cargo feature
//! `containers`.

use std::process::ChildStdin;
use std::sync::Arc;

use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ImageExt, TestcontainersError};
use testcontainers_modules::postgres::Postgres;
use url::Url;

use super::postgres::{PostgresServer, Wanted};
use super::{ServerError, supervisor};

/// The image's tag for [`Wanted::Any`].
const NEWEST: u32 = 18;

/// A container that is removed when this is dropped, or with the process.
pub(super) struct Running {
    _container: ContainerAsync<Postgres>,
    /// Removes the container when this process is killed, which leaves the client no chance to.
    _remover: Option<ChildStdin>,
}

pub(super) async fn postgres(
    wanted: Wanted,
    settings: &[(String, String)],
) -> Result<PostgresServer, ServerError> {
    let tag = match wanted {
        Wanted::Any => NEWEST,
        Wanted::Major(major) => major,
    };
    let failed = |source: TestcontainersError| ServerError::Container {
        image: format!("postgres:{tag}"),
        source: Arc::new(source),
    };
    let container = Postgres::default()
        .with_host_auth()
        .with_tag(tag.to_string())
        .with_cmd(command(settings))
        .start()
        .await
        .map_err(failed)?;
    let host = container.get_host().await.map_err(failed)?;
    let port = container.get_host_port_ipv4(5432).await.map_err(failed)?;
    let url = Url::parse(&format!("postgres://postgres@{host}:{port}/postgres"))
        .map_err(|source| ServerError::Url { place: "the container's address".to_owned(), source })?;
    let remover = supervisor::afterwards("docker", &["rm", "--force", "--volumes", container.id()]).ok();
    PostgresServer::in_container(url, Running { _container: container, _remover: remover }).await
}

/// The server's command line. Where it listens is the image's business.
fn command(settings: &[(String, String)]) -> Vec<String> {
    let mut command = vec!["postgres".to_owned()];
    for (name, value) in settings {
        if !["listen_addresses", "unix_socket_directories"].contains(&name.as_str()) {
            command.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
    }
    command
}
