//! The table of kept messages: its DDL, the rights on it, and creating it (R15).

use inbox_core::{Error, SchemaReport, TableName};

use super::statements::named_states;
use crate::MySqlStore;
use crate::schema::Account;
use crate::statements::{quoted, without_comments};

/// The version of the schema that [`messages_ddl`] makes. The table's comment carries it:
/// `inbox messages schema 1`.
pub const MESSAGES_SCHEMA_VERSION: u32 = 1;

/// The statement that creates the table of kept messages beside this inbox's table, for migrations of your
/// own. It may be run again. Its database has to be there.
pub fn messages_ddl(inbox: &TableName) -> String {
    let table = without_comments(include_str!("../sql/messages/table.sql"))
        .replace("{table}", &quoted(&inbox.messages()))
        .replace("{comment}", &format!("inbox messages schema {MESSAGES_SCHEMA_VERSION}"));
    format!("{}\n", named_states(&table))
}

/// The statement that gives an account what receiving, working and replaying need on the table of kept
/// messages of this inbox's table: it can change neither a message nor when it was received, nor delete one.
pub fn message_grants(inbox: &TableName, account: &Account) -> String {
    let table = quoted(&inbox.messages());
    format!(
        "GRANT SELECT, \
         INSERT (consumer, message_id, event_type, fingerprint, payload, headers, content_type, ordering_key, state, \
         due_at, not_before, attempts, history, received_at, state_since), \
         UPDATE (state, lease_token, due_at, not_before, attempts, allowed, history, state_since) \
         ON TABLE {table} TO {account};\n"
    )
}

impl MySqlStore {
    /// The table of kept messages.
    pub fn messages_table(&self) -> TableName {
        self.table().messages()
    }

    /// Creates the table of kept messages, as [`create_schema`](Self::create_schema) creates the inbox's:
    /// see [`messages_ddl`]. What is there is left as it is and [verified](Self::verify_messages).
    ///
    /// # Errors
    ///
    /// As [`create_schema`](Self::create_schema).
    pub async fn create_message_schema(&self) -> Result<(), Error> {
        let table = self.messages_table();
        let doing = format!("create the table of kept messages {table}");
        let mut conn = self.create_table(&table, &messages_ddl(self.table()), &doing).await?;
        self.verify_messages_on(&mut conn, &doing).await.map(drop)
    }

    /// Looks at the table of kept messages as [`verify`](Self::verify) at the inbox's.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub async fn verify_messages(&self) -> Result<SchemaReport, Error> {
        let doing = format!("verify the table of kept messages {}", self.messages_table());
        let mut conn = self.pool().acquire().await.map_err(|source| crate::errors::error(&*doing, source))?;
        self.verify_messages_on(&mut conn, &doing).await
    }
}
