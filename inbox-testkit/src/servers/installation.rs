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

    /// Programs in an unpacked root folder.
    pub(super) fn unpacked(root: PathBuf, programs: PathBuf) -> Self {
        Self { root: Some(root), programs }
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

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
