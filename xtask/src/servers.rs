//! `cargo xtask servers`: finds, installs or unpacks every server that the tests start.
//!
//! The tests themselves never install anything: they look in the same places as [`Stand::find`],
//! and a server that is missing there is a failed test.

use std::path::{Path, PathBuf};

use crate::places::MySqlStand;
use crate::{Result, debian, places};

/// One server that tests ask for by name; the name is also what `INBOX_TEST_SKIP` lists.
struct Stand {
    name: &'static str,
    /// A running server may be given by URL instead.
    by_url: bool,
    /// The stand whose skip leaves this one out too.
    part_of: Option<&'static str>,
    program: Program,
}

/// What a stand runs, which tells how a missing one is made available on Debian.
enum Program {
    /// Any PostgreSQL. The running release's is installed.
    Postgres,
    /// PostgreSQL of one major version. A later suite's is unpacked into a folder that the tests
    /// `chroot` into, since it needs a newer C library than the machine's.
    PostgresMajor(u32),
    PgBouncer,
    /// MySQL or MariaDB. The running release's is installed if it has one that fits, else a suite's
    /// is unpacked.
    MySql(&'static MySqlStand),
}

const STANDS: &[Stand] = &[
    Stand { name: "postgres", by_url: true, part_of: None, program: Program::Postgres },
    Stand { name: "postgres_18", by_url: true, part_of: None, program: Program::PostgresMajor(18) },
    // For tests that change or end their server: one by URL is shared.
    Stand { name: "postgres_own", by_url: false, part_of: Some("postgres"), program: Program::Postgres },
    Stand { name: "pgbouncer", by_url: false, part_of: None, program: Program::PgBouncer },
    Stand::mysql(&places::MARIADB_10_11),
    Stand::mysql_own(&places::MARIADB_10_11),
    Stand::mysql(&places::MARIADB_11_8),
    Stand::mysql_own(&places::MARIADB_11_8),
    Stand::mysql(&places::MYSQL),
    Stand::mysql_own(&places::MYSQL),
];

/// Where most of the unpacked servers come from: it has the newest versions.
const SUITE: &str = "sid";

pub(crate) fn run() -> Result<()> {
    let skipped = places::skipped();
    check_names(&skipped)?;
    let mut missing = Vec::new();
    for stand in STANDS {
        if stand.is_in(&skipped) {
            println!("{}: skipped by INBOX_TEST_SKIP", stand.name);
        } else if let Some(place) = stand.find() {
            println!("{}: {place}", stand.name);
        } else {
            missing.push(stand);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !debian::usable() {
        let advice: Vec<_> = missing.iter().map(|stand| stand.advice()).collect();
        return Err(format!(
            "these servers are missing, and only on Debian, as root, can they be installed from here:\n{}",
            advice.join("\n")
        ));
    }
    provide(&missing)?;
    for stand in missing {
        println!("{}: {}", stand.name, stand.find().unwrap_or_default());
    }
    Ok(())
}

/// The stands that `INBOX_TEST_SKIP` leaves out, for the end of a run.
pub(crate) fn left_out() -> String {
    let skipped = places::skipped();
    let names: Vec<&str> =
        STANDS.iter().filter(|stand| stand.is_in(&skipped)).map(|stand| stand.name).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A misspelt name would leave nothing out, and look as if it did.
fn check_names(skipped: &[String]) -> Result<()> {
    let names: Vec<&str> = STANDS.iter().map(|stand| stand.name).collect();
    match skipped.iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(format!("INBOX_TEST_SKIP names {name:?}; what can be left out is {}", names.join(", ")))
        }
    }
}

/// Installs and unpacks, one at a time on this machine, and looks again.
fn provide(missing: &[&Stand]) -> Result<()> {
    let folder = places::unpacked_servers().ok_or("not in a cargo target folder: set INBOX_SERVERS_DIR")?;
    let _lock = lock(&folder)?;

    // Another process may have done it while this one waited for the lock.
    let missing = || missing.iter().filter(|stand| stand.find().is_none());
    let mut packages: Vec<&str> = missing().filter_map(|stand| stand.program.package()).collect();
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        debian::install(&packages)?;
    }
    for stand in STANDS {
        let wanted = missing().any(|missing| missing.name == stand.name);
        if let Some((suite, package, name)) = stand.program.archive().filter(|_| wanted) {
            // initdb runs a shell; the tests' supervisor is a shell script that needs mkdir and rm.
            debian::unpack(suite, &[&package, "dash", "coreutils"], &folder.join(name))?;
        }
    }
    match missing().next() {
        None => Ok(()),
        Some(stand) => Err(format!("installed, yet not found:\n{}", stand.advice())),
    }
}

impl Stand {
    const fn mysql(stand: &'static MySqlStand) -> Self {
        Self { name: stand.name, by_url: true, part_of: None, program: Program::MySql(stand) }
    }

    /// For tests that change or end their server.
    const fn mysql_own(stand: &'static MySqlStand) -> Self {
        Self { name: stand.own, by_url: false, part_of: Some(stand.name), program: Program::MySql(stand) }
    }

    fn is_in(&self, skipped: &[String]) -> bool {
        skipped.iter().any(|name| name == self.name || Some(name.as_str()) == self.part_of)
    }

    /// Where the tests will find this server, as a line for the developer.
    fn find(&self) -> Option<String> {
        let variable = places::url_variable(self.name);
        if self.by_url && places::given_url(&variable).is_some() {
            return Some(format!("given by {variable}"));
        }
        let found = match self.program {
            Program::Postgres => {
                places::installed_postgres(None).or_else(|| places::postgres_versions().find_map(unpacked))
            }
            Program::PostgresMajor(major) => {
                places::installed_postgres(Some(major)).or_else(|| unpacked(major))
            }
            Program::PgBouncer => places::installed_pgbouncer(),
            Program::MySql(stand) => {
                stand.installed().or_else(|| stand.unpacked().filter(|_| debian::is_root()))
            }
        };
        found.map(|path| path.display().to_string())
    }

    /// What a developer can do about this server without this command.
    fn advice(&self) -> String {
        let name = self.name;
        let install = match self.program {
            Program::Postgres => "PostgreSQL (package `postgresql`)".to_owned(),
            Program::PostgresMajor(major) => format!("PostgreSQL {major} (package `postgresql-{major}`)"),
            Program::PgBouncer => "PgBouncer (package `pgbouncer`)".to_owned(),
            Program::MySql(stand) => format!("{} (package `{}`)", stand.server, stand.package),
        };
        let url = match self.by_url {
            true => format!(", or set {} to a server that may be used for tests", places::url_variable(name)),
            false => String::new(),
        };
        format!("  {name}: install {install}{url}, or leave its tests out with INBOX_TEST_SKIP={name}")
    }
}

impl Program {
    /// The package of the running release that has it.
    fn package(&self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("postgresql"),
            Self::PostgresMajor(_) => None,
            Self::PgBouncer => Some("pgbouncer"),
            // The server alone, without a service and its data.
            Self::MySql(stand) if stand.name == places::MARIADB_10_11.name => Some("mariadb-server-core"),
            Self::MySql(_) => None,
        }
    }

    /// A suite and its package to unpack, and the name of the folder for it.
    fn archive(&self) -> Option<(&'static str, String, String)> {
        match self {
            Self::Postgres | Self::PgBouncer => None,
            Self::PostgresMajor(major) => {
                Some((SUITE, format!("postgresql-{major}"), places::unpacked_postgres_name(*major)))
            }
            Self::MySql(stand) => {
                // The release that has MariaDB 10.11, for machines with a later one.
                let suite = if stand.name == places::MARIADB_10_11.name { "bookworm" } else { SUITE };
                Some((suite, format!("{}-core", stand.package), stand.folder.to_owned()))
            }
        }
    }
}

/// Only root may `chroot` into an unpacked server.
fn unpacked(major: u32) -> Option<PathBuf> {
    places::unpacked_postgres(major).filter(|_| debian::is_root())
}

/// The workspace's own folder.
pub(crate) fn workspace() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map(Path::to_path_buf).unwrap_or(package)
}

/// Held until dropped, also by a process that is killed.
fn lock(folder: &Path) -> Result<std::fs::File> {
    let path = folder.join(".lock");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::File::create(&path))
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|e| format!("could not lock {}: {e}", path.display()))
}
