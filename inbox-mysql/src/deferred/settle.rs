//! What a worker does with messages besides handling them: renew, fail, release, unblock.

use inbox_core::{Error, Fail, Lease, Release, Renew, Renewal, Unblock, duration_micros, in_own_task};
use sqlx::Row;

use super::short::{self, Short};
use super::statements::{LEASES, sequences};
use crate::script::{Answer, Script};
use crate::transaction::COMMIT;
use crate::{MySqlStore, errors, literal};

/// How many keys one statement looks at.
const KEYS: usize = 100;

/// Renews leases in two round trips; waits for nobody.
pub(crate) async fn renew(store: &MySqlStore, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
    let mut renewals = Vec::with_capacity(request.leases.len());
    for chunk in request.leases.chunks(LEASES) {
        let doing = request.doing();
        let renewing = Renewing {
            lock: store.messages().lock_leases.of(request.consumer, chunk),
            look: store.messages().see_leases.of(request.consumer, chunk),
            leases: chunk.to_vec(),
            lease: duration_micros(request.lease).to_string(),
            store: store.clone(),
        };
        let step = in_own_task(&doing, async move {
            let mut short = Short::open(renewing.store.pool()).await?;
            let renewed = renewing.run(&mut short).await;
            short.end(renewed).await
        });
        renewals.extend(step.await?.map_err(|source| errors::error(doing, source))?);
    }
    Ok(renewals)
}

struct Renewing {
    store: MySqlStore,
    lock: String,
    look: String,
    leases: Vec<Lease>,
    lease: String,
}

impl Renewing {
    async fn run(&self, short: &mut Short) -> Result<Vec<Renewal>, sqlx::Error> {
        let begin = short::begin();
        let at = begin.len();
        // First the locks: a row that is settled in between is seen as settled.
        let answers = short.start(&begin.then(&*self.lock).then(&*self.look)).await?;
        let (locked, holding) = (read_leases(&answers[at])?, read_leases(&answers[at + 1])?);
        let renew = (!locked.is_empty()).then(|| {
            let locked = sequences(locked.iter().map(|(sequence, _)| *sequence));
            let values = [("{lease}", self.lease.as_str()), ("{sequences}", &locked)];
            self.store.messages().renew.with(&values)
        });
        short.go_on(&Script::new().then_some(renew).then(COMMIT)).await?;
        // One row may be meant twice, by an old token and by its own.
        let is_in = |rows: &[(i64, Vec<u8>)], lease: &Lease| {
            rows.iter().any(|(row, token)| *row == lease.sequence && token == lease.token.as_bytes())
        };
        let renewal = |lease: &Lease| match (is_in(&locked, lease), is_in(&holding, lease)) {
            (true, _) => Renewal::Renewed,
            (false, true) => Renewal::Locked,
            (false, false) => Renewal::Lost,
        };
        Ok(self.leases.iter().map(renewal).collect())
    }
}

pub(crate) async fn fail(store: &MySqlStore, request: &Fail<'_>) -> Result<(), Error> {
    let texts = store.messages();
    let line = texts.line(&format!("\"kind\":\"failed\",\"error\":{}", request.error_json));
    let delay = request.retry_after.map(|delay| duration_micros(delay).to_string());
    let text = if delay.is_some() { &texts.retry } else { &texts.die };
    let statement = text
        .of(request.consumer, &[request.lease])
        .replace("{line}", &line)
        .replace("{delay}", delay.as_deref().unwrap_or_default());
    let answers = short::run(store, &request.doing(), vec![statement]).await?;
    // By rows that matched, as sqlx counts them.
    match answers[0].affected {
        0 => Err(request.lease_lost()),
        _ => Ok(()),
    }
}

pub(crate) async fn release(store: &MySqlStore, request: &Release<'_>) -> Result<u64, Error> {
    let release = |leases| store.messages().release.of(request.consumer, leases);
    let statements: Vec<String> = request.leases.chunks(LEASES).map(release).collect();
    if statements.is_empty() {
        return Ok(0);
    }
    let answers = short::run(store, &request.doing(), statements).await?;
    Ok(answers.iter().map(|answer| answer.affected).sum())
}

/// Two round trips: looks for the first message of each key, then unblocks those.
///
/// A claim that is postponing one of them has it locked, and this waits for it. One that has not locked it
/// yet will see what was settled before this was called.
pub(crate) async fn unblock(store: &MySqlStore, request: &Unblock<'_>) -> Result<(), Error> {
    let consumer = literal::bytes(request.consumer.as_str());
    for keys in request.keys.chunks(KEYS) {
        let head = |key: &inbox_core::OrderingKey| {
            let key = literal::bytes(key.as_str());
            store.messages().head.with(&[("{consumer}", &consumer), ("{key}", &key)])
        };
        let heads = keys.iter().map(head).collect::<Vec<_>>().join("\nUNION ALL\n");
        let answers = short::run(store, &request.doing(), vec![heads]).await?;
        let waiting = unleased(&answers[0]).map_err(|source| errors::error(request.doing(), source))?;
        if !waiting.is_empty() {
            let values = [("{consumer}", consumer.as_str()), ("{sequences}", &sequences(waiting))];
            short::run(store, &request.doing(), vec![store.messages().unblock.with(&values)]).await?;
        }
    }
    Ok(())
}

fn unleased(answer: &Answer) -> Result<Vec<i64>, sqlx::Error> {
    let mut sequences = Vec::with_capacity(answer.rows.len());
    for row in &answer.rows {
        if row.try_get::<i64, _>(1)? != 0 {
            sequences.push(row.try_get(0)?);
        }
    }
    Ok(sequences)
}

fn read_leases(answer: &Answer) -> Result<Vec<(i64, Vec<u8>)>, sqlx::Error> {
    answer.rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
