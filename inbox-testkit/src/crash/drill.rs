//! [`survive_kills`]: what the test itself does: receive, kill, come back late, and count.

use std::collections::HashSet;
use std::time::Duration;

use inbox_core::{
    BatchReceived, Claim, Deferred, Envelope, Filter, Inbox, IncidentKind, Lease, Message, MessageId, State,
};

use super::process::Process;
use super::worker::{HOLDING, Hold, Role};
use super::{Engine, LEASE, MAX_ATTEMPTS, inbox};

const MESSAGES: u32 = 20_000;
const KILLS: u32 = 24;
/// How many messages are received at the start, and again while each victim works: all in all, each.
const RECEIVED_A_ROUND: u32 = MESSAGES / (KILLS + 1);
const RECEIVED_AT_ONCE: u32 = 400;
/// How many of them the worker that lives handles at most, but for a few more that it has in hand: so each
/// victim finds as many as it takes to come to its kill.
const FOR_THE_STEADY_ONE: u32 = 500;
/// The last message at which a victim is killed.
const LATEST_KILL: u32 = 100;
/// How many leases are claimed at the start, and remembered when they have long run out.
const LATE: u32 = 20;
/// How long everything may take.
const LIMIT: Duration = Duration::from_secs(120);

const _: () =
    assert!(RECEIVED_A_ROUND * (KILLS + 1) == MESSAGES && RECEIVED_A_ROUND.is_multiple_of(RECEIVED_AT_ONCE));
// The steady one has four batches of 20 in hand, and one more on its way.
const _: () = assert!(RECEIVED_A_ROUND - FOR_THE_STEADY_ONE - 100 > LATEST_KILL);

/// Receives 20,000 messages while two worker processes handle them, kills one of them 24 times in a handler,
/// and checks that every message is done, with one effect.
///
/// `test` is the full name of the test that calls this, which must call [`work_as_told`](super::work_as_told)
/// first. The database has the inbox's tables and the one of effects, all empty.
///
/// # Panics
///
/// If a message is lost or dead, if an effect is missing or doubled, if fewer leases were taken over than
/// kills were made, or if it is not over after two minutes.
pub async fn survive_kills<E: Engine>(test: &str, database: &str) {
    let inbox = inbox(E::open(database).await);
    let mut drill = Drill::<E> { inbox, test, database, received: 0, kills: 0, step: "starting" };
    if tokio::time::timeout(LIMIT, drill.run()).await.is_err() {
        let Drill { received, kills, step, .. } = drill;
        panic!("not over after {LIMIT:?}, but {step}, with {received} messages received and {kills} kills");
    }
}

struct Drill<'d, E: Engine> {
    inbox: Inbox<E::Store>,
    test: &'d str,
    database: &'d str,
    received: u32,
    kills: u32,
    /// What it is about, for whoever waits in vain.
    step: &'static str,
}

impl<E: Engine> Drill<'_, E> {
    async fn run(&mut self) {
        self.receive(RECEIVED_A_ROUND).await;
        let late = self.claim_and_forget().await;
        let mut steady = self.start(Role::Steady);
        for round in 0..KILLS {
            steady.order(&FOR_THE_STEADY_ONE.to_string());
            self.kill_one_in_a_handler(round).await;
        }

        self.step = "draining";
        steady.order("what is left");
        let last = self.start(Role::Last);
        last.until_it_ends().await;
        steady.until_it_ends().await;

        self.come_back_late(&late).await;
        self.count().await;
    }

    fn start(&self, role: Role) -> Process {
        Process::start(self.test, role.to_string(), self.database)
    }

    async fn receive(&mut self, messages: u32) {
        self.step = "receiving or waiting for a victim's handler";
        let end = self.received + messages;
        while self.received < end {
            let batch: Vec<Envelope> =
                (self.received..end.min(self.received + RECEIVED_AT_ONCE)).map(envelope).collect();
            let answers = self.inbox.receive_batch(&batch).await.expect("a batch is received");
            let kept = answers.iter().filter(|answer| matches!(answer, BatchReceived::Kept)).count();
            assert_eq!(kept, batch.len(), "each message is new: {answers:?}");
            self.received += RECEIVED_AT_ONCE;
        }
    }

    async fn kill_one_in_a_handler(&mut self, round: u32) {
        let at = 1 + round * 37 % LATEST_KILL;
        let mut victim =
            self.start(Role::Victim(Hold { at, written: round.is_multiple_of(2), batches: round % 4 >= 2 }));
        let kill = async {
            victim.until_it_says(HOLDING).await;
            victim.kill();
        };
        // At the same time: where there is one writer, the victim's handler keeps it to the end.
        tokio::join!(self.receive(RECEIVED_A_ROUND), kill);
        self.kills += 1;
    }

    /// Claims leases as a worker would that stands still from then on.
    async fn claim_and_forget(&mut self) -> Vec<(Lease, String)> {
        self.step = "claiming";
        let claim = Claim::new(self.inbox.consumer(), LEASE, MAX_ATTEMPTS).limit(LATE);
        let rows = self.inbox.store().claim(&claim).await.expect("a claim");
        assert_eq!(rows.len(), LATE as usize, "the messages were received before");
        let remembered = rows.into_iter().map(|row| {
            let lease = Lease { sequence: row.sequence, token: claim.token };
            (lease, String::from_utf8(row.message_id).expect("an id of ours"))
        });
        remembered.collect()
    }

    /// Goes on with these leases, which have run out: each writes its effect only if the fence lets it.
    async fn come_back_late(&mut self, claimed: &[(Lease, String)]) {
        self.step = "coming back late";
        for (lease, message) in claimed {
            let mut tx = self.inbox.begin().await.expect("a transaction");
            let held = tx.complete(&[*lease]).await.expect("an answer of the fence");
            if held == [true] {
                E::write_effect(&mut tx, message).await.expect("an effect");
            }
            tx.commit().await.expect("a commit");
        }
    }

    /// Checks what is left.
    #[allow(clippy::print_stdout, reason = "what the test has shown, for whoever asks with --nocapture")]
    async fn count(&mut self) {
        self.step = "counting";
        let counts = self.inbox.message_counts(u32::MAX).await.expect("counts");
        let (done, dead, pending) = (counts.done.count, counts.dead.count, counts.pending.count);
        let effects = E::count_effects(self.inbox.store()).await;
        let (listed, abandoned) = self.read_done().await;
        // Those of leases that no victim held do not count.
        let takeovers = abandoned.saturating_sub(LATE.into());
        let (received, kills) = (self.received, self.kills);
        println!(
            "received={received} done={done} dead={dead} effects={} kills={kills} takeovers={takeovers}",
            effects.all
        );

        assert_eq!((received, done, dead, pending), (MESSAGES, MESSAGES, 0, 0), "nothing is lost");
        assert_eq!(listed, MESSAGES as usize, "each message is done by its id");
        let each_once = (i64::from(MESSAGES), i64::from(MESSAGES), 0);
        assert_eq!((effects.all, effects.messages, effects.doubled), each_once, "every effect is there once");
        assert_eq!(kills, KILLS);
        assert!(takeovers >= u64::from(kills), "each victim held a lease, which was taken over");
    }

    /// How many ids are done, and how many takeovers are written down in their histories.
    async fn read_done(&self) -> (usize, u64) {
        let (mut ids, mut abandoned) = (HashSet::new(), 0);
        let mut filter = Filter::state(State::Done);
        loop {
            let listing = self.inbox.messages(&filter).await.expect("a listing");
            assert!(listing.damaged.is_empty(), "every row can be read: {:?}", listing.damaged);
            if listing.messages.is_empty() {
                return (ids.len(), abandoned);
            }
            filter = filter.after(&listing);
            for message in &listing.messages {
                ids.insert(message.id().clone());
                let of_message = message.history.iter().filter(|one| one.kind == IncidentKind::Abandoned);
                abandoned += of_message.count() as u64;
            }
        }
    }
}

fn envelope(number: u32) -> Envelope {
    let id = MessageId::new(format!("m-{number:05}")).expect("an id");
    Envelope::new(Message::new(id, "PaymentConfirmed").expect("a message"), "{}")
}
