//! [`Process`]: a worker process, which ends with the value at the latest.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::worker::{DATABASE, MARK, ROLE};

/// The test's own program, started once more for one test.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    orders: ChildStdin,
    says: UnboundedReceiver<String>,
}

impl Process {
    /// Starts a worker in a role.
    pub(super) fn start(test: &str, role: impl AsRef<OsStr>, database: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the program's own path"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .env(DATABASE, database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker process");
        let orders = child.stdin.take().expect("its standard input");
        let output = BufReader::new(child.stdout.take().expect("its standard output"));
        let (sender, says) = mpsc::unbounded_channel();
        // Ends with the process, whose end of the pipe is closed then.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test harness of the process writes there as well, and not always a whole line.
                if let Some((_, word)) = line.split_once(MARK)
                    && sender.send(word.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { child, orders, says }
    }

    /// Orders the process what to do next.
    pub(super) fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the worker process reads its orders");
    }

    /// Waits until the process says this.
    pub(super) async fn until_it_says(&mut self, word: &str) {
        while let Some(said) = self.says.recv().await {
            if said == word {
                return;
            }
        }
        panic!("a worker process ended before it said {word:?}: {:?}", self.child.wait());
    }

    /// Waits until the process ends by itself, with success.
    pub(super) async fn until_it_ends(mut self) {
        while self.says.recv().await.is_some() {}
        let status = self.child.wait().expect("the worker process's end");
        assert!(status.success(), "a worker process failed: {status}");
    }

    /// Ends the process where it stands: SIGKILL on Unix.
    pub(super) fn kill(mut self) {
        let ended = self.child.try_wait().expect("the worker process's state");
        assert_eq!(ended, None, "a worker process ended before it was killed");
        self.child.kill().expect("a kill");
        let status = self.child.wait().expect("the worker process's end");
        assert!(!status.success(), "a killed worker process ended with success");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
