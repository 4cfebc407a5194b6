//! Where a server's programs are, on the machine or in an unpacked root folder.

use std::path::{Path, PathBuf};

/// A folder of programs that belong together.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    /// The folder to `chroot` into, for a server that was unpacked and not installed.
    pub(super) root: Option<PathBuf>,
    /// The folder of the programs, as seen from within `root`.
    pub(super) programs: PathBuf,
}

impl Installation {
    /// Programs installed on this machine.
    pub(super) fn installed(programs: impl Into<PathBuf>) -> Self {
        Self { root: None, programs: programs.into() }
    }

    /// Programs in a root folder that `cargo xtask servers` unpacked, if it is complete. Only root
    /// can use it, since only root may `chroot`.
    pub(super) fn unpacked(name: &str, programs: impl Into<PathBuf>) -> Option<Self> {
        let root = unpacked_servers()?.join(name);
        let complete = is_root() && root.join(".complete").is_file();
        complete.then(|| Self { root: Some(root), programs: programs.into() })
    }

    /// Itself, if it has the program.
    pub(super) fn with(self, program: &str) -> Option<Self> {
        self.outside(&self.programs.join(program)).is_file().then_some(self)
    }

    /// The program's path, as seen from within `root`.
    pub(super) fn program(&self, name: &str) -> String {
        self.programs.join(name).display().to_string()
    }

    /// A path within `root`, as this process sees it.
    pub(super) fn outside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_path_buf(),
        }
    }
}

impl std::fmt::Display for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.outside(&self.programs).display().fmt(f)
    }
}

/// Folders of programs that every user has: `PATH`, and where Debian keeps daemons.
pub(super) fn common_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from)).collect()
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `INBOX_SERVERS_DIR`, else `servers` in the target folder that holds the running program. Cargo
/// gives a test no variable for that folder, and `CARGO_TARGET_DIR` may be relative to another
/// folder, so the program's own path is the reliable way.
fn unpacked_servers() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("INBOX_SERVERS_DIR").filter(|folder| !folder.is_empty()) {
        return Some(PathBuf::from(folder));
    }
    std::env::current_exe()
        .ok()?
        .ancestors()
        .find(|folder| folder.join(".rustc_info.json").is_file() || folder.ends_with("target"))
        .map(|target| target.join("servers"))
}
