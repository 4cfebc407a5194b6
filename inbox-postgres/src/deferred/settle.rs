//! What becomes of a lease besides its completion: renewed, failed, released; and a key unblocked.

use inbox_core::{Deadline, Error, Fail, OrderingKey, Release, Renew, Renewal, Unblock, duration_micros};

use super::complete::columns;
use super::lane::Lane;
use crate::wait::lock_timeout;
use crate::{PostgresStore, errors};

pub(crate) async fn renew(store: &PostgresStore, request: &Renew<'_>) -> Result<Vec<Renewal>, Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let (sequences, tokens) = columns(request.leases);
    let answers: Vec<i32> = sqlx::query_scalar(store.statements().messages.renew.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(sequences)
        .bind(tokens)
        .bind(duration_micros(request.lease))
        .fetch_all(lane.conn())
        .await
        .map_err(|source| errors::message_error(&*doing, source))?;
    lane.end(&doing).await?;
    let renewal = |answer| match answer {
        0 => Renewal::Renewed,
        1 => Renewal::Locked,
        _ => Renewal::Lost,
    };
    Ok(answers.into_iter().map(renewal).collect())
}

pub(crate) async fn fail(store: &PostgresStore, request: &Fail<'_>) -> Result<(), Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let wait = Deadline::after(store.wait());
    let failed = sqlx::query(store.statements().messages.fail.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(request.lease.sequence)
        .bind(request.lease.token.as_bytes().as_slice())
        .bind(lock_timeout(&wait))
        .bind(request.error_json)
        .bind(request.retry_after.map(duration_micros))
        .execute(lane.conn())
        .await
        .map_err(|source| errors::message_error_within(&wait, &*doing, source))?;
    lane.end(&doing).await?;
    if failed.rows_affected() == 1 {
        return Ok(());
    }
    Err(request.lease_lost())
}

pub(crate) async fn release(store: &PostgresStore, request: &Release<'_>) -> Result<u64, Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let wait = Deadline::after(store.wait());
    let (sequences, tokens) = columns(request.leases);
    let released = sqlx::query(store.statements().messages.release.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(sequences)
        .bind(tokens)
        .bind(lock_timeout(&wait))
        .execute(lane.conn())
        .await
        .map_err(|source| errors::message_error_within(&wait, &*doing, source))?;
    lane.end(&doing).await?;
    Ok(released.rows_affected())
}

pub(crate) async fn unblock(store: &PostgresStore, request: &Unblock<'_>) -> Result<(), Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let wait = Deadline::after(store.wait());
    sqlx::query(store.statements().messages.unblock.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(request.keys.iter().map(OrderingKey::as_str).collect::<Vec<_>>())
        .bind(lock_timeout(&wait))
        .execute(lane.conn())
        .await
        .map_err(|source| errors::message_error_within(&wait, &*doing, source))?;
    lane.end(&doing).await
}
