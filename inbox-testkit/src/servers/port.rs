//! A free TCP port of the loopback interface.

use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;

/// How often a server is started anew when another process took its port in between.
pub(super) const ATTEMPTS: usize = 5;

/// A port that is free now. Nothing keeps it free until the server binds it: see [`was_taken`].
pub(super) fn free() -> Result<u16, ServerError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| ServerError::io("bind a port of", "127.0.0.1", e))
}

/// True when a server's log says that its port was taken by another process.
pub(super) fn was_taken(log: &str) -> bool {
    log.contains("Address already in use")
}
