//! A plain connection commits each statement alone, and `&mut *tx` is one: the text names `&mut tx`.

use inbox_core::{Inbox, Message};
use inbox_postgres::PostgresStore;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Transaction};

fn by_reference(inbox: &Inbox<PostgresStore>, conn: &mut PgConnection, message: &Message) {
    let _ = inbox.register_if_new(conn, message);
}

fn of_a_pool(inbox: &Inbox<PostgresStore>, mut conn: PoolConnection<Postgres>, message: &Message) {
    let _ = inbox.register_if_new(&mut conn, message);
}

fn inside_a_transaction(inbox: &Inbox<PostgresStore>, mut tx: Transaction<'_, Postgres>, message: &Message) {
    let _ = inbox.register_if_new(&mut *tx, message);
}

fn by_value(inbox: &Inbox<PostgresStore>, conn: PgConnection, message: &Message) {
    let _ = inbox.register(conn, message);
}

fn main() {}
