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

/// The root folder `name` within [`unpacked_servers`], if it is whole and has these programs, named as
/// seen from within it. Only root can use it, since only root may `chroot`.
fn unpacked(name: &str, has_programs: impl Fn(&Path) -> bool, programs: &Path) -> Option<PathBuf> {
    let root = unpacked_servers()?.join(name);
    let complete = root.join(COMPLETE).is_file()
        && has_programs(&root.join(programs.strip_prefix("/").unwrap_or(programs)));
    complete.then_some(root)
}

/// The root folder of an unpacked PostgreSQL of this major version.
pub(crate) fn unpacked_postgres(major: u32) -> Option<PathBuf> {
    unpacked(&unpacked_postgres_name(major), has_postgres, &unpacked_postgres_programs(major))
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

/// A MySQL or MariaDB that tests ask for by name.
#[derive(Debug)]
pub(crate) struct MySqlStand {
    /// What `INBOX_TEST_SKIP` lists.
    pub(crate) name: &'static str,
    /// The same for tests that start a server of their own.
    pub(crate) own: &'static str,
    /// The same in words.
    pub(crate) server: &'static str,
    /// The package to install.
    pub(crate) package: &'static str,
    /// The root folder of an unpacked one.
    pub(crate) folder: &'static str,
    /// Its program, as seen from within that root.
    pub(crate) program: &'static str,
    pub(crate) mariadb: bool,
    /// Of the product's major and minor versions.
    fits: fn((u32, u32)) -> bool,
}

pub(crate) const MARIADB_10_11: MySqlStand = MySqlStand {
    name: "mariadb_10_11",
    own: "mariadb_10_11_own",
    server: "MariaDB 10.11",
    package: "mariadb-server",
    folder: "mariadb-10.11",
    program: "/usr/sbin/mariadbd",
    mariadb: true,
    fits: |number| number == (10, 11),
};

/// The first long-term release with `innodb_snapshot_isolation` on.
pub(crate) const MARIADB_11_8: MySqlStand = MySqlStand {
    name: "mariadb_11_8",
    own: "mariadb_11_8_own",
    server: "MariaDB 11.8 or later",
    package: "mariadb-server",
    folder: "mariadb-11.8",
    program: "/usr/sbin/mariadbd",
    mariadb: true,
    fits: |number| number >= (11, 8),
};

pub(crate) const MYSQL: MySqlStand = MySqlStand {
    name: "mysql",
    own: "mysql_own",
    server: "MySQL 8.0 or later",
    package: "mysql-server",
    folder: "mysql",
    program: "/usr/sbin/mysqld",
    mariadb: false,
    fits: |number| number >= (8, 0),
};

impl MySqlStand {
    pub(crate) fn fits(&self, version: MySqlVersion) -> bool {
        version.mariadb == self.mariadb && (self.fits)(version.number)
    }

    /// The program of an installed server.
    pub(crate) fn installed(&self) -> Option<PathBuf> {
        let beside_others = [
            "/usr/libexec",
            "/usr/local/mysql/bin",
            "/opt/homebrew/opt/mariadb@10.11/bin",
            "/opt/homebrew/opt/mariadb/bin",
            "/opt/homebrew/opt/mysql/bin",
        ];
        let folders: Vec<_> = common_folders().into_iter().chain(beside_others.map(PathBuf::from)).collect();
        self.installed_in(&folders)
    }

    /// The first program in these folders that says to be this server. Both products have a `mysqld`.
    pub(crate) fn installed_in(&self, folders: &[PathBuf]) -> Option<PathBuf> {
        let programs = folders.iter().flat_map(|folder| ["mariadbd", "mysqld"].map(|name| folder.join(name)));
        programs.filter(|program| program.is_file()).find(|program| self.is(program))
    }

    fn is(&self, program: &Path) -> bool {
        MySqlVersion::of(program).is_some_and(|version| self.fits(version))
            && (!self.mariadb || system_tables(program).is_some())
    }

    /// The root folder of an unpacked server. What it is, only the running server tells: a program
    /// that needs a root of its own cannot be asked from outside.
    pub(crate) fn unpacked(&self) -> Option<PathBuf> {
        unpacked(self.folder, Path::is_file, Path::new(self.program))
    }
}

/// The files that make MariaDB's system tables, as seen from its program's folder. MySQL has them
/// in its program. MariaDB's own script for it needs programs of other packages.
pub(crate) fn system_tables(program: &Path) -> Option<[String; 3]> {
    let programs = program.parent()?;
    let named = |folder: &str, product: &str| {
        ["system_tables", "performance_tables", "system_tables_data"]
            .map(|tables| format!("../share/{folder}/{product}_{tables}.sql"))
    };
    [
        named("mariadb", "mariadb"),
        named("mysql", "mariadb"),
        named("mariadb", "mysql"),
        named("mysql", "mysql"),
    ]
    .into_iter()
    .find(|files| files.iter().all(|file| programs.join(file).is_file()))
}

/// What a server says of itself, as a program or in `SELECT VERSION()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MySqlVersion {
    pub(crate) mariadb: bool,
    /// Major and minor.
    pub(crate) number: (u32, u32),
}

impl MySqlVersion {
    /// The version in `mysqld  Ver 9.7.4 for Linux …`, or `10.11.14-MariaDB-0+deb12u2`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        let mut parts = number.split(|c: char| !c.is_ascii_digit());
        let number = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { mariadb: text.contains("MariaDB"), number })
    }

    fn of(program: &Path) -> Option<Self> {
        let output = Command::new(program).args(["--no-defaults", "--version"]).output().ok()?;
        Self::parse(&String::from_utf8(output.stdout).ok()?)
    }
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
    fn a_mysqld_tells_mariadb_from_mysql() {
        let mysql = MySqlVersion::parse("/usr/sbin/mysqld  Ver 9.7.4 for Linux on x86_64 ((Debian))\n");
        assert_eq!(mysql, Some(MySqlVersion { mariadb: false, number: (9, 7) }));
        let mariadb = MySqlVersion::parse("mysqld  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu\n");
        assert_eq!(mariadb, Some(MySqlVersion { mariadb: true, number: (10, 11) }));
        assert_eq!(MySqlVersion::parse("something else"), None);
    }

    #[test]
    fn a_stand_of_mysql_takes_no_mariadb() {
        let fitting = |text: &str| {
            let version = MySqlVersion::parse(text).expect("a version");
            [MARIADB_10_11, MARIADB_11_8, MYSQL].map(|stand| stand.fits(version))
        };
        assert_eq!(fitting("10.11.14-MariaDB-0+deb12u2"), [true, false, false]);
        assert_eq!(fitting("12.0.2-MariaDB"), [false, true, false]);
        assert_eq!(fitting("8.4.6"), [false, false, true]);
        assert_eq!(fitting("5.7.44"), [false; 3]);
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
