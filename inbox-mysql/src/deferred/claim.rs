//! Claiming: lock what is due, look what may run, take it.

use inbox_core::{AfterDead, Claim, Error, MessageRow, duration_micros, in_own_task};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::row;
use super::short::{self, Short};
use super::statements::{LEASES, sequences, time};
use crate::script::Script;
use crate::transaction::COMMIT;
use crate::{MySqlStore, errors, literal};

/// Claims in one transaction of two round trips; of three where the order is kept, and two more for each
/// window of messages that all have to wait.
pub(crate) async fn claim(store: &MySqlStore, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
    let doing = request.doing();
    let claiming = Claiming::new(store.clone(), request);
    let claimed = in_own_task(&doing, async move {
        let mut short = Short::open(claiming.store.pool()).await?;
        let claimed = claiming.run(&mut short).await;
        short.end(claimed).await
    });
    claimed.await?.map_err(|source| errors::error(doing, source))
}

/// A request, as SQL.
struct Claiming {
    store: MySqlStore,
    consumer: String,
    token: String,
    max_attempts: u32,
    limit: u32,
    window: u32,
    lease: i64,
    order: Option<AfterDead>,
}

/// A message that is due, locked.
struct Candidate {
    sequence: i64,
    /// Whether it has spent its attempts.
    spent: bool,
    /// Whether it bears a lease, which then has run out.
    abandoned: bool,
    /// The database's time, in microseconds since 1970.
    now: i64,
}

impl Claiming {
    fn new(store: MySqlStore, request: &Claim<'_>) -> Self {
        Self {
            store,
            consumer: literal::bytes(request.consumer.as_str()),
            token: literal::bytes(request.token.as_bytes()),
            max_attempts: request.max_attempts,
            limit: request.limit,
            window: request.window(),
            lease: duration_micros(request.lease),
            order: request.order,
        }
    }

    async fn run(&self, short: &mut Short) -> Result<Vec<MessageRow>, sqlx::Error> {
        let (found, first) = match self.order {
            None => (self.lock(short, None, self.limit).await?, Script::new()),
            Some(after_dead) => self.lock_free(short, after_dead).await?,
        };
        self.take(short, found, first).await
    }

    /// Locks up to so many that are due; first of all begins, or postpones others.
    async fn lock(
        &self,
        short: &mut Short,
        postpone: Option<Script>,
        limit: u32,
    ) -> Result<Vec<Candidate>, sqlx::Error> {
        let lock = self.store.messages().candidates.with(&[
            ("{consumer}", &self.consumer),
            ("{max_attempts}", &self.max_attempts.to_string()),
            ("{limit}", &limit.to_string()),
        ]);
        let answers = match postpone {
            None => short.start(&short::begin().then(lock)).await?,
            Some(postpone) => short.go_on(&postpone.then(lock)).await?,
        };
        answers.last().map_or(&[][..], |answer| &answer.rows).iter().map(candidate).collect()
    }

    /// Those that nothing blocks, and the statements that postpone the others.
    ///
    /// Locks, then looks: whoever unblocks a message that is postponed here waits for this transaction, and a
    /// message that was settled before this one locked is seen as settled.
    async fn lock_free(
        &self,
        short: &mut Short,
        after_dead: AfterDead,
    ) -> Result<(Vec<Candidate>, Script), sqlx::Error> {
        let mut postpone = None;
        for _ in 0..Claim::WINDOWS {
            let candidates = self.lock(short, postpone.take(), self.window).await?;
            let was_full = candidates.len() as u64 >= u64::from(self.window);
            let blocked = self.blocked(short, &candidates, after_dead).await?;
            let (waiting, mut free): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|one| blocked.contains(&one.sequence));
            let postponing = self.postpone(&waiting);
            if !free.is_empty() || !was_full {
                free.truncate(self.limit as usize);
                return Ok((free, postponing));
            }
            postpone = Some(postponing);
        }
        Ok((Vec::new(), postpone.unwrap_or_default()))
    }

    /// Which of these have to wait for an earlier one of their key.
    async fn blocked(
        &self,
        short: &mut Short,
        candidates: &[Candidate],
        after_dead: AfterDead,
    ) -> Result<Vec<i64>, sqlx::Error> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let dead_block = if after_dead == AfterDead::Block { "TRUE" } else { "FALSE" };
        let look = chunks(candidates).fold(Script::new(), |script, sequences| {
            script.then(self.store.messages().blocked.with(&[
                ("{sequences}", &sequences),
                ("{consumer}", &self.consumer),
                ("{dead_block}", dead_block),
            ]))
        });
        let answers = short.go_on(&look).await?;
        answers.iter().flat_map(|answer| &answer.rows).map(|row| row.try_get(0)).collect()
    }

    fn postpone(&self, waiting: &[Candidate]) -> Script {
        let until = self.until(waiting);
        chunks(waiting).fold(Script::new(), |script, sequences| {
            let values = [("{until}", until.as_str()), ("{sequences}", &sequences)];
            script.then(self.store.messages().postpone.with(&values))
        })
    }

    /// Takes what was locked, reads it, and commits.
    async fn take(
        &self,
        short: &mut Short,
        found: Vec<Candidate>,
        first: Script,
    ) -> Result<Vec<MessageRow>, sqlx::Error> {
        let (script, read) = self.taking(&found, first);
        let answers = short.go_on(&script.then(COMMIT)).await?;
        let mut rows = Vec::with_capacity(found.len());
        for answer in &answers[read..answers.len() - 1] {
            rows.extend(row::read_all(answer)?);
        }
        let place = |row: &MessageRow| found.iter().position(|one| one.sequence == row.sequence);
        rows.sort_by_key(place);
        Ok(rows)
    }

    /// The statements that take, and from which on they read.
    fn taking(&self, found: &[Candidate], mut script: Script) -> (Script, usize) {
        let texts = self.store.messages();
        let until = self.until(found);
        let at = time(found.first().map_or(0, |one| one.now));
        let line = texts.line("\"kind\":\"abandoned\"");
        let of = |which: fn(&Candidate) -> bool| found.iter().filter(move |one| which(one));

        // First, with the number of the attempt that was abandoned.
        for sequences in chunks(of(|one| one.abandoned)) {
            script = script.then(texts.abandon.with(&[("{line}", &line), ("{sequences}", &sequences)]));
        }
        for sequences in chunks(of(|one| one.spent)) {
            script = script.then(texts.bury.with(&[("{at}", &at), ("{sequences}", &sequences)]));
        }
        for sequences in chunks(of(|one| !one.spent)) {
            script = script.then(texts.take.with(&[
                ("{token}", &self.token),
                ("{until}", &until),
                ("{sequences}", &sequences),
            ]));
        }
        let read = script.len();
        for sequences in chunks(found) {
            script = script.then(texts.read.with(&[("{sequences}", &sequences)]));
        }
        (script, read)
    }

    /// The end of a lease that begins now.
    fn until(&self, candidates: &[Candidate]) -> String {
        time(candidates.first().map_or(0, |one| one.now).saturating_add(self.lease))
    }
}

fn candidate(row: &MySqlRow) -> Result<Candidate, sqlx::Error> {
    let flag = |at: usize| row.try_get::<i64, _>(at).map(|flag| flag != 0);
    Ok(Candidate { sequence: row.try_get(0)?, spent: flag(1)?, abandoned: flag(2)?, now: row.try_get(3)? })
}

/// The sequences of candidates, as lists of a length that a statement takes.
fn chunks<'c>(candidates: impl IntoIterator<Item = &'c Candidate>) -> impl Iterator<Item = String> {
    let all: Vec<i64> = candidates.into_iter().map(|one| one.sequence).collect();
    all.chunks(LEASES).map(|chunk| sequences(chunk.iter().copied())).collect::<Vec<_>>().into_iter()
}
