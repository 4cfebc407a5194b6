//! Starts a server on a free TCP port of the loopback interface.

use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;
use super::supervisor::Supervised;

/// How often a server is started anew when another process took its port in between.
const ATTEMPTS: usize = 5;

/// The ports that one server is tried on.
pub(super) struct Attempts {
    left: usize,
}

impl Attempts {
    pub(super) fn new() -> Self {
        Self { left: ATTEMPTS }
    }

    /// The port for the next attempt.
    pub(super) fn port(&mut self) -> Result<u16, ServerError> {
        self.left -= 1;
        free()
    }

    /// The error of a server (its name in words) that did not start, unless it is to be tried again.
    pub(super) fn failed(&self, server: String, own: &Supervised, reason: String) -> Result<(), ServerError> {
        let log = own.log_tail();
        match self.left > 0 && was_taken(&log) {
            true => Ok(()),
            false => Err(ServerError::Start { server, reason, log }),
        }
    }
}

/// A port that is free now. Nothing keeps it free until the server binds it: see [`was_taken`].
fn free() -> Result<u16, ServerError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| ServerError::io("bind a port of", "127.0.0.1", e))
}

/// True when a server's log says that its port was taken by another process.
fn was_taken(log: &str) -> bool {
    log.contains("Address already in use")
}
