//! A server in a container, through testcontainers. Needs a container engine and the cargo feature
//! `containers`.

use std::any::Any;
use std::process::ChildStdin;
use std::sync::Arc;

use testcontainers::core::ContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerRequest, Image, TestcontainersError};
use url::Url;

use super::{ServerError, server, supervisor};

/// A container that is removed when this is dropped, or with the process.
pub(super) struct Running {
    _container: Box<dyn Any + Send + Sync>,
    /// Removes the container when this process is killed, which leaves the client no chance to.
    _remover: Option<ChildStdin>,
}

/// Starts a container, and tells the address of its server: `scheme` is what comes before it, such as
/// `mysql://root`.
async fn start<I>(
    request: ContainerRequest<I>,
    port: u16,
    scheme: &str,
) -> Result<(Url, Running), ServerError>
where
    I: Image + 'static,
{
    let image = request.descriptor();
    let failed = |source: TestcontainersError| ServerError::Container {
        image: image.clone(),
        source: Arc::new(source),
    };
    let container = request.start().await.map_err(failed)?;
    let host = container.get_host().await.map_err(failed)?;
    let port = container.get_host_port_ipv4(ContainerPort::Tcp(port)).await.map_err(failed)?;
    let url = server::parse(&format!("{scheme}@{host}:{port}"), "the container's address")?;
    let remover = supervisor::afterwards("docker", &["rm", "--force", "--volumes", container.id()]).ok();
    Ok((url, Running { _container: Box::new(container), _remover: remover }))
}

#[cfg(feature = "postgres")]
mod postgres {
    use testcontainers::ImageExt;
    use testcontainers_modules::postgres::Postgres;

    use super::start;
    use crate::servers::ServerError;
    use crate::servers::postgres::{PostgresServer, Wanted};
    use crate::servers::server::Server;

    /// The image's tag for [`Wanted::Any`].
    const NEWEST: u32 = 18;

    pub(in crate::servers) async fn postgres(
        wanted: Wanted,
        settings: &[(String, String)],
    ) -> Result<PostgresServer, ServerError> {
        let tag = match wanted {
            Wanted::Any => NEWEST,
            Wanted::Major(major) => major,
        };
        let request =
            Postgres::default().with_host_auth().with_tag(tag.to_string()).with_cmd(command(settings));
        let (mut url, container) = start(request, 5432, "postgres://postgres").await?;
        url.set_path("postgres");
        Ok(Server::in_container(url, container).await?.into())
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
}

#[cfg(feature = "mysql")]
mod mysql {
    use testcontainers::ImageExt;
    use testcontainers_modules::{mariadb, mysql};

    use super::start;
    use crate::servers::ServerError;
    use crate::servers::mysql::{MySqlServer, MySqlWanted};
    use crate::servers::server::Server;

    pub(in crate::servers) async fn mysql(
        wanted: MySqlWanted,
        arguments: &[String],
    ) -> Result<MySqlServer, ServerError> {
        // Where it listens is the image's business, and its script needs the socket.
        let images_own = ["--bind-address=", "--socket="];
        let is_ours = |argument: &&String| !images_own.iter().any(|name| argument.starts_with(name));
        let command: Vec<String> = arguments.iter().filter(is_ours).cloned().collect();
        let (port, scheme) = (3306, "mysql://root");
        let started = match wanted {
            MySqlWanted::MariaDb10_11 => {
                start(mariadb::Mariadb::default().with_tag("10.11").with_cmd(command), port, scheme).await
            }
            MySqlWanted::MariaDb11_8 => {
                start(mariadb::Mariadb::default().with_tag("11.8").with_cmd(command), port, scheme).await
            }
            MySqlWanted::MySql => {
                start(mysql::Mysql::default().with_tag("8.4").with_cmd(command), port, scheme).await
            }
        };
        let (url, container) = started?;
        Ok(Server::in_container(url, container).await?.into())
    }
}

#[cfg(feature = "mysql")]
pub(super) use mysql::mysql;
#[cfg(feature = "postgres")]
pub(super) use postgres::postgres;
