//! The table of kept messages: its DDL, the rights on it, and creating it (R15).

use inbox_core::{Deadline, Error, Identifier, TableName};
use sqlx::AssertSqlSafe;

use crate::schema::{missing_right, schema_ddl};
use crate::{PostgresStore, begin, errors, statements};

/// The version of the table of kept messages. Its comment carries it: `inbox messages schema 1`.
pub(crate) const MESSAGES_VERSION: u32 = 1;

/// The columns that change once a message is kept.
const CHANGING: &str = "state, lease_token, due_at, not_before, attempts, allowed, history, state_since";

/// The statements that create the table of kept messages beside this **inbox** table, for migrations of
/// your own. They may be run again.
pub fn messages_ddl(inbox: &TableName) -> String {
    match inbox.schema().as_str() {
        "public" => table_ddl(inbox),
        _ => schema_ddl(inbox) + &table_ddl(inbox),
    }
}

fn table_ddl(inbox: &TableName) -> String {
    let messages = inbox.messages();
    let text = statements::without_comments(include_str!("../sql/messages/table.sql"))
        .replace("{messages}", &messages.quoted())
        .replace("{name}", messages.table().as_str())
        .replace("{comment}", &format!("inbox messages schema {MESSAGES_VERSION}"));
    format!("{text}\n")
}

/// The statements that give a role what receiving and working need beside [`grants`](crate::grants) and no
/// more: it can neither delete a kept message nor change what was received. Takes the **inbox** table.
pub fn message_grants(inbox: &TableName, role: &Identifier) -> String {
    let (schema, messages) = (inbox.schema(), inbox.messages().quoted());
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";\n\
         GRANT SELECT, INSERT, UPDATE ({CHANGING}) ON TABLE {messages} TO \"{role}\";\n"
    )
}

/// The statements that give a role what replaying and purging kept messages need. Takes the **inbox** table.
pub fn message_operator_grants(inbox: &TableName, role: &Identifier) -> String {
    let (schema, messages) = (inbox.schema(), inbox.messages().quoted());
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";\n\
         GRANT SELECT, DELETE, UPDATE ({CHANGING}) ON TABLE {messages} TO \"{role}\";\n"
    )
}

impl PostgresStore {
    /// The table of kept messages: that of the inbox with `_messages` after its name.
    pub fn messages_table(&self) -> TableName {
        self.table().messages()
    }

    /// Creates the table of kept messages and, if need be, its schema, on a connection of the pool: see
    /// [`messages_ddl`]. As [`create_schema`](Self::create_schema) does for the inbox's own table, which
    /// this leaves alone.
    ///
    /// # Errors
    ///
    /// As [`create_schema`](Self::create_schema).
    pub async fn create_message_schema(&self) -> Result<(), Error> {
        let messages = self.messages_table();
        let doing = format!("create the table of kept messages {messages}");
        let wait = Deadline::after(self.wait());
        let mut tx = begin::begin(self.pool(), &doing).await?;
        let exists = self.lock_and_look(&mut tx, &messages, &wait).await;
        let exists = exists.map_err(|source| errors::error_within(&wait, &*doing, source))?;
        if exists.table {
            return self.verify_messages_on(&mut tx, &doing).await.map(drop);
        }
        let create = async {
            self.bound_waits(&mut tx, &wait).await?;
            let schema = if exists.schema { String::new() } else { schema_ddl(self.table()) };
            // Safe to send: only names that need no escaping are put into the text.
            sqlx::raw_sql(AssertSqlSafe(schema + &table_ddl(self.table()))).execute(&mut *tx).await
        };
        create.await.map_err(|source| {
            let no_right = errors::has_code(&source, errors::NO_RIGHT);
            let error = errors::error_within(&wait, &*doing, source);
            if no_right { error.with_detail(missing_right(exists)) } else { error }
        })?;
        tx.commit().await.map_err(|source| errors::commit_error(&*doing, source))
    }
}
