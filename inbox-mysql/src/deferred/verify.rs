//! Refusing a table of kept messages that cannot keep the contract (R16).

use inbox_core::{Consumer, Error, EventType, MessageId, SchemaReport};
use sqlx::MySqlConnection;

use super::schema::MESSAGES_SCHEMA_VERSION;
use crate::MySqlStore;
use crate::dialect::Dialect;
use crate::statements::without_comments;

/// What a payload of 16 MiB, headers of 1 MiB and the rest take in a packet, in bytes: four thirds.
const PACKET: u64 = 24 << 20;

impl MySqlStore {
    pub(crate) async fn verify_messages_on(
        &self,
        conn: &mut MySqlConnection,
        doing: &str,
    ) -> Result<SchemaReport, Error> {
        self.verify_table(conn, doing, &self.messages_table(), |dialect| self.messages_query(dialect)).await
    }

    fn messages_query(&self, dialect: Dialect) -> String {
        let index_is_used = match dialect {
            Dialect::MySql => "is_visible = 'YES'",
            Dialect::MariaDb => "ignored = 'NO'",
        };
        let table = self.messages_table();
        without_comments(include_str!("../sql/messages/verify.sql"))
            .replace("{index_is_used}", index_is_used)
            .replace("{packet}", &PACKET.to_string())
            .replace("{schema}", table.schema().as_str())
            .replace("{table}", table.table().as_str())
            .replace("{consumer_limit}", &Consumer::MAX_BYTES.to_string())
            .replace("{id_limit}", &MessageId::MAX_BYTES.to_string())
            .replace("{type_limit}", &EventType::MAX_BYTES.to_string())
            .replace("{version}", &MESSAGES_SCHEMA_VERSION.to_string())
    }
}
