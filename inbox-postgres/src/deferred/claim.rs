//! Claiming what is due (D2), and in the order of the keys (D7).

use inbox_core::{AfterDead, Claim, Error, MessageRow, duration_micros};
use sqlx::{Postgres, Transaction};

use super::lane::Lane;
use super::row::{self, Row};
use crate::{PostgresStore, begin, errors};

pub(crate) async fn claim(store: &PostgresStore, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
    match request.order {
        None => claim_any(store, request).await,
        Some(after_dead) => claim_in_order(store, request, after_dead).await,
    }
}

async fn claim_any(store: &PostgresStore, request: &Claim<'_>) -> Result<Vec<MessageRow>, Error> {
    let doing = request.doing();
    let mut lane = Lane::of(store, &doing).await?;
    let rows: Vec<Row> = sqlx::query_as(store.statements().messages.claim.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(i64::from(request.limit))
        .bind(request.token.as_bytes().as_slice())
        .bind(duration_micros(request.lease))
        .bind(i64::from(request.max_attempts))
        .fetch_all(lane.conn())
        .await
        .map_err(|source| errors::message_error(&*doing, source))?;
    lane.end(&doing).await?;
    Ok(rows.into_iter().map(row::message).collect())
}

/// Locks what is due, then looks at it in a new snapshot: so a message whose predecessor is settled
/// meanwhile is either seen to be free, or unblocked after these locks are gone. The new snapshot is why
/// this is READ COMMITTED.
async fn claim_in_order(
    store: &PostgresStore,
    request: &Claim<'_>,
    after_dead: AfterDead,
) -> Result<Vec<MessageRow>, Error> {
    let doing = request.doing();
    let mut tx = begin::begin_read_committed(store.pool(), &doing).await?;
    let window = i64::from(request.window());
    let mut rows = Vec::new();
    for _ in 0..Claim::WINDOWS {
        let locked = lock_due(store, &mut tx, request, window).await;
        let locked = locked.map_err(|source| errors::message_error(&*doing, source))?;
        let full = i64::try_from(locked.len()) == Ok(window);
        if !locked.is_empty() {
            let taken = take_free(store, &mut tx, request, &locked, after_dead).await;
            rows = taken.map_err(|source| errors::message_error(&*doing, source))?;
        }
        if !full || !rows.is_empty() {
            break;
        }
    }
    tx.commit().await.map_err(|source| errors::commit_error(&*doing, source))?;
    Ok(rows.into_iter().map(row::message).collect())
}

async fn lock_due(
    store: &PostgresStore,
    tx: &mut Transaction<'static, Postgres>,
    request: &Claim<'_>,
    window: i64,
) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(store.statements().messages.lock_due.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(window)
        .fetch_all(&mut **tx)
        .await
}

async fn take_free(
    store: &PostgresStore,
    tx: &mut Transaction<'static, Postgres>,
    request: &Claim<'_>,
    locked: &[i64],
    after_dead: AfterDead,
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as(store.statements().messages.claim_in_order.sql())
        .persistent(store.prepared())
        .bind(request.consumer.as_str())
        .bind(i64::from(request.limit))
        .bind(request.token.as_bytes().as_slice())
        .bind(duration_micros(request.lease))
        .bind(i64::from(request.max_attempts))
        .bind(locked)
        .bind(after_dead == AfterDead::Block)
        .fetch_all(&mut **tx)
        .await
}
