//! `cargo xtask servers`: finds, installs or unpacks every server that the tests start.
//!
//! The tests themselves never install anything: they look in the same places as [`Stand::find`],
//! and a server that is missing there is a failed test.

use std::path::{Path, PathBuf};

use crate::{Result, debian};

/// One server that tests ask for by name; the name is also what `INBOX_TEST_SKIP` lists.
struct Stand {
    name: &'static str,
    /// A running server given by URL makes an own one needless.
    url_variable: Option<&'static str>,
    program: &'static str,
    source: Source,
}

/// How a missing server is made available on Debian.
enum Source {
    /// A package of the running release, installed.
    Package(&'static str),
    /// Packages of a later suite, unpacked into a folder that the tests `chroot` into, since their
    /// programs need a newer C library than the machine's.
    Unpacked { suite: &'static str, folder: &'static str, packages: &'static [&'static str] },
}

const STANDS: &[Stand] = &[
    Stand {
        name: "postgres",
        url_variable: Some("INBOX_TEST_POSTGRES_URL"),
        program: "postgres",
        source: Source::Package("postgresql"),
    },
    Stand {
        name: "postgres_18",
        url_variable: Some("INBOX_TEST_POSTGRES_18_URL"),
        program: "postgres",
        source: Source::Unpacked {
            suite: "sid",
            folder: "postgres-18",
            // initdb runs a shell; the tests' supervisor is a shell script that needs mkdir and rm.
            packages: &["postgresql-18", "dash", "coreutils"],
        },
    },
    Stand {
        name: "pgbouncer",
        url_variable: None,
        program: "pgbouncer",
        source: Source::Package("pgbouncer"),
    },
];

pub(crate) fn run() -> Result<()> {
    let skipped = skipped();
    let mut missing = Vec::new();
    for stand in STANDS {
        if skipped.iter().any(|name| name == stand.name) {
            println!("{}: skipped by INBOX_TEST_SKIP", stand.name);
        } else if let Some(place) = stand.find()? {
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
    provide(&missing)
}

/// Installs and unpacks, one at a time on this machine, and looks again.
fn provide(missing: &[&Stand]) -> Result<()> {
    let folder = servers_folder()?;
    let _lock = lock(&folder)?;

    let packages: Vec<&str> = missing
        .iter()
        .filter_map(|stand| match stand.source {
            Source::Package(package) => Some(package),
            Source::Unpacked { .. } => None,
        })
        .collect();
    if !packages.is_empty() {
        debian::install(&packages)?;
    }
    for stand in missing {
        // Another process may have done it while this one waited for the lock.
        if let (Source::Unpacked { suite, folder: name, packages }, None) = (&stand.source, stand.find()?) {
            debian::unpack(suite, packages, &folder.join(name))?;
        }
    }
    for stand in missing {
        match stand.find()? {
            Some(place) => println!("{}: {place}", stand.name),
            None => {
                return Err(format!(
                    "installed, yet no program `{}` was found; {}",
                    stand.program,
                    stand.advice()
                ));
            }
        }
    }
    Ok(())
}

impl Stand {
    /// Where the tests will find this server, as a line for the developer.
    fn find(&self) -> Result<Option<String>> {
        if let Some(variable) = self.url_variable
            && std::env::var_os(variable).is_some_and(|url| !url.is_empty())
        {
            return Ok(Some(format!("given by {variable}")));
        }
        let found = match self.source {
            Source::Package(_) => program_folders()
                .into_iter()
                .map(|folder| folder.join(self.program))
                .find(|program| program.is_file()),
            Source::Unpacked { folder, .. } => {
                let root = servers_folder()?.join(folder);
                // An unpacked one is for root, since only root may chroot.
                let usable = debian::is_root() && root.join(debian::COMPLETE).is_file();
                installed_major(self.name).or_else(|| usable.then_some(root))
            }
        };
        Ok(found.map(|path| path.display().to_string()))
    }

    /// What a developer can do about this server without this command.
    fn advice(&self) -> String {
        let install = match self.source {
            Source::Package(package) => format!("install `{package}`"),
            Source::Unpacked { packages, .. } => format!("install `{}`", packages[0]),
        };
        let url = self
            .url_variable
            .map(|variable| format!(", or set {variable} to a server that may be used for tests"))
            .unwrap_or_default();
        let name = self.name;
        format!("  {name}: {install}{url}, or leave its tests out with INBOX_TEST_SKIP={name}")
    }
}

/// Debian keeps each major version's programs off PATH, in a folder of its own.
const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql";

/// The program of exactly this version, where it is installed: `postgres_18` is version 18.
fn installed_major(stand: &str) -> Option<PathBuf> {
    let (engine, major) = stand.rsplit_once('_')?;
    let program = Path::new(DEBIAN_POSTGRES).join(major).join("bin").join(engine);
    program.is_file().then_some(program)
}

fn program_folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN_POSTGRES).into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions
        .map(|version| version.path().join("bin"))
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .collect()
}

/// The names in `INBOX_TEST_SKIP`.
pub(crate) fn skipped() -> Vec<String> {
    let names = std::env::var("INBOX_TEST_SKIP").unwrap_or_default();
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The workspace's own folder.
pub(crate) fn workspace() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map(Path::to_path_buf).unwrap_or(package)
}

/// `INBOX_SERVERS_DIR`, or the folder `servers` in the target folder that holds this program, which
/// is where the tests' programs look as well.
fn servers_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("INBOX_SERVERS_DIR").filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    program
        .ancestors()
        .find(|folder| folder.join(".rustc_info.json").is_file() || folder.ends_with("target"))
        .map(|target| target.join("servers"))
        .ok_or_else(|| "not in a cargo target folder: set INBOX_SERVERS_DIR".to_owned())
}

/// Held until dropped, also by a process that is killed.
fn lock(folder: &Path) -> Result<std::fs::File> {
    let path = folder.join(".lock");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::File::create(&path))
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|e| format!("could not lock {}: {e}", path.display()))
}
