//! Where servers are looked for, and what the environment says about them.
//!
//! Of the standard library alone: `cargo xtask servers` includes this file, so that it looks where the
//! tests look.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Written last into an unpacked root folder: one without it is half made.
pub(crate) const COMPLETE: &str = ".complete";

/// The names in `INBOX_TEST_SKIP`, a list with commas.
pub(crate) fn skipped() -> Vec<String> {
    names(&std::env::var("INBOX_TEST_SKIP").unwrap_or_default())
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The variable that gives a stand's server: `INBOX_TEST_POSTGRES_18_URL` for `postgres_18`.
pub(crate) fn url_variable(stand: &str) -> String {
    format!("INBOX_TEST_{}_URL", stand.to_uppercase())
}

/// The URL in a variable. One that is set to nothing gives none.
pub(crate) fn given_url(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}

/// `INBOX_SERVERS_DIR`, else `servers` in the target folder that holds the running program. Cargo
/// gives a test no variable for that folder, and `CARGO_TARGET_DIR` may be relative to another
/// folder, so the program's own path is the reliable way.
pub(crate) fn unpacked_servers() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("INBOX_SERVERS_DIR").filter(|folder| !folder.is_empty()) {
        return Some(PathBuf::from(folder));
    }
    std::env::current_exe()
        .ok()?
        .ancestors()
        .find(|folder| folder.join(".rustc_info.json").is_file() || folder.ends_with("target"))
        .map(|target| target.join("servers"))
}

/// The root folder of an unpacked PostgreSQL of this major version, within [`unpacked_servers`]. Only
/// root can use it, since only root may `chroot`.
pub(crate) fn unpacked_postgres(major: u32) -> Option<PathBuf> {
    let root = unpacked_servers()?.join(unpacked_postgres_name(major));
    let programs = unpacked_postgres_programs(major);
    let complete = root.join(COMPLETE).is_file()
        && has_postgres(&root.join(programs.strip_prefix("/").unwrap_or(&programs)));
    complete.then_some(root)
}

pub(crate) fn unpacked_postgres_name(major: u32) -> String {
    format!("postgres-{major}")
}

/// The folder of its programs, as seen from within its root.
pub(crate) fn unpacked_postgres_programs(major: u32) -> PathBuf {
    format!("/usr/lib/postgresql/{major}/bin").into()
}

/// Major versions of PostgreSQL that may be found, the newest first.
pub(crate) fn postgres_versions() -> impl Iterator<Item = u32> {
    (13..=30).rev()
}

/// The folder of an installed PostgreSQL's programs: of this major version, or the newest there is.
pub(crate) fn installed_postgres(wanted: Option<u32>) -> Option<PathBuf> {
    let versions: Vec<u32> = match wanted {
        Some(major) => vec![major],
        None => postgres_versions().collect(),
    };
    let beside_others = versions.into_iter().flat_map(postgres_folders).find(|folder| has_postgres(folder));
    beside_others.or_else(|| postgres_in(&common_folders(), wanted))
}

/// Where packages put one major version beside others: Debian, the PostgreSQL project's RPMs, Homebrew.
fn postgres_folders(major: u32) -> [PathBuf; 4] {
    [
        format!("/usr/lib/postgresql/{major}/bin"),
        format!("/usr/pgsql-{major}/bin"),
        format!("/opt/homebrew/opt/postgresql@{major}/bin"),
        format!("/usr/local/opt/postgresql@{major}/bin"),
    ]
    .map(PathBuf::from)
}

/// The first of these folders that has a server, which says to be of the wanted major version.
pub(crate) fn postgres_in(folders: &[PathBuf], wanted: Option<u32>) -> Option<PathBuf> {
    let is_wanted = |folder: &Path| wanted.is_none() || major_of(folder) == wanted;
    folders.iter().find(|folder| has_postgres(folder) && is_wanted(folder)).cloned()
}

/// Without `initdb` beside it, `postgres` has no data to serve.
fn has_postgres(folder: &Path) -> bool {
    ["postgres", "initdb"].iter().all(|program| folder.join(program).is_file())
}

fn major_of(folder: &Path) -> Option<u32> {
    let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
    major_in(&String::from_utf8(output.stdout).ok()?)
}

/// The major version in `postgres (PostgreSQL) 18.1 (…)`, or `18beta1`.
fn major_in(text: &str) -> Option<u32> {
    let number = text.split(") ").nth(1)?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The folder of an installed PgBouncer.
pub(crate) fn installed_pgbouncer() -> Option<PathBuf> {
    common_folders().into_iter().find(|folder| folder.join("pgbouncer").is_file())
}

/// Folders of programs that every user has: `PATH`, and where Debian keeps daemons.
fn common_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_name_in_the_list_skips() {
        assert_eq!(names(" postgres_18, pgbouncer,"), ["postgres_18", "pgbouncer"]);
        assert!(names("").is_empty(), "an empty list names nothing");
    }

    #[test]
    fn a_program_tells_its_major_version() {
        assert_eq!(major_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_in("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major_in("something else"), None);
    }

    #[test]
    fn a_folder_has_a_server_if_initdb_stands_beside_it() {
        let folder = std::env::temp_dir().join(format!("inbox-places-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("postgres"), "").unwrap();
        let alone = postgres_in(std::slice::from_ref(&folder), None);

        std::fs::write(folder.join("initdb"), "").unwrap();
        let both = postgres_in(std::slice::from_ref(&folder), None);

        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((alone, both), (None, Some(folder)));
    }
}
