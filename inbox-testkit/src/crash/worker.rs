//! [`work_as_told`]: what a worker process does.

use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use inbox_core::{Begin, HandlerError, StoredMessage, Worker};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;

use super::{Engine, LEASE, MAX_ATTEMPTS, inbox};

/// Names a worker process's role.
pub(super) const ROLE: &str = "INBOX_CRASH_ROLE";

/// Names its database.
pub(super) const DATABASE: &str = "INBOX_CRASH_DATABASE";

/// Before each word that a worker process says on its standard output.
pub(super) const MARK: &str = "worker process says ";

/// What a victim says once one of its handlers waits for the kill.
pub(super) const HOLDING: &str = "holding";

/// Works as the environment says, if this process is a worker process; answers whether it is one.
///
/// # Panics
///
/// If the worker fails.
pub async fn work_as_told<E: Engine>() -> bool {
    let (Ok(role), Ok(database)) = (std::env::var(ROLE), std::env::var(DATABASE)) else { return false };
    let orders = listen();
    let worker = Worker::new(inbox(E::open(&database).await))
        .with_concurrency(4)
        .with_batch(20)
        .with_lease(LEASE)
        .with_max_attempts(MAX_ATTEMPTS)
        .with_poll_interval(Duration::from_millis(100));
    match role.parse().expect("a role") {
        Role::Steady => work_in_portions::<E>(&worker, orders).await,
        Role::Last => {
            let hands = Hands::default();
            let handler =
                async |tx: &mut Tx<E>, message: &StoredMessage| hands.handle::<E>(tx, message).await;
            worker.run_until_drained(handler).await.expect("a worker that drains");
        }
        Role::Victim(hold) => work_until_killed::<E>(&worker, hold).await,
    }
    true
}

type Tx<E> = <<E as Engine>::Store as Begin>::Tx;

/// What a worker process is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Lives to the end. Handles batches, so many messages as it is ordered, and then what is left.
    Steady,
    /// Is killed.
    Victim(Hold),
    /// Comes after the victims, and handles what is left.
    Last,
}

/// Where a victim waits for its kill: in the transaction of a handler, the lease in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    /// In the handler of this message, counted from 1.
    pub(super) at: u32,
    /// Whether it has written the effect then, or not yet.
    pub(super) written: bool,
    /// Whether it handles batches.
    pub(super) batches: bool,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steady => f.write_str("steady"),
            Self::Last => f.write_str("last"),
            Self::Victim(Hold { at, written, batches }) => write!(f, "{at} {written} {batches}"),
        }
    }
}

impl std::str::FromStr for Role {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        Ok(match words.next().unwrap_or_default() {
            "steady" => Self::Steady,
            "last" => Self::Last,
            at => {
                let mut flag = || words.next() == Some("true");
                Self::Victim(Hold { at: at.parse()?, written: flag(), batches: flag() })
            }
        })
    }
}

/// Hears the orders. When nobody can give any more, the test is gone, and the process ends.
fn listen() -> UnboundedReceiver<String> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for order in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(order);
        }
        std::process::exit(1);
    });
    orders
}

/// Says a word past the test harness, which would keep it.
fn say(word: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{MARK}{word}").and_then(|()| output.flush()).expect("the test listens");
}

/// Handles so many messages more with each order that is a number, and with the first that is none
/// everything that is left. In between it shuts down as a service does.
async fn work_in_portions<E: Engine>(worker: &Worker<E::Store>, mut orders: UnboundedReceiver<String>) {
    let hands = Hands::default();
    let handler =
        async |tx: &mut Tx<E>, messages: &[StoredMessage]| hands.handle_all::<E>(tx, messages).await;
    let mut more = next(&mut orders).await;
    while let Some(portion) = more {
        let mut handled = hands.handled.subscribe();
        let mut limit = *handled.borrow() + portion;
        let mut everything = false;
        let spent = async {
            loop {
                tokio::select! {
                    _ = handled.wait_for(|handled| *handled >= limit) => return,
                    more = next(&mut orders) => match more {
                        Some(portion) => limit = *hands.handled.borrow() + portion,
                        None => return everything = true,
                    }
                }
            }
        };
        worker.run_batches(spent, &handler).await.expect("a worker that lives");
        more = if everything { None } else { next(&mut orders).await };
    }
    worker.run_batches_until_drained(&handler).await.expect("a worker that drains");
}

/// The next portion; none, if everything is to be handled.
async fn next(orders: &mut UnboundedReceiver<String>) -> Option<u32> {
    let order = orders.recv().await.expect("the process ends before the orders do");
    order.parse().ok()
}

async fn work_until_killed<E: Engine>(worker: &Worker<E::Store>, hold: Hold) {
    let hands = Hands { hold: Some(hold), ..Hands::default() };
    let ended = match hold.batches {
        true => {
            let handler =
                async |tx: &mut Tx<E>, messages: &[StoredMessage]| hands.handle_all::<E>(tx, messages).await;
            worker.run_batches(std::future::pending::<()>(), handler).await
        }
        false => {
            let handler =
                async |tx: &mut Tx<E>, message: &StoredMessage| hands.handle::<E>(tx, message).await;
            worker.run(std::future::pending::<()>(), handler).await
        }
    };
    panic!("a worker that nobody told to stop has stopped: {ended:?}");
}

/// The handlers, and what they count.
#[derive(Debug, Default)]
struct Hands {
    /// How many messages were begun.
    handled: watch::Sender<u32>,
    hold: Option<Hold>,
}

impl Hands {
    async fn handle<E: Engine>(&self, tx: &mut Tx<E>, message: &StoredMessage) -> Result<(), HandlerError> {
        self.handle_all::<E>(tx, std::slice::from_ref(message)).await
    }

    async fn handle_all<E: Engine>(
        &self,
        tx: &mut Tx<E>,
        messages: &[StoredMessage],
    ) -> Result<(), HandlerError> {
        let hold = self.hold_of(messages.len());
        if hold.is_some_and(|hold| !hold.written) {
            until_killed().await;
        }
        for message in messages {
            E::write_effect(tx, message.id().as_str()).await?;
        }
        if hold.is_some() {
            until_killed().await;
        }
        Ok(())
    }

    /// Counts what a handler begins, and answers whether it is the one to be killed in. The others go on, so
    /// that the kill meets them wherever they are.
    fn hold_of(&self, messages: usize) -> Option<Hold> {
        let messages = u32::try_from(messages).expect("a batch");
        let mut before = 0;
        self.handled.send_modify(|handled| {
            before = *handled;
            *handled += messages;
        });
        self.hold.filter(|hold| before < hold.at && hold.at <= before + messages)
    }
}

async fn until_killed() {
    say(HOLDING);
    std::future::pending().await
}
