//! The store's connections: one writer with a fair queue, and on a file one reader beside it.
//!
//! SQLite has one writer at a time. Who waits for it inside SQLite polls, and any newcomer may be
//! faster; who waits here is served in order and costs nothing. Only other processes and foreign
//! connections are waited for inside SQLite.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inbox_core::Deadline;
use rusqlite::{Connection, OpenFlags, ffi};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::deferred::News;
use super::errors::{extended_code, primary_code, raise};
use super::file_id::FileId;
use super::wait::set_busy_timeout;

/// The connections of one store, shared by its clones.
#[derive(Debug)]
pub(crate) struct Connections {
    writer: Arc<Seat>,
    reader: Arc<Seat>,
    news: News,
}

impl Connections {
    /// On a file: each connection is opened when first needed.
    pub(crate) fn on_file(path: PathBuf) -> Self {
        Self {
            writer: Seat::new(None, Some(path.clone())),
            reader: Seat::new(None, Some(path)),
            news: News::new(),
        }
    }

    /// One connection for everything: in memory a second one would be another database (B56).
    pub(crate) fn single(conn: Connection) -> Self {
        let seat = Seat::new(Some(conn), None);
        Self { writer: Arc::clone(&seat), reader: seat, news: News::new() }
    }

    pub(crate) fn writer(&self) -> &Arc<Seat> {
        &self.writer
    }

    /// Tells of messages that were received.
    pub(crate) fn news(&self) -> &News {
        &self.news
    }

    /// Sees committed rows only: it is never the connection of an open transaction.
    pub(crate) fn reader(&self) -> &Arc<Seat> {
        &self.reader
    }
}

/// Where one connection rests while nobody uses it, and the queue for it.
pub(crate) struct Seat {
    queue: Arc<Semaphore>,
    idle: Mutex<Option<Connection>>,
    /// Of the connection that was opened last; only who has the turn looks at it.
    opened: Mutex<Option<FileId>>,
    /// From where to open; `None` if the connection was given and is all there is.
    file: Option<PathBuf>,
}

impl Seat {
    fn new(conn: Option<Connection>, file: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::new(Semaphore::new(1)),
            idle: Mutex::new(conn),
            opened: Mutex::new(None),
            file,
        })
    }

    /// Waits for the connection's turn. `SQLITE_BUSY` past the deadline.
    pub(crate) async fn turn(self: &Arc<Self>, deadline: Deadline) -> rusqlite::Result<Turn> {
        let queue = Arc::clone(&self.queue);
        let permit = match Arc::clone(&queue).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) if deadline.left().is_zero() => None,
            Err(_) => {
                tokio::time::timeout(deadline.left(), queue.acquire_owned()).await.ok().and_then(Result::ok)
            }
        };
        match permit {
            Some(permit) => Ok(Turn { seat: Arc::clone(self), permit }),
            None => Err(raise(
                ffi::SQLITE_BUSY,
                format!("waited {:?} for another transaction of this store", deadline.bound()),
            )),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_or_open(&self, wait: Duration, missing: Missing) -> rusqlite::Result<Connection> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self.idle().take();
        // SQLite leaves the log beside a file alone when it closes one that was moved away from there.
        if let Some(conn) = idle.filter(|_| !opened.as_ref().is_some_and(FileId::is_stale)) {
            set_busy_timeout(&conn, wait)?;
            return Ok(conn);
        }
        match &self.file {
            Some(path) => {
                let (conn, id) = open_file(path, wait, missing)?;
                *opened = Some(id);
                Ok(conn)
            }
            None => Err(raise(ffi::SQLITE_MISUSE, "the store's only connection is gone")),
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The right to use a seat's connection next.
pub(crate) struct Turn {
    seat: Arc<Seat>,
    permit: OwnedSemaphorePermit,
}

impl Turn {
    /// Takes the connection, opening it if need be. Blocks.
    pub(crate) fn connect(self, wait: Duration, missing: Missing) -> rusqlite::Result<Lease> {
        let conn = self.seat.take_or_open(wait, missing)?;
        Ok(Lease { conn: Some(conn), seat: self.seat, worn: false, _permit: self.permit })
    }
}

/// A connection in use. Dropping it rolls back what is open and gives it back.
pub(crate) struct Lease {
    /// `None` only while being dropped.
    conn: Option<Connection>,
    seat: Arc<Seat>,
    worn: bool,
    /// Released after the connection is back in its seat, since fields are dropped after `drop`.
    _permit: OwnedSemaphorePermit,
}

impl Lease {
    pub(crate) fn conn(&self) -> &Connection {
        self.conn.as_ref().expect("a lease holds its connection until it is dropped")
    }

    /// Whether a transaction is open, by SQLite's own word.
    pub(crate) fn in_transaction(&self) -> bool {
        !self.conn().is_autocommit()
    }

    /// Has the connection closed instead of used again, where another can be opened: after an error
    /// of the file itself a fresh one finds what was moved, mended or recovered meanwhile.
    pub(crate) fn close_after(&mut self, error: &rusqlite::Error) {
        use ffi::{SQLITE_CANTOPEN, SQLITE_CORRUPT, SQLITE_IOERR, SQLITE_NOTADB, SQLITE_READONLY};
        let of_the_file = [SQLITE_CANTOPEN, SQLITE_CORRUPT, SQLITE_IOERR, SQLITE_NOTADB, SQLITE_READONLY];
        self.worn |= primary_code(error).is_some_and(|code| of_the_file.contains(&code));
    }

    /// As [`close_after`](Self::close_after), for an error of the inbox that may have one of SQLite as its source.
    pub(crate) fn close_after_error(&mut self, error: &inbox_core::Error) {
        let of_sqlite = std::error::Error::source(error).and_then(|source| source.downcast_ref());
        if let Some(of_sqlite) = of_sqlite {
            self.close_after(of_sqlite);
        }
    }

    /// As [`close_after`](Self::close_after), for an error of BEGIN. `BUSY_SNAPSHOT` with a statement
    /// under way means that one was leaked: it keeps this connection on an old snapshot for ever. On
    /// the only connection no new transaction helps, so there it is not retryable.
    ///
    /// SQLite does not close a connection with such a statement: its snapshot holds up the log's
    /// checkpoints until the process ends.
    pub(crate) fn close_after_begin(&mut self, error: rusqlite::Error) -> rusqlite::Error {
        self.close_after(&error);
        if extended_code(&error) != Some(ffi::SQLITE_BUSY_SNAPSHOT) || !self.conn().is_busy() {
            return error;
        }
        self.worn = true;
        if self.seat.file.is_some() {
            return error;
        }
        raise(
            ffi::SQLITE_MISUSE,
            "a statement that was never finished keeps an old snapshot on the store's only connection              (SQLITE_BUSY_SNAPSHOT): do not leak statements, and make a new store on a new connection",
        )
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        let clean = conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok();
        if (clean && !self.worn) || self.seat.file.is_none() {
            *self.seat.idle() = Some(conn);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("seat", &self.seat).finish_non_exhaustive()
    }
}

/// What to do if there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Fail: a mistyped path must not become an empty database, in which every message is new.
    Fail,
    /// Create it.
    Create,
}

/// Why a path cannot be a store's, if it cannot (B56).
pub(crate) fn fault_of_path(path: &Path) -> Option<&'static str> {
    const IN_MEMORY: &str = "an in-memory database belongs to one connection, and a store on a file has two: \
                             use SqliteStore::in_memory()";
    let text = path.to_str()?;
    let uri = text.starts_with("file:");
    if text.is_empty()
        || text == ":memory:"
        || (uri && (text.contains(":memory:") || text.contains("mode=memory")))
    {
        Some(IN_MEMORY)
    } else if uri && text.contains("cache=shared") {
        Some("a shared cache does not wait for locks, it fails at once: leave out cache=shared")
    } else if uri && parameters(text).any(|(name, value)| is_without_locks(&name, &value)) {
        Some("without locks two writers mix and the file is corrupted: leave out nolock and vfs=...-none")
    } else {
        None
    }
}

/// `nolock=0` too: nobody needs it, and SQLite has many words for no.
fn is_without_locks(name: &str, value: &str) -> bool {
    name == "nolock" || (name == "vfs" && value.ends_with("-none"))
}

/// The parameters of a `file:` URI as SQLite reads them: before any fragment, with escapes decoded.
fn parameters(uri: &str) -> impl Iterator<Item = (String, String)> {
    let uri = uri.split_once('#').map_or(uri, |(before, _)| before);
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    query.split('&').map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (unescaped(name), unescaped(value))
    })
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let byte = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn open_file(path: &Path, wait: Duration, missing: Missing) -> rusqlite::Result<(Connection, FileId)> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, missing == Missing::Create);
    flags.set(OpenFlags::SQLITE_OPEN_URI, path.to_str().is_some_and(|path| path.starts_with("file:")));
    let conn = Connection::open_with_flags(path, flags)?;
    let id = FileId::of(&conn);
    if conn.path().is_none_or(str::is_empty) {
        return Err(raise(
            ffi::SQLITE_CANTOPEN,
            "the path names an in-memory database; use SqliteStore::in_memory()",
        ));
    }
    set_busy_timeout(&conn, wait)?;
    hold_statements(&conn);
    prefer_wal(&conn)?;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    Ok((conn, id))
}

/// Has a connection of our own keep all of the inbox's statements prepared, and some of the application's.
pub(crate) fn hold_statements(conn: &Connection) {
    conn.set_prepared_statement_cache_capacity(64);
}

/// Switches the file to a write-ahead log, so that readers and the writer do not stop each other.
///
/// The contract holds in the rollback journal too, so a file that cannot be switched because it is
/// in use by others or read-only is no error; `verify` warns. Where SQLite's file layer has no
/// shared memory (`vfs=unix-dotfile`), SQLite keeps the mode and reports no error either. A file
/// system on which the shared memory turns out not to work is an error: the file may be switched.
fn prefer_wal(conn: &Connection) -> rusqlite::Result<()> {
    let mode: String = conn.query_row("PRAGMA main.journal_mode", [], |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    match conn.query_row("PRAGMA main.journal_mode = WAL", [], |_| Ok(())) {
        Err(error) if matches!(primary_code(&error), Some(ffi::SQLITE_BUSY | ffi::SQLITE_READONLY)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b56_a_path_that_is_no_file_is_refused() {
        for bad in ["", ":memory:", "file::memory:", "file:x?mode=memory", "file::memory:?cache=shared"] {
            assert!(fault_of_path(Path::new(bad)).unwrap().contains("in_memory()"), "{bad}");
        }
        assert!(fault_of_path(Path::new("file:x.db?cache=shared")).unwrap().contains("shared cache"));
        for good in ["x.db", "file:x.db", "file:x.db?mode=rw", "memory", "./:memory:", "x.db?nolock=1"] {
            assert_eq!(fault_of_path(Path::new(good)), None, "{good}");
        }
        for good in ["file:nolock=1", "file:x.db?vfs=unix-dotfile", "file:x.db#?nolock=1", "file:%?%=%6"] {
            assert_eq!(fault_of_path(Path::new(good)), None, "{good}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_cannot_be_switched_to_a_log_keeps_its_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let mode = |conn: &Connection| -> String {
            conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap()
        };

        let without_memory = format!("file:{}?vfs=unix-dotfile", path.display());
        let (conn, _) = open_file(Path::new(&without_memory), Duration::ZERO, Missing::Create).unwrap();
        assert_eq!(mode(&conn), "delete");
        conn.execute_batch("CREATE TABLE t (a)").unwrap();
        drop(conn);

        let in_use = Connection::open(&path).unwrap();
        in_use.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert_eq!(mode(&open_file(&path, Duration::ZERO, Missing::Fail).unwrap().0), "delete");
        drop(in_use);

        let read_only = format!("file:{}?mode=ro", path.display());
        assert_eq!(
            mode(&open_file(Path::new(&read_only), Duration::ZERO, Missing::Fail).unwrap().0),
            "delete"
        );

        assert_eq!(mode(&open_file(&path, Duration::ZERO, Missing::Fail).unwrap().0), "wal");
    }

    #[test]
    fn b56_an_in_memory_path_in_disguise_is_refused_when_opened() {
        let error =
            open_file(Path::new("file:x?mode=%6demory"), Duration::ZERO, Missing::Create).unwrap_err();
        assert!(error.to_string().contains("in_memory()"), "{error}");
    }
}
