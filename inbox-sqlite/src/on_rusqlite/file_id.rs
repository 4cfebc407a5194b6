//! Which file a path names, to notice that a connection has another one open than its path names now.

use std::path::PathBuf;

use rusqlite::Connection;

/// The file that a connection has open, as the system knew it then.
#[derive(Debug)]
pub(crate) struct FileId {
    path: PathBuf,
    id: Option<Id>,
}

impl FileId {
    /// To be called right after opening.
    pub(crate) fn of(conn: &Connection) -> Self {
        let path = PathBuf::from(conn.path().unwrap_or_default());
        Self { id: id_of(&path), path }
    }

    /// Whether the path names another file by now, or none. SQLite itself goes on writing to the
    /// old one in a write-ahead log. An open file keeps its number, so no other file has it meanwhile.
    pub(crate) fn is_stale(&self) -> bool {
        self.id != id_of(&self.path)
    }
}

/// Device and inode.
type Id = (u64, u64);

#[cfg(unix)]
fn id_of(path: &std::path::Path) -> Option<Id> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Elsewhere an open file can be neither replaced nor removed, or the standard library does not tell.
#[cfg(not(unix))]
fn id_of(_path: &std::path::Path) -> Option<Id> {
    None
}
