//! Looks for everything that would break the contract without an error (R16).
//!
//! SQLite has catalogs for all of it but CHECK constraints and the collation of a column. The first
//! is looked for in the table's own SQL, the second is tried out.

use std::sync::Arc;

use inbox_core::{Error, SchemaReport, TableName};
use rusqlite::{Connection, OptionalExtension, ffi, params};

use crate::connections::Missing;
use crate::ddl_words::has_word;
use crate::errors::{primary_code, to_error};
use crate::offload::offload;
use crate::schema::{SCHEMA_VERSION, ddl_of, newer_version, version_mark, version_of};
use crate::store::SqliteStore;
use crate::wait::Deadline;

/// The oldest SQLite that has STRICT tables: 3.37.0.
const OLDEST_SQLITE: i32 = 3_037_000;

const KEY: [&str; 2] = ["consumer", "message_id"];

/// Name, type, and whether NOT NULL.
const COLUMNS: [(&str, &str, bool); 5] = [
    ("consumer", "TEXT", true),
    ("message_id", "TEXT", true),
    ("event_type", "TEXT", true),
    ("fingerprint", "BLOB", false),
    ("registered_at", "INTEGER", true),
];

impl SqliteStore {
    /// Checks that the table, the database and the writer's connection keep the contract, and says
    /// what to do about what does not. Writes nothing, but takes the writer's turn.
    ///
    /// # Errors
    ///
    /// `Schema` with every refusal; warnings are in the report and go to `tracing`.
    /// `Busy` if the writer did not come free within the wait, `Unavailable` if there is no file.
    pub async fn verify(&self) -> Result<SchemaReport, Error> {
        let deadline = Deadline::after(self.wait);
        let failed = |source| to_error(verifying(&self.sql.table), source);
        let sql = Arc::clone(&self.sql);
        let turn = self.connections.writer().turn(deadline).await.map_err(failed)?;
        let verified = offload(move || {
            let lease = turn.connect(deadline.left(), Missing::Fail);
            let lease = lease.map_err(|source| to_error(verifying(&sql.table), source))?;
            verify_on(lease.conn(), &sql.table)
        });
        verified.await.map_err(failed)?
    }
}

/// As [`SqliteStore::verify`], on a connection of yours and as that connection sees the table:
/// temporary triggers and most settings belong to a connection.
///
/// # Errors
///
/// As [`SqliteStore::verify`].
pub fn verify_on(conn: &Connection, table: &TableName) -> Result<SchemaReport, Error> {
    let mut report = SchemaReport::new();
    inspect(conn, table, &mut report).map_err(|source| to_error(verifying(table), source))?;
    report.into_result(table)
}

fn verifying(table: &TableName) -> String {
    format!("verify the inbox table {table}")
}

fn inspect(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        report.refuse(format!(
            "SQLite {} has no STRICT tables, so values could change their type: use 3.37 or newer",
            rusqlite::version()
        ));
        return Ok(());
    }
    if !is_a_table(conn, table, report)? {
        return Ok(());
    }
    columns(conn, table, report)?;
    unique_keys(conn, table, report)?;
    expression_indexes(conn, table, report)?;
    column_collations(conn, table, report);
    table_text(conn, table, report)?;
    triggers(conn, table, report)?;
    foreign_keys(conn, table, report)?;
    database(conn, table, report)?;
    journal(conn, table, report)?;
    writable(conn, table, report)
}

/// Whether there is a real table to look at; anything else is refused.
fn is_a_table(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<bool> {
    const FIND: &str = "SELECT type, strict, wr FROM pragma_table_list
                         WHERE schema = ?1 COLLATE NOCASE AND name = ?2 COLLATE NOCASE";
    let names = params![table.schema().as_str(), table.table().as_str()];
    let found: Option<(String, bool, bool)> =
        conn.query_row(FIND, names, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((kind, strict, without_rowid)) = found else {
        report.refuse(format!("there is no table {table}: run create_schema"));
        return Ok(false);
    };
    if kind != "table" {
        report.refuse(format!("{table} is a {kind}, on which a unique key decides nothing: use a table"));
        return Ok(false);
    }
    report.refuse_if(
        table.schema().as_str().eq_ignore_ascii_case("temp"),
        "the table is temporary: it is gone with its connection, and so are the registrations",
    );
    report.refuse_if(
        !strict,
        "the table is not STRICT: a value may change its type, and ids of different types are never equal; create it with STRICT",
    );
    if !without_rowid {
        report.warn(
            "the table is not WITHOUT ROWID: it takes twice the space; contract and results are the same",
        );
    }
    Ok(true)
}

struct Column {
    name: String,
    kind: String,
    not_null: bool,
    /// The text of the default, an expression.
    default: Option<String>,
    generated: bool,
}

fn columns(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    let found = read_columns(conn, table)?;
    for (name, kind, not_null) in COLUMNS {
        let Some(column) = found.iter().find(|column| column.name.eq_ignore_ascii_case(name)) else {
            report.refuse(format!("the column {name} is missing: add it as {kind}"));
            continue;
        };
        report.refuse_if(
            !column.kind.eq_ignore_ascii_case(kind),
            format!(
                "the column {name} is of type {}, not {kind}: what is stored is not what is compared",
                column.kind
            ),
        );
        report.refuse_if(
            not_null && !column.not_null,
            format!("the column {name} may be NULL, and NULLs are never duplicates: declare it NOT NULL"),
        );
        report.refuse_if(
            !not_null && column.not_null,
            format!("the column {name} is NOT NULL: a message without one would be swallowed; allow NULL"),
        );
    }
    for column in &found {
        if column.generated {
            report.refuse(format!(
                "the column {} is generated: registering fails or is swallowed with its expression; drop it, or put it into a view",
                column.name
            ));
            continue;
        }
        report.refuse_if(
            !is_ours(&column.name) && column.not_null && column.default.as_ref().is_none_or(|default| is_null(conn, default)),
            format!(
                "the column {} is NOT NULL without a default: OR IGNORE would swallow every message; give it a default",
                column.name
            ),
        );
    }
    Ok(())
}

fn read_columns(conn: &Connection, table: &TableName) -> rusqlite::Result<Vec<Column>> {
    // Hidden are generated columns: 2 if virtual, 3 if stored.
    const READ: &str =
        r#"SELECT name, type, "notnull", dflt_value, hidden IN (2, 3) FROM pragma_table_xinfo(?1, ?2)"#;
    let mut statement = conn.prepare(READ)?;
    let columns = statement.query_map(params![table.table().as_str(), table.schema().as_str()], |row| {
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            not_null: row.get(2)?,
            default: row.get(3)?,
            generated: row.get(4)?,
        })
    })?;
    columns.collect()
}

/// Whether a default comes out as NULL. One that does not evaluate is a bare word, which stands for its text.
fn is_null(conn: &Connection, default: &str) -> bool {
    // The line break ends a comment that the expression may end with.
    conn.query_row(&format!("SELECT ({default}\n) IS NULL"), [], |row| row.get(0)).unwrap_or(false)
}

fn is_ours(column: &str) -> bool {
    COLUMNS.iter().any(|(name, ..)| column.eq_ignore_ascii_case(name))
}

/// One unique key must be exactly the inbox's, compared byte by byte, and there must be no other.
fn unique_keys(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    const READ: &str = r#"SELECT name, partial FROM pragma_index_list(?1, ?2) WHERE "unique""#;
    let mut statement = conn.prepare(READ)?;
    let keys = statement.query_map(params![table.table().as_str(), table.schema().as_str()], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let mut decides = false;
    for key in keys {
        let (name, partial): (String, bool) = key?;
        let columns = key_columns(conn, table, &name)?;
        let is_the_key = columns.iter().map(|(column, _)| column.as_str()).eq(KEY);
        if partial || !is_the_key {
            report.refuse(format!(
                "the unique index {name} is not the whole key (consumer, message_id): OR IGNORE would take its \
                 conflicts for duplicates; drop it or make it not unique"
            ));
            continue;
        }
        decides = true;
        for (column, collation) in columns.iter().filter(|(_, collation)| collation != "BINARY") {
            report.refuse(format!(
                "the key column {column} is compared by {collation}, which merges different ids: use COLLATE BINARY"
            ));
        }
    }
    report.refuse_if(
        !decides,
        "there is no unique key on exactly (consumer, message_id): every delivery would be new; add the primary key",
    );
    Ok(())
}

/// The columns of an index with their collations, sorted by name: their order in the key does not matter.
fn key_columns(conn: &Connection, table: &TableName, index: &str) -> rusqlite::Result<Vec<(String, String)>> {
    const READ: &str = "SELECT lower(coalesce(name, '(expression)')), upper(coll)
                          FROM pragma_index_xinfo(?1, ?2) WHERE key ORDER BY 1";
    let mut statement = conn.prepare(READ)?;
    let columns =
        statement.query_map(params![index, table.schema().as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    columns.collect()
}

/// An expression that fails on a message's text, such as JSON, fails the registration.
fn expression_indexes(
    conn: &Connection,
    table: &TableName,
    report: &mut SchemaReport,
) -> rusqlite::Result<()> {
    const READ: &str = r#"SELECT DISTINCT list.name
                            FROM pragma_index_list(?1, ?2) AS list, pragma_index_xinfo(list.name, ?2) AS part
                           WHERE NOT list."unique" AND part.cid = -2"#;
    let mut statement = conn.prepare(READ)?;
    let names = statement
        .query_map(params![table.table().as_str(), table.schema().as_str()], |row| row.get::<_, String>(0))?;
    for name in names {
        report.refuse(format!(
            "the index {} is on an expression: registering fails where the expression does; drop it, or index plain columns",
            name?
        ));
    }
    Ok(())
}

/// The collation of a column, which reading the original uses, is in no catalog. A compound SELECT
/// compares by that of its first part, so it tells how many of three texts the column keeps apart.
fn column_collations(conn: &Connection, table: &TableName, report: &mut SchemaReport) {
    for column in KEY {
        let probe = format!(
            "SELECT count(*) FROM (SELECT {column} FROM {} WHERE 0 UNION SELECT 'a' UNION SELECT 'A' UNION SELECT 'a ')",
            table.quoted()
        );
        // A probe that does not compile means that the column is missing, which is refused already,
        // or that its collation is not known to this connection.
        let apart: rusqlite::Result<i64> = conn.query_row(&probe, [], |row| row.get(0));
        report.refuse_if(
            apart.is_ok_and(|apart| apart != 3),
            format!(
                "the column {column} has a collation that merges different ids: declare it COLLATE BINARY"
            ),
        );
    }
}

/// What only the table's SQL tells: its version, and CHECK constraints.
fn table_text(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    let ddl = ddl_of(conn, table)?.unwrap_or_default();
    if let Some(refusal) = newer_version(&ddl) {
        report.refuse(refusal);
    } else if version_of(&ddl).is_none() {
        report.warn(format!(
            "the table does not say which version of the inbox's schema it is: put the comment {} into its CREATE TABLE",
            version_mark(SCHEMA_VERSION)
        ));
    }
    report.refuse_if(
        has_word(&ddl, "CHECK"),
        "the table has a CHECK constraint: OR IGNORE swallows rows that violate it; drop it, ids are checked before SQL",
    );
    Ok(())
}

fn triggers(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    let find = format!(
        "SELECT name FROM \"{schema}\".sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE
         UNION ALL
         SELECT name || ' (temporary)' FROM temp.sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE",
        schema = table.schema()
    );
    let mut statement = conn.prepare(&find)?;
    let names = statement.query_map(params![table.table().as_str()], |row| row.get::<_, String>(0))?;
    for name in names {
        report.refuse(format!(
            "the trigger {} can swallow or change registrations: drop it, or put it on a table of your own",
            name?
        ));
    }
    Ok(())
}

fn foreign_keys(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    const COUNT: &str = "SELECT count(*) FROM pragma_foreign_key_list(?1, ?2)";
    let count: i64 =
        conn.query_row(COUNT, params![table.table().as_str(), table.schema().as_str()], |row| row.get(0))?;
    report.refuse_if(
        count > 0,
        "the table has a foreign key: registering would fail, or change with other tables; drop it",
    );
    Ok(())
}

fn pragma<T: rusqlite::types::FromSql>(
    conn: &Connection,
    table: &TableName,
    name: &str,
) -> rusqlite::Result<T> {
    conn.query_row(&format!("PRAGMA \"{}\".{name}", table.schema()), [], |row| row.get(0))
}

fn database(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    // Tried out, since it depends on the version: 3.40 merges them, 3.54 does not.
    let merges: bool = conn.query_row("SELECT ?1 = ?2", ["\u{ffff}", "\u{fffd}"], |row| row.get(0))?;
    if merges {
        let encoding: String = pragma(conn, table, "encoding")?;
        report.refuse(format!(
            "the database is encoded in {encoding}, where this SQLite turns U+FFFE and U+FFFF into U+FFFD and so \
             merges ids; create the database with PRAGMA encoding = 'UTF-8'"
        ));
    }
    let locking: String = pragma(conn, table, "locking_mode")?;
    if locking == "exclusive" && is_on_file(conn, table)? {
        report.warn("locking_mode is EXCLUSIVE: no other connection gets in any more; set it to NORMAL");
    }
    if !table.schema().as_str().eq_ignore_ascii_case("main") {
        report.warn(
            "the table is in an attached database: after a crash the files of one commit can differ if one of them \
             uses a write-ahead log; keep the effect in the same file as the inbox",
        );
    }
    Ok(())
}

fn is_on_file(conn: &Connection, table: &TableName) -> rusqlite::Result<bool> {
    const FILE: &str = "SELECT file <> '' FROM pragma_database_list WHERE name = ?1 COLLATE NOCASE";
    conn.query_row(FILE, params![table.schema().as_str()], |row| row.get(0))
}

fn journal(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    let mode: String = pragma(conn, table, "journal_mode")?;
    report.refuse_if(
        mode == "off",
        "journal_mode is OFF: a rollback does not undo the registration; set it to WAL",
    );
    if !is_on_file(conn, table)? {
        return Ok(());
    }
    match mode.as_str() {
        "wal" | "off" => {}
        "memory" => {
            report.warn("journal_mode is MEMORY: a crash during a commit corrupts the file; set it to WAL")
        }
        _ => report.warn(format!(
            "journal_mode is {}: readers and the writer stop each other; set it to WAL",
            mode.to_uppercase()
        )),
    }
    let synchronous: i64 = pragma(conn, table, "synchronous")?;
    const FULL: i64 = 2;
    if synchronous < FULL {
        report.warn(
            "synchronous is below FULL: a loss of power can undo commits of messages that were acknowledged; set it to FULL",
        );
    }
    Ok(())
}

/// Tries to become the writer, and changes nothing: BEGIN IMMEDIATE on a read-only database is no error.
fn writable(conn: &Connection, table: &TableName, report: &mut SchemaReport) -> rusqlite::Result<()> {
    match conn.execute(&format!("DELETE FROM {} WHERE 0", table.quoted()), []) {
        Ok(_) => Ok(()),
        // For example a foreign key to a table that is not there.
        Err(error) if primary_code(&error) == Some(ffi::SQLITE_ERROR) => {
            report
                .refuse(format!("a write to the table does not even compile ({error}): mend its definition"));
            Ok(())
        }
        Err(error) if primary_code(&error) == Some(ffi::SQLITE_READONLY) => {
            report.refuse(format!(
                "the database is read-only for this connection ({error}): check permissions of file and folder, the URI, and PRAGMA query_only"
            ));
            Ok(())
        }
        Err(error) => Err(error),
    }
}
