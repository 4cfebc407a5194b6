//! `PostgresStore` as the suite needs it, directly and behind PgBouncer.

use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use inbox_core::{
    Administer, Begin, BoxError, BoxFuture, Capabilities, Commit, Consumer, Error, InboxStore, MessageId, Original,
    Register, RegisterBatch, Registration, Transactional,
};
use inbox_postgres::PostgresStore;
use inbox_testkit::postgres::{self as blocks, PgTx};
use inbox_testkit::servers::{PgBouncer, PgBouncerOptions, PostgresServer, ServerError, Wanted};
use inbox_testkit::suite::{Damage, Fresh, Level, Need, Probe, Stand};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
