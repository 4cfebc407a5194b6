//! A pool commits each statement alone: the registration would stay where the effect fails.

use inbox_core::{Inbox, Message};
use inbox_postgres::PostgresStore;
use sqlx::PgPool;

fn by_reference(inbox: &Inbox<PostgresStore>, mut pool: PgPool, message: &Message) {
    let _ = inbox.register_if_new(&mut pool, message);
}

fn in_a_batch(inbox: &Inbox<PostgresStore>, mut pool: PgPool, messages: &[Message]) {
    let _ = inbox.register_batch(&mut pool, messages);
}

fn by_value(inbox: &Inbox<PostgresStore>, pool: PgPool, message: &Message) {
    let _ = inbox.register(pool, message);
}

fn main() {}
