//! Debian's packages: installed on the machine, or of a later suite unpacked into a folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::places::COMPLETE;

/// True where packages can be installed: Debian, and root.
pub(crate) fn usable() -> bool {
    is_root() && Path::new("/etc/debian_version").is_file() && Path::new("/usr/bin/apt-get").is_file()
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// Installs packages of the running release, without starting services or creating clusters.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    println!("installing with apt-get: {}", packages.join(" "));
    let _no_services = Temporary::new("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)?;
    let _no_cluster = Temporary::new(
        "/etc/postgresql-common/createcluster.d/inbox-tests.conf",
        "create_main_cluster = false\n",
        0o644,
    )?;
    let install = || {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--yes", "-qq", "--no-install-recommends"])
            .args(["-o", "Dpkg::Use-Pty=0"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null());
        run(&mut apt)
    };
    // Lists that are missing or older than the mirror are the usual reason for a first failure.
    install().or_else(|_| {
        println!("refreshing apt's package lists");
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        install()
    })
}

/// A file that exists only while packages are installed. One that is there already is left alone.
struct Temporary {
    file: Option<PathBuf>,
    /// Its folder, where that was made for it.
    folder: Option<PathBuf>,
}

impl Temporary {
    fn new(path: &str, text: &str, mode: u32) -> Result<Self> {
        let mut made = Self { file: None, folder: None };
        let path = PathBuf::from(path);
        if path.exists() {
            return Ok(made);
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            create(folder)?;
            made.folder = Some(folder.to_path_buf());
        }
        write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(|e| format!("could not set the mode of {}: {e}", path.display()))?;
        made.file = Some(path);
        Ok(made)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
        if let Some(folder) = &self.folder {
            // Fails where the installation put something there, and the folder is to stay then.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Unpacks `packages` of `suite`, with all that they depend on, into `folder`, to be used as the
/// root of a chroot. Runs none of their scripts, and leaves the machine's own packages alone.
pub(crate) fn unpack(suite: &str, packages: &[&str], folder: &Path) -> Result<()> {
    println!("unpacking {} of {suite} into {}", packages.join(" "), folder.display());
    let apt = Apt::new(suite, &folder.with_extension("apt"))?;
    let archives = apt.download(packages)?;

    remove(folder)?;
    lay_out(folder)?;
    for archive in &archives {
        extract(archive, folder)?;
    }
    furnish(folder)?;

    let mut names: Vec<_> = archives.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    names.sort_unstable();
    // Its versions, for whoever wonders.
    write(&folder.join(COMPLETE), &(names.join("\n") + "\n"))
}

/// An apt with state, cache and sources of its own.
struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    fn new(suite: &str, folder: &Path) -> Result<Self> {
        remove(folder)?;
        for part in ["state/lists/partial", "cache/archives/partial"] {
            create(&folder.join(part))?;
        }
        let uri = mirror()?;
        let at = |part: &str| folder.join(part).display().to_string();
        write(&folder.join("sources.list"), &format!("deb [signed-by={KEYRING}] {uri} {suite} main\n"))?;
        write(&folder.join("status"), "")?;
        let options = [
            format!("Dir::Etc::SourceList={}", at("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State={}", at("state")),
            format!("Dir::State::Status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            // A mirror may lag behind: the signature is still checked, only its date is not.
            "Acquire::Check-Valid-Until=false".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "APT::Install-Recommends=false".to_owned(),
            // The download user could not reach into a developer's target folder.
            "APT::Sandbox::User=root".to_owned(),
        ];
        Ok(Self {
            folder: folder.to_path_buf(),
            options: options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect(),
        })
    }

    fn download(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        run(self.command().args(["update", "-qq"]))?;
        run(self
            .command()
            .args(["install", "-qq", "--yes", "--download-only"])
            .args(packages)
            .stdout(Stdio::null()))?;
        let archives = self.folder.join("cache/archives");
        let files =
            fs::read_dir(&archives).map_err(|e| format!("could not read {}: {e}", archives.display()))?;
        Ok(files
            .flatten()
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect())
    }

    fn command(&self) -> Command {
        let mut apt = Command::new("apt-get");
        apt.args(&self.options);
        apt
    }
}

impl Drop for Apt {
    fn drop(&mut self) {
        let _ = remove(&self.folder);
    }
}

/// The signatures of Debian's suites are checked with the keys that Debian itself installs.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where this machine gets Debian from. Asks apt, which knows both formats of its sources.
fn mirror() -> Result<String> {
    if let Some(mirror) = mirror_in_lists()? {
        return Ok(mirror);
    }
    // Origins are known only once the lists were fetched.
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    mirror_in_lists()?.ok_or_else(|| "apt's sources name no mirror of Debian's main archive".to_owned())
}

fn mirror_in_lists() -> Result<Option<String>> {
    let lists = Command::new("apt-get")
        .args(["indextargets", "--format"])
        .args(["$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)", "Created-By: Packages"])
        .output()
        .map_err(|e| format!("could not run apt-get: {e}"))?;
    let lists = String::from_utf8_lossy(&lists.stdout);
    Ok(lists.lines().find_map(|line| line.strip_prefix("Debian|Debian|main|")).map(str::to_owned))
}

/// The links that a merged `/usr` has, before any archive makes folders of those names.
fn lay_out(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let merged = Path::new("usr").join(name);
        create(&root.join(&merged))?;
        symlink(&merged, root.join(name))
            .map_err(|e| format!("could not link {name} in {}: {e}", root.display()))?;
    }
    Ok(())
}

/// Left out of the unpacked folder: nothing that a server reads.
const NEEDLESS: &[&str] =
    &["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/perl*", "./usr/lib/*/perl*"];

fn extract(archive: &Path, root: &Path) -> Result<()> {
    let failed = |e: std::io::Error| format!("could not unpack {}: {e}", archive.display());
    let mut packed = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let tarfile = packed.stdout.take().map_or_else(Stdio::null, Stdio::from);
    run(Command::new("tar")
        .args(["--extract", "--keep-directory-symlink"])
        .args(NEEDLESS.iter().map(|pattern| format!("--exclude={pattern}")))
        .arg("--directory")
        .arg(root)
        .stdin(tarfile))?;
    match packed.wait().map_err(failed)?.success() {
        true => Ok(()),
        false => Err(format!("dpkg-deb could not read {}", archive.display())),
    }
}

/// What programs expect of a root besides their packages: temporary folders, users, devices.
///
/// There is no `dev/shm` on purpose: as a plain folder it is taken for shared memory, and by some
/// engines for persistent memory that needs no fsync.
fn furnish(root: &Path) -> Result<()> {
    for name in ["dev", "proc", "etc", "run", "tmp", "var/tmp"] {
        create(&root.join(name))?;
    }
    for name in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o1777))
            .map_err(|e| format!("could not open {name} in {}: {e}", root.display()))?;
    }
    for name in ["passwd", "group"] {
        fs::copy(Path::new("/etc").join(name), root.join("etc").join(name))
            .map_err(|e| format!("could not copy {name} into {}: {e}", root.display()))?;
    }
    for (name, minor) in [("null", "3"), ("zero", "5"), ("random", "8"), ("urandom", "9")] {
        let device = root.join("dev").join(name);
        if !device.exists() {
            run(Command::new("mknod").args(["-m", "666"]).arg(&device).args(["c", "1", minor]))?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("could not run {name}: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => {
            let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
            Err(format!("`{name} {}` failed ({status})", args.join(" ")))
        }
    }
}

fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| format!("could not create {}: {e}", folder.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|e| format!("could not write {}: {e}", file.display()))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("could not remove {}: {e}", folder.display()))
        }
        _ => Ok(()),
    }
}
