//! The conformance suite on SQLite: a file in WAL mode (`sqlite_file::…`) and in memory (`sqlite_memory::…`).

use std::convert::Infallible;
use std::process::ExitCode;

use async_trait::async_trait;
use inbox_core::{BoxError, Error};
use inbox_sqlite::{SqliteStore, SqliteTx};
use inbox_testkit::suite::{Damage, Fresh, Need, Probe, Stand, Suite};

fn main() -> ExitCode {
    Suite::from_args()
        .stand("sqlite_file", || Ok::<_, Infallible>(SqliteStand { in_memory: false }))
        .stand("sqlite_memory", || Ok::<_, Infallible>(SqliteStand { in_memory: true }))
        .run()
}

struct SqliteStand {
    in_memory: bool,
}

#[async_trait]
impl Stand for SqliteStand {
    type Store = SqliteStore;

    fn name(&self) -> String {
        if self.in_memory { "sqlite_memory" } else { "sqlite_file" }.to_owned()
    }

    async fn fresh(&self) -> Result<Fresh<SqliteStore>, BoxError> {
        let folder = tempfile::tempdir()?;
        let store = match self.in_memory {
            true => SqliteStore::in_memory()?,
            false => SqliteStore::new(folder.path().join("inbox.db"))?,
        };
        store.create_schema().await?;
        store.call(|conn| conn.execute_batch("CREATE TABLE effect (name TEXT NOT NULL) STRICT")).await?;
        Ok(Fresh::new(store, folder))
    }

    async fn write_effect(&self, tx: &mut SqliteTx, name: &str) -> Result<(), BoxError> {
        let name = name.to_owned();
        Ok(tx
            .call(move |conn| conn.execute("INSERT INTO effect (name) VALUES (?1)", [name]).map(drop))
            .await?)
    }

    async fn count_effects(&self, store: &SqliteStore, name: &str) -> Result<i64, BoxError> {
        let name = name.to_owned();
        let count = "SELECT count(*) FROM effect WHERE name = ?1";
        Ok(store.call(move |conn| conn.query_row(count, [name], |row| row.get(0))).await?)
    }

    fn probe(&self) -> Option<&dyn Probe<SqliteStore>> {
        Some(self)
    }
}

#[async_trait]
impl Probe<SqliteStore> for SqliteStand {
    fn offers(&self) -> Vec<Need> {
        [
            Need::Sql,
            Need::AbortingSql,
            Need::SwallowedInserts,
            Need::ShadowTable,
            Need::Settings,
            Need::Schema,
        ]
        .into()
    }

    async fn execute(&self, tx: &mut SqliteTx, sql: &str) -> Result<(), BoxError> {
        let sql = sql.to_owned();
        Ok(tx.call(move |conn| conn.execute_batch(&sql)).await?)
    }

    async fn execute_beside(&self, store: &SqliteStore, sql: &str) -> Result<(), BoxError> {
        let sql = sql.to_owned();
        Ok(store.call(move |conn| conn.execute_batch(&sql)).await?)
    }

    async fn settings(&self, tx: &mut SqliteTx) -> Result<String, BoxError> {
        let pragmas = [
            "busy_timeout",
            "foreign_keys",
            "synchronous",
            "journal_mode",
            "query_only",
            "defer_foreign_keys",
            "recursive_triggers",
        ];
        let read = move |conn: &rusqlite::Connection| -> rusqlite::Result<String> {
            let values = pragmas.map(|pragma| {
                conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, rusqlite::types::Value>(0))
            });
            Ok(format!("{:?}", values.into_iter().collect::<Result<Vec<_>, _>>()?))
        };
        Ok(tx.call(read).await?)
    }

    /// The registration of the same transaction conflicts with itself, and OR ROLLBACK ends the whole.
    fn aborting_sql(&self) -> &'static str {
        "INSERT OR ROLLBACK INTO main.inbox SELECT * FROM main.inbox"
    }

    fn swallow_inserts(&self) -> Vec<String> {
        vec!["CREATE TRIGGER swallow BEFORE INSERT ON inbox BEGIN SELECT raise(IGNORE); END".to_owned()]
    }

    fn shadow_table(&self) -> &'static str {
        "CREATE TEMPORARY TABLE inbox (consumer TEXT, message_id TEXT, event_type TEXT, fingerprint BLOB,
                                       registered_at INTEGER DEFAULT 0, PRIMARY KEY (consumer, message_id))"
    }

    fn table(&self) -> &'static str {
        "main.inbox"
    }

    async fn create_schema(&self, store: &SqliteStore) -> Result<(), Error> {
        store.create_schema().await
    }

    async fn verify(&self, store: &SqliteStore) -> Result<(), Error> {
        store.verify().await.map(drop)
    }

    fn damages(&self) -> Vec<Damage> {
        damages()
    }
}

/// Tables that were made wrong, each in one way.
fn damages() -> Vec<Damage> {
    vec![
        table("missing_unique_key", "TEXT NOT NULL", "", "STRICT"),
        table("wider_unique_key", "TEXT NOT NULL", ", PRIMARY KEY (consumer, message_id, registered_at)", "STRICT"),
        table("narrower_unique_key", "TEXT NOT NULL", ", PRIMARY KEY (message_id)", "STRICT"),
        table("folding_collation", "TEXT NOT NULL COLLATE NOCASE", KEY, "STRICT"),
        table("trimming_collation", "TEXT NOT NULL COLLATE RTRIM", KEY, "STRICT"),
        // STRICT alone makes key columns NOT NULL, so the nullable one is another.
        table("nullable_column", "TEXT NOT NULL, event_type TEXT", KEY, "STRICT"),
        table("wrong_type", "INTEGER NOT NULL", KEY, "STRICT"),
        table("loose_types", "TEXT NOT NULL", KEY, ""),
        table("check_constraint", "TEXT NOT NULL CHECK (length(message_id) <= 8)", KEY, "STRICT"),
        table("further_unique_key", "TEXT NOT NULL UNIQUE", KEY, "STRICT"),
        table("required_extra_column", "TEXT NOT NULL, tenant TEXT NOT NULL", KEY, "STRICT"),
        Damage::new(
            "partial_unique_key",
            [
                DROP,
                "CREATE TABLE inbox (consumer TEXT NOT NULL, message_id TEXT NOT NULL, event_type TEXT NOT NULL,
                                     fingerprint BLOB, registered_at INTEGER NOT NULL DEFAULT 0) STRICT",
                "CREATE UNIQUE INDEX part ON inbox (consumer, message_id) WHERE event_type <> 'x'",
            ],
        ),
        Damage::new("missing_column", ["ALTER TABLE inbox DROP COLUMN fingerprint"]),
        Damage::new("trigger", ["CREATE TRIGGER pass AFTER INSERT ON inbox BEGIN SELECT 1; END"]),
        Damage::new(
            "view",
            ["ALTER TABLE inbox RENAME TO hidden", "CREATE VIEW inbox AS SELECT * FROM hidden"],
        ),
    ]
}

const DROP: &str = "DROP TABLE inbox";
const KEY: &str = ", PRIMARY KEY (consumer, message_id)";

/// The inbox table with another `message_id`, another key, other options.
fn table(name: &'static str, message_id: &str, key: &str, options: &str) -> Damage {
    let event_type = if message_id.contains("event_type") { "" } else { "event_type TEXT NOT NULL," };
    let create = format!(
        "CREATE TABLE inbox (consumer TEXT NOT NULL, message_id {message_id}, {event_type} fingerprint BLOB,
                             registered_at INTEGER NOT NULL DEFAULT 0{key}) {options}"
    );
    Damage::new(name, [DROP, &create])
}
