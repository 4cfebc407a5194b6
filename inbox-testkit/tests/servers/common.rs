//! What the tests of each engine share: skips, waiting, and processes that start a server and end.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use inbox_testkit::servers::ServerError;

pub(crate) type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Ends a test whose server was left out by name.
macro_rules! needs {
    ($($stand:expr),+) => {
        $(if inbox_testkit::skip_requested($stand) {
            println!("skipped by INBOX_TEST_SKIP: {}", $stand);
            return Ok(());
        })+
    };
}
pub(crate) use needs;

/// Waits for what happens in the background, at most 20 seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn runs(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    // Another user's process answers with EPERM, which shows that it is there.
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Tells a child process what to do.
const TASK: &str = "INBOX_SERVERS_TEST_CHILD";

/// What this process is to do, if it is a child.
pub(crate) fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// Tells the parent about a server that this child process started, or why it did not.
pub(crate) fn report<S>(
    started: Result<S, ServerError>,
    process_id: impl Fn(&S) -> Option<u32>,
    folder: impl Fn(&S) -> Option<PathBuf>,
) -> Result<S> {
    let server = started.inspect_err(|error| println!("\nerror {error}"))?;
    let (pid, folder) = (process_id(&server).expect("a process"), folder(&server).expect("a folder"));
    println!("\nserver {pid} {}", folder.display());
    Ok(server)
}

/// A process of this test's program that runs one test.
pub(crate) struct Child {
    process: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(test: &str, task: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([test, "--exact", "--nocapture"])
            .env(TASK, task)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no output")?;
        Ok(Self { process, lines: BufReader::new(stdout).lines() })
    }

    /// The process id and the folder of the server that it started.
    pub(crate) fn server(&mut self) -> Result<(u32, PathBuf)> {
        let line = self.line("server ")?;
        let (pid, folder) = line.split_once(' ').ok_or("no process id")?;
        Ok((pid.parse()?, PathBuf::from(folder)))
    }

    /// What comes after `start` in the first line that has it.
    pub(crate) fn line(&mut self, start: &str) -> Result<String> {
        let mut said = String::new();
        for line in &mut self.lines {
            let line = line?;
            if let Some(rest) = line.strip_prefix(start) {
                return Ok(rest.to_owned());
            }
            said = said + &line + "\n";
        }
        Err(format!("the child did not say {start:?} but: {said}").into())
    }

    pub(crate) fn kill(&mut self) -> Result {
        self.process.kill()?;
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> Result {
        self.process.wait()?;
        Ok(())
    }
}
