//! The table: its DDL, the rights on it, and creating it (R15).

use std::fmt;

use inbox_core::{Deadline, Error, ErrorKind, TableName};
use sqlx::pool::PoolConnection;
use sqlx::{MySql, MySqlConnection, Row};

use crate::script::{Failed, Script};
use crate::statements::{quoted, without_comments};
use crate::{MySqlStore, errors, transaction, wait};

/// The version of the schema that [`ddl`] makes. The table's comment carries it: `inbox schema 1`.
pub const SCHEMA_VERSION: u32 = 1;

/// The comment that tells an inbox's table from any other, up to its version.
const COMMENT: &str = "inbox schema ";

/// The table unless another is set, in the database of the pool's URL.
pub(crate) const DEFAULT_TABLE: &str = "inbox";

/// The statement that creates the table, for migrations of your own. It may be run again. Its
/// database has to be there.
///
/// Besides the key there is an index on `registered_at`, for the purge.
pub fn ddl(table: &TableName) -> String {
    let tables = without_comments(include_str!("sql/table.sql"))
        .replace("{table}", &quoted(table))
        .replace("{comment}", &format!("{COMMENT}{SCHEMA_VERSION}"));
    format!("{tables}\n")
}

/// The statement that gives an account what registering needs, and no more: it can neither change
/// nor delete a registration, nor choose its time.
///
/// Such an account may not see triggers, which [`verify`](MySqlStore::verify) warns of.
pub fn grants(table: &TableName, account: &Account) -> String {
    let table = quoted(table);
    format!(
        "GRANT SELECT, INSERT (consumer, message_id, event_type, fingerprint, attempt) ON TABLE {table} TO {account};\n"
    )
}

/// The statement that gives an account what forgetting and purging need.
pub fn operator_grants(table: &TableName, account: &Account) -> String {
    let table = quoted(table);
    format!("GRANT SELECT, DELETE ON TABLE {table} TO {account};\n")
}

/// An account of MySQL or MariaDB: a user, and the hosts that it may come from.
///
/// Displayed as a statement takes it: `'app'@'10.0.%'`.
///
/// ```
/// use inbox_core::TableName;
/// use inbox_mysql::{Account, grants};
///
/// let account = Account::new("app", "10.0.%")?;
/// assert!(grants(&TableName::new("shop", "inbox")?, &account).ends_with("TO 'app'@'10.0.%';\n"));
/// # Ok::<_, inbox_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    user: String,
    host: String,
}

impl Account {
    /// The longest user's name in bytes, MariaDB's; MySQL's is 32.
    const USER_MAX_BYTES: usize = 128;
    /// The longest name of a host in bytes, of both servers.
    const HOST_MAX_BYTES: usize = 255;

    /// Checks an account's names: printable ASCII without quotes and backslashes, so that nothing
    /// needs escaping whatever the session's `sql_mode`. The host `%` is any.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] if a name breaks that rule, is empty, or is too long.
    pub fn new(user: &str, host: &str) -> Result<Self, Error> {
        for (name, longest) in [(user, Self::USER_MAX_BYTES), (host, Self::HOST_MAX_BYTES)] {
            let plain = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'"' | b'`' | b'\\');
            if !(1..=longest).contains(&name.len()) || !name.bytes().all(plain) {
                return Err(Error::new(ErrorKind::Schema, format!("use {name:?} in the name of an account"))
                    .with_detail(format!(
                        "it has 1 to {longest} printable ASCII characters, and no quotes or backslashes"
                    )));
            }
        }
        Ok(Self { user: user.to_owned(), host: host.to_owned() })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'@'{}'", self.user, self.host)
    }
}

impl MySqlStore {
    /// Creates the table and, if need be, its database, on a connection of the pool: see [`ddl`].
    ///
    /// May be called again, and by many processes at once. A table that is there is left as it is
    /// and [verified](Self::verify), so a name that is taken by something else is refused.
    ///
    /// The account needs CREATE on the table, or on the database if that is not there either, and to
    /// verify it some right on the table. Sessions that alter or remove the same are waited for no
    /// longer than [`with_wait`](Self::with_wait) says, in whole seconds from one.
    ///
    /// The connection is closed afterwards. A pool whose URL names a database that is not there
    /// cannot connect at all: for it to be created, give the table by [`on_table`](Self::on_table).
    ///
    /// # Errors
    ///
    /// `Schema` if the account may not create the table, or if one is there that `verify` refuses;
    /// `Busy` past the wait; `Unavailable`, or what the server reports.
    pub async fn create_schema(&self) -> Result<(), Error> {
        let doing = format!("create the inbox table {}", self.table());
        let mut conn = self.create_table(self.table(), &ddl(self.table()), &doing).await?;
        // Also of a table that was just created: another process may have been the one, with
        // something else in mind.
        self.verify_on(&mut conn, &doing).await.map(drop)
    }

    /// Creates a table unless it is there, and returns the connection.
    pub(crate) async fn create_table(
        &self,
        table: &TableName,
        ddl: &str,
        doing: &str,
    ) -> Result<PoolConnection<MySql>, Error> {
        let wait = Deadline::after(self.wait());
        let mut conn = self.pool().acquire().await.map_err(|source| unconnected(doing, source))?;
        // Its session's settings go with it, however this ends, and so does what DDL may have left.
        conn.close_on_drop();
        let exists = look_for_table(table, &mut conn, &wait).await;
        let exists = exists.map_err(|source| errors::error_within(&wait, doing, source))?;
        if !exists.table {
            create(table, ddl, &mut conn, exists, &wait).await.map_err(|source| {
                let no_right =
                    matches!(errors::number(&source), Some(NO_RIGHT_ON_TABLE | NO_RIGHT_ON_DATABASE));
                let error = errors::error_within(&wait, doing, source);
                if no_right { error.with_detail(missing_right(exists)) } else { error }
            })?;
        }
        Ok(conn)
    }
}

async fn look_for_table(
    table: &TableName,
    conn: &mut MySqlConnection,
    wait: &Deadline,
) -> Result<Exists, sqlx::Error> {
    let look = without_comments(include_str!("sql/exists.sql"))
        .replace("{schema}", table.schema().as_str())
        .replace("{table}", table.table().as_str());
    // What somebody left open on the connection would be committed by DDL.
    let script = Script::new().then(transaction::ROLLBACK).then(bound(wait)).then(look);
    let answers = script.run(conn).await.map_err(Failed::into_source)?;
    let row = answers[2].rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(Exists { database: row.try_get::<i64, _>(0)? != 0, table: row.try_get::<i64, _>(1)? != 0 })
}

async fn create(
    table: &TableName,
    ddl: &str,
    conn: &mut MySqlConnection,
    exists: Exists,
    wait: &Deadline,
) -> Result<(), sqlx::Error> {
    // CREATE DATABASE needs a right on it, IF NOT EXISTS or not.
    if !exists.database {
        let database = format!("CREATE DATABASE IF NOT EXISTS `{}`", table.schema());
        let script = Script::new().then(bound(wait)).then(database);
        script.run(conn).await.map_err(Failed::into_source)?;
    }
    let script = Script::new().then(bound(wait)).then(ddl.trim_end().trim_end_matches(';'));
    script.run(conn).await.map(drop).map_err(Failed::into_source)
}

/// Bounds the waits of the session for the locks that DDL takes.
fn bound(wait: &Deadline) -> String {
    let seconds = wait::seconds_left(wait);
    format!("SET SESSION lock_wait_timeout = {seconds}, SESSION innodb_lock_wait_timeout = {seconds}")
}

/// What is there already.
#[derive(Debug, Clone, Copy)]
struct Exists {
    database: bool,
    table: bool,
}

/// ER_DBACCESS_DENIED_ERROR.
const NO_RIGHT_ON_DATABASE: u16 = 1044;
/// ER_TABLEACCESS_DENIED_ERROR.
const NO_RIGHT_ON_TABLE: u16 = 1142;
/// ER_BAD_DB_ERROR.
const NO_DATABASE: u16 = 1049;

/// The right without which the DDL failed.
fn missing_right(exists: Exists) -> &'static str {
    if exists.database {
        "this account needs CREATE on the table, or let its owner run the text of ddl"
    } else {
        "there is no such database, or this account has no right on it and so cannot see it; it needs CREATE on \
         the database, or let somebody else create it and run the text of ddl"
    }
}

/// The error where the pool gives no connection.
fn unconnected(doing: &str, source: sqlx::Error) -> Error {
    let no_database = errors::number(&source) == Some(NO_DATABASE);
    let error = errors::error(doing, source);
    if no_database {
        error.with_detail(
            "the database that the pool's URL names does not exist, so nobody can connect; create it, or leave it \
             out of the URL and give the table to MySqlStore::on_table",
        )
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_would_need_escaping_is_refused() {
        let too_long = "u".repeat(129);
        for (user, host) in [
            ("", "%"),
            ("app", ""),
            ("a'b", "%"),
            ("app", "h\\"),
            ("a`", "%"),
            ("é", "%"),
            (&too_long, "%"),
            ("a\n", "%"),
        ] {
            assert_eq!(Account::new(user, host).unwrap_err().kind(), ErrorKind::Schema, "{user:?}@{host:?}");
        }
        for host in ["%", "localhost", "10.0.0.0/255.255.0.0", "::1", "%.example.com"] {
            assert_eq!(Account::new("app 2", host).unwrap().to_string(), format!("'app 2'@'{host}'"));
        }
    }

    #[test]
    fn the_texts_name_the_table_with_its_database() {
        let table = TableName::new("app", "inbox").unwrap();
        let account = Account::new("app", "%").unwrap();
        for text in [ddl(&table), grants(&table, &account), operator_grants(&table, &account)] {
            assert!(text.contains(" `app`.`inbox` ") && text.ends_with(";\n"), "{text}");
        }
        assert!(!ddl(&table).contains("--"));
    }
}
