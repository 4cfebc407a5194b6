//! Runs a server so that it ends with this process, however this process ends.
//!
//! A shell process makes the server's folder, prepares it, starts the server, and then reads from a
//! pipe that this process holds. The pipe closes when its guard is dropped, and also when this
//! process exits, panics or is killed. The shell then stops the process that it started, and
//! removes the folder. Statics are never dropped, and SIGKILL runs no code, so nothing inside this
//! process could do it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ServerError;
use super::installation::{Installation, is_root};

/// What the shell is to do, collected step by step.
#[derive(Debug)]
pub(super) struct Plan {
    installation: Installation,
    folder: PathBuf,
    steps: Vec<String>,
}

impl Plan {
    /// A plan for a server in a folder of its own, made in the temporary folder of the server's
    /// root. The name is random, and the folder must be new: nobody can have prepared it.
    pub(super) fn new(installation: Installation, name: &str) -> Self {
        let temporary = match installation.root.is_some() || is_root() {
            // The server runs as another user then, who may not reach into root's TMPDIR.
            true => PathBuf::from("/tmp"),
            false => std::env::temp_dir(),
        };
        let folder = temporary.join(format!("inbox-{name}-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        Self { installation, folder, steps: Vec::new() }
    }

    /// The path of a file in the server's folder, as the server sees it.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Appends to a file in the folder, or makes it.
    pub(super) fn write(mut self, name: &str, text: &str) -> Self {
        self.steps.push(format!("printf %s {} >>{}", quoted(text), quoted(name)));
        self
    }

    /// Makes a folder in the folder.
    #[cfg(feature = "mysql")]
    pub(super) fn folder(mut self, name: &str) -> Self {
        self.steps.push(format!("mkdir {}", quoted(name)));
        self
    }

    /// As [`run`](Self::run), with the text of these files as the program's input.
    #[cfg(feature = "mysql")]
    pub(super) fn run_on(mut self, files: &[String], program: &str, args: &[&str]) -> Self {
        let files: String = files.iter().map(|file| format!(" {}", quoted(file))).collect();
        let command = self.command(program, args);
        self.steps.push(format!("cat{files} | {command}"));
        self
    }

    /// Runs one of the installation's programs to its end, before the server starts.
    pub(super) fn run(mut self, program: &str, args: &[&str]) -> Self {
        let command = self.command(program, args);
        self.steps.push(command);
        self
    }

    /// Starts the server, to be ended by `signal` (a name without `SIG`).
    pub(super) fn serve(self, program: &str, args: &[&str], signal: &str) -> Result<Supervised, ServerError> {
        let server = self.command(program, args);
        let script = script(&self.folder, &self.steps, &server, signal);
        let outside = self.installation.outside(&self.folder);
        let mut child = shell(&self.installation, &script)?
            .spawn()
            .map_err(|e| ServerError::io("run a shell for", &outside, e))?;

        let life = child.stdin.take();
        let (sender, state) = watch::channel(State::default());
        if let Some(stdout) = child.stdout.take() {
            std::thread::Builder::new()
                .name("inbox-server".to_owned())
                .spawn(move || follow(child, stdout, &sender))
                .map_err(|e| ServerError::io("start a thread for", &outside, e))?;
        }
        Ok(Supervised { life, state, folder: outside, inside: self.folder })
    }

    fn command(&self, program: &str, args: &[&str]) -> String {
        let mut command = quoted(&self.installation.program(program));
        for arg in args {
            let _ = write!(command, " {}", quoted(arg));
        }
        command
    }
}

/// The shell's script. It tells the server's process id in a line of its own, or `failed`.
///
/// The server keeps the shell's standard output open as descriptor 3, and nobody else does: its end
/// is seen as the end of that pipe. A stopped server gets SIGCONT too, or it would never see the signal.
fn script(folder: &Path, steps: &[String], server: &str, signal: &str) -> String {
    let folder = quoted(&folder.display().to_string());
    let steps: String = steps.iter().map(|step| format!("{step} &&\n")).collect();
    format!(
        "trap '' HUP INT QUIT TERM
umask 077
mkdir {folder} 2>&1 && cd {folder} || exit
if {{ {steps}true; }} </dev/null >>log 2>&1
then
    {server} 3>&1 </dev/null >>log 2>&1 &
    server=$!
    echo \"$server\"
    exec >/dev/null 2>&1
    read -r _
    kill -s {signal} \"$server\"
    kill -s CONT \"$server\"
    wait \"$server\"
else
    echo failed
    read -r _
fi
cd / && rm -rf {folder}
"
    )
}

/// A shell in the installation's root, as a user whom the engines accept. In a process group of its
/// own, so that Ctrl-C in a terminal reaches the tests and not the server behind their back.
fn shell(installation: &Installation, script: &str) -> Result<Command, ServerError> {
    let account = if is_root() { Some(nobody(installation)?) } else { None };
    let mut command = match (&installation.root, account) {
        (Some(root), Some((user, group))) => {
            let mut command = Command::new("chroot");
            command.arg(format!("--userspec={user}:{group}")).arg(root).arg("/bin/sh");
            command
        }
        (_, Some((user, group))) => {
            let mut command = Command::new("/bin/sh");
            command.uid(user).gid(group);
            command
        }
        (_, None) => Command::new("/bin/sh"),
    };
    command
        .args(["-c", script])
        .current_dir("/")
        // Settings such as PGDATA are for the developer's own servers.
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
        .env("LC_ALL", "C")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Ok(command)
}

/// The user and group ids of `nobody`, who has no right to anything on any machine.
fn nobody(installation: &Installation) -> Result<(u32, u32), ServerError> {
    let passwd = installation.outside(Path::new("/etc/passwd"));
    let text = std::fs::read_to_string(&passwd).map_err(|e| ServerError::io("read", &passwd, e))?;
    text.lines()
        .find_map(|line| {
            let mut ids = line.strip_prefix("nobody:")?.split(':').skip(1);
            Some((ids.next()?.parse().ok()?, ids.next()?.parse().ok()?))
        })
        .ok_or_else(|| {
            let none = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no user `nobody`");
            ServerError::io("find a user other than root in", &passwd, none)
        })
}

/// What is known of the shell and its server.
#[derive(Debug, Default, Clone)]
struct State {
    /// The server's process id, once it was started.
    pid: Option<u32>,
    /// The server has ended, or was not started at all.
    ended: bool,
    /// The shell has ended too, and the folder is removed.
    gone: bool,
    /// Anything else that the shell said.
    said: String,
}

/// Follows the shell until it ends. Runs in a thread, since it must outlive any runtime.
fn follow(mut child: Child, stdout: ChildStdout, state: &watch::Sender<State>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        state.send_modify(|state| match line.parse() {
            Ok(pid) => state.pid = Some(pid),
            Err(_) => {
                state.ended = true;
                state.said.push_str(&line);
            }
        });
    }
    state.send_modify(|state| state.ended = true);
    let _ = child.wait();
    state.send_modify(|state| state.gone = true);
}

/// A server that ends when this is dropped, or this process ends.
#[derive(Debug)]
pub(super) struct Supervised {
    /// Never written to: it only has to close.
    life: Option<ChildStdin>,
    state: watch::Receiver<State>,
    folder: PathBuf,
    /// The same folder as the server sees it.
    inside: PathBuf,
}

impl Supervised {
    /// The server's process id, once it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.state.borrow().pid
    }

    /// True once the server has ended by itself, or could not be started.
    fn ended(&self) -> bool {
        self.state.borrow().ended
    }

    /// The path of a file in the server's folder, as the server sees it.
    pub(super) fn path(&self, name: &str) -> String {
        self.inside.join(name).display().to_string()
    }

    /// The server's folder, as this process sees it.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits until the server answers, or tells why it does not. `ask` gives `None` when the server that
    /// answers is not this one: another process may have taken the port.
    pub(super) async fn answer<T, F>(&self, timeout: Duration, ask: impl Fn() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<Option<T>, sqlx::Error>>,
    {
        let deadline = Instant::now() + timeout;
        let mut last = "it does not answer".to_owned();
        while Instant::now() < deadline {
            if self.ended() {
                return Err("it ended".to_owned());
            }
            match tokio::time::timeout(Duration::from_secs(5), ask()).await {
                Ok(Ok(Some(answer))) => return Ok(answer),
                Ok(Ok(None)) => last = "another server answers on its port".to_owned(),
                Ok(Err(e)) => last = e.to_string(),
                Err(e) => last = e.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("no answer within {} s ({last})", timeout.as_secs()))
    }

    /// The last lines of the server's log, or what the shell said.
    pub(super) fn log_tail(&self) -> String {
        const LINES: usize = 20;
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        match lines.is_empty() {
            true => self.state.borrow().said.clone(),
            false => lines[lines.len().saturating_sub(LINES)..].join("\n"),
        }
    }

    /// Stops the server and waits until its process and its folder are gone.
    pub(super) async fn stop(mut self) {
        self.life = None;
        let _ = self.state.wait_for(|state| state.gone).await;
    }
}

/// Runs a command when the returned pipe closes: when it is dropped, or this process ends.
#[cfg(any(feature = "containers", test))]
pub(super) fn afterwards(program: &str, args: &[&str]) -> std::io::Result<ChildStdin> {
    let mut command = quoted(program);
    for arg in args {
        let _ = write!(command, " {}", quoted(arg));
    }
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("trap '' HUP INT QUIT TERM\nread -r _\nexec {command}")])
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().ok_or_else(|| std::io::Error::other("the shell has no pipe"))
}

/// One word for the shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_word_for_the_shell() {
        let text = "it's $HOME `id` \"x\"\n* \\";
        let shell = Command::new("/bin/sh").args(["-c", &format!("printf %s {}", quoted(text))]).output();
        assert_eq!(shell.expect("a shell").stdout, text.as_bytes());
    }

    #[test]
    fn the_command_for_afterwards_runs_once_the_pipe_is_closed() {
        let mark = std::env::temp_dir().join(format!("inbox-afterwards-{}", std::process::id()));
        let pipe = afterwards("touch", &[&mark.display().to_string()]).expect("a shell");
        std::thread::sleep(Duration::from_millis(50));
        assert!(!mark.exists(), "nothing runs while the pipe is open");

        drop(pipe);
        let start = Instant::now();
        while !mark.exists() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(std::fs::remove_file(&mark).is_ok());
    }
}
