//! Looks for everything that would break the contract without an error (R16).
//!
//! SQLite has catalogs for all of it but CHECK constraints and the collation of a column. The first
//! is looked for in the table's own SQL, the second is tried out.

use inbox_core::{Error, SchemaReport, TableName};

use crate::ddl_words::has_word;
use crate::driver::{Driver, Row};
use crate::errors::{self, DriverError as _, to_error};
use crate::schema::{SCHEMA_VERSION, ddl_of, newer_version, version_mark, version_of};

/// The oldest SQLite that has STRICT tables: 3.37.
const OLDEST_SQLITE: (u32, u32) = (3, 37);

const KEY: [&str; 2] = ["consumer", "message_id"];

/// Name, type, and whether NOT NULL.
const COLUMNS: [(&str, &str, bool); 5] = [
    ("consumer", "TEXT", true),
    ("message_id", "TEXT", true),
    ("event_type", "TEXT", true),
    ("fingerprint", "BLOB", false),
    ("registered_at", "INTEGER", true),
];

pub(crate) fn verifying(table: &TableName) -> String {
    format!("verify the inbox table {table}")
}

/// Looks at the table as `conn` sees it.
pub(crate) async fn inspect<D: Driver>(conn: &mut D, table: &TableName) -> Result<SchemaReport, Error> {
    let mut report = SchemaReport::new();
    look(conn, table, &mut report).await.map_err(|source| to_error(verifying(table), source))?;
    report.into_result(table)
}

pub(crate) async fn look<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    if is_too_old(conn, report).await? {
        return Ok(());
    }
    let Some(kind) = table_kind(conn, table, "create_schema", report).await? else { return Ok(()) };
    if !kind.without_rowid {
        report.warn(
            "the table is not WITHOUT ROWID: it takes twice the space; contract and results are the same",
        );
    }
    columns(conn, table, report).await?;
    unique_keys(conn, table, report).await?;
    expression_indexes(conn, table, report).await?;
    column_collations(conn, table, &KEY, report).await;
    table_text(conn, table, report).await?;
    triggers(conn, table, report).await?;
    foreign_keys(conn, table, report).await?;
    database(conn, table, report).await?;
    journal(conn, table, report).await?;
    writable(conn, table, report).await
}

pub(crate) async fn is_too_old<D: Driver>(conn: &mut D, report: &mut SchemaReport) -> Result<bool, D::Error> {
    let version = one(conn, "SELECT sqlite_version()", &[]).await?.text(0);
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let too_old = (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST_SQLITE;
    report.refuse_if(
        too_old,
        format!(
            "SQLite {version} has no STRICT tables, so values could change their type: use 3.37 or newer"
        ),
    );
    Ok(too_old)
}

/// The row of a query that has one.
async fn one<D: Driver>(conn: &mut D, text: &str, args: &[&str]) -> Result<Row, D::Error> {
    Ok(conn.rows(text, args).await?.into_iter().next().unwrap_or_default())
}

/// What a real table is besides.
pub(crate) struct TableKind {
    pub(crate) without_rowid: bool,
}

/// A real table to look at; anything else is refused.
pub(crate) async fn table_kind<D: Driver>(
    conn: &mut D,
    table: &TableName,
    created_by: &str,
    report: &mut SchemaReport,
) -> Result<Option<TableKind>, D::Error> {
    const FIND: &str = "SELECT type, strict, wr FROM pragma_table_list
                         WHERE schema = ?1 COLLATE NOCASE AND name = ?2 COLLATE NOCASE";
    let found = conn.rows(FIND, &[table.schema().as_str(), table.table().as_str()]).await?;
    let Some(found) = found.first() else {
        report.refuse(format!("there is no table {table}: run {created_by}"));
        return Ok(None);
    };
    let (kind, strict, without_rowid) = (found.text(0), found.is_true(1), found.is_true(2));
    if kind != "table" {
        report.refuse(format!("{table} is a {kind}, on which a unique key decides nothing: use a table"));
        return Ok(None);
    }
    report.refuse_if(
        table.schema().as_str().eq_ignore_ascii_case("temp"),
        "the table is temporary: it is gone with its connection, and so are the registrations",
    );
    report.refuse_if(
        !strict,
        "the table is not STRICT: a value may change its type, and ids of different types are never equal; create it with STRICT",
    );
    Ok(Some(TableKind { without_rowid }))
}

pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) not_null: bool,
    /// The text of the default, an expression.
    pub(crate) default: Option<String>,
    pub(crate) generated: bool,
    /// Its place in the primary key, from 1; 0 if it is not in it.
    pub(crate) key_place: u32,
}

async fn columns<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let found = read_columns(conn, table).await?;
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
        let unset = match &column.default {
            Some(default) => is_null(conn, default).await,
            None => true,
        };
        report.refuse_if(
            !is_ours(&column.name) && column.not_null && unset,
            format!(
                "the column {} is NOT NULL without a default: OR IGNORE would swallow every message; give it a default",
                column.name
            ),
        );
    }
    Ok(())
}

pub(crate) async fn read_columns<D: Driver>(
    conn: &mut D,
    table: &TableName,
) -> Result<Vec<Column>, D::Error> {
    // Hidden are generated columns: 2 if virtual, 3 if stored.
    const READ: &str =
        r#"SELECT name, type, "notnull", dflt_value, hidden IN (2, 3), pk FROM pragma_table_xinfo(?1, ?2)"#;
    let rows = conn.rows(READ, &[table.table().as_str(), table.schema().as_str()]).await?;
    let columns = rows.iter().map(|row| Column {
        name: row.text(0),
        kind: row.text(1),
        not_null: row.is_true(2),
        default: row.get(3).map(str::to_owned),
        generated: row.is_true(4),
        key_place: row.text(5).parse().unwrap_or(0),
    });
    Ok(columns.collect())
}

/// Whether a default comes out as NULL. One that does not evaluate is a bare word, which stands for its text.
pub(crate) async fn is_null<D: Driver>(conn: &mut D, default: &str) -> bool {
    // The line break ends a comment that the expression may end with.
    let evaluated = one(conn, &format!("SELECT ({default}\n) IS NULL"), &[]).await;
    evaluated.is_ok_and(|row| row.is_true(0))
}

fn is_ours(column: &str) -> bool {
    COLUMNS.iter().any(|(name, ..)| column.eq_ignore_ascii_case(name))
}

/// One unique key must be exactly the inbox's, compared byte by byte, and there must be no other.
async fn unique_keys<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    const READ: &str = r#"SELECT name, partial FROM pragma_index_list(?1, ?2) WHERE "unique""#;
    let keys = conn.rows(READ, &[table.table().as_str(), table.schema().as_str()]).await?;
    let mut decides = false;
    for key in keys {
        let (name, partial) = (key.text(0), key.is_true(1));
        let columns = key_columns(conn, table, &name).await?;
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
pub(crate) async fn key_columns<D: Driver>(
    conn: &mut D,
    table: &TableName,
    index: &str,
) -> Result<Vec<(String, String)>, D::Error> {
    const READ: &str = "SELECT lower(coalesce(name, '(expression)')), upper(coll)
                          FROM pragma_index_xinfo(?1, ?2) WHERE key ORDER BY 1";
    let rows = conn.rows(READ, &[index, table.schema().as_str()]).await?;
    Ok(rows.iter().map(|row| (row.text(0), row.text(1))).collect())
}

/// An expression that fails on a message's text, such as JSON, fails the registration.
pub(crate) async fn expression_indexes<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    const READ: &str = r#"SELECT DISTINCT list.name
                            FROM pragma_index_list(?1, ?2) AS list, pragma_index_xinfo(list.name, ?2) AS part
                           WHERE NOT list."unique" AND part.cid = -2"#;
    for index in conn.rows(READ, &[table.table().as_str(), table.schema().as_str()]).await? {
        report.refuse(format!(
            "the index {} is on an expression: registering fails where the expression does; drop it, or index plain columns",
            index.text(0)
        ));
    }
    Ok(())
}

/// The collation of a column, which reading the original uses, is in no catalog. A compound SELECT
/// compares by that of its first part, so it tells how many of three texts the column keeps apart.
pub(crate) async fn column_collations<D: Driver>(
    conn: &mut D,
    table: &TableName,
    columns: &[&str],
    report: &mut SchemaReport,
) {
    for column in columns {
        let probe = format!(
            "SELECT count(*) FROM (SELECT {column} FROM {} WHERE 0 UNION SELECT 'a' UNION SELECT 'A' UNION SELECT 'a ')",
            table.quoted()
        );
        // A probe that does not compile means that the column is missing, which is refused already,
        // or that its collation is not known to this connection.
        let apart = one(conn, &probe, &[]).await;
        report.refuse_if(
            apart.is_ok_and(|apart| apart.text(0) != "3"),
            format!(
                "the column {column} has a collation that merges different ids: declare it COLLATE BINARY"
            ),
        );
    }
}

/// What only the table's SQL tells: its version, and CHECK constraints.
async fn table_text<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let ddl = ddl_of(conn, table).await?.unwrap_or_default();
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

pub(crate) async fn triggers<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let find = format!(
        "SELECT name FROM \"{schema}\".sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE
         UNION ALL
         SELECT name || ' (temporary)' FROM temp.sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE",
        schema = table.schema()
    );
    for trigger in conn.rows(&find, &[table.table().as_str()]).await? {
        report.refuse(format!(
            "the trigger {} can swallow or change registrations: drop it, or put it on a table of your own",
            trigger.text(0)
        ));
    }
    Ok(())
}

pub(crate) async fn foreign_keys<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    const COUNT: &str = "SELECT count(*) FROM pragma_foreign_key_list(?1, ?2)";
    let count = one(conn, COUNT, &[table.table().as_str(), table.schema().as_str()]).await?;
    report.refuse_if(
        count.text(0) != "0",
        "the table has a foreign key: registering would fail, or change with other tables; drop it",
    );
    Ok(())
}

async fn pragma<D: Driver>(conn: &mut D, table: &TableName, name: &str) -> Result<String, D::Error> {
    Ok(one(conn, &format!("PRAGMA \"{}\".{name}", table.schema()), &[]).await?.text(0))
}

pub(crate) async fn database<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    // Tried out, since it depends on the version: 3.40 merges them, 3.54 does not.
    let merges = one(conn, "SELECT ?1 = ?2", &["\u{ffff}", "\u{fffd}"]).await?;
    if merges.is_true(0) {
        let encoding = pragma(conn, table, "encoding").await?;
        report.refuse(format!(
            "the database is encoded in {encoding}, where this SQLite turns U+FFFE and U+FFFF into U+FFFD and so \
             merges ids; create the database with PRAGMA encoding = 'UTF-8'"
        ));
    }
    let locking = pragma(conn, table, "locking_mode").await?;
    if locking == "exclusive" && is_on_file(conn, table).await? {
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

pub(crate) async fn is_on_file<D: Driver>(conn: &mut D, table: &TableName) -> Result<bool, D::Error> {
    const FILE: &str = "SELECT file <> '' FROM pragma_database_list WHERE name = ?1 COLLATE NOCASE";
    Ok(one(conn, FILE, &[table.schema().as_str()]).await?.is_true(0))
}

pub(crate) async fn journal<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let mode = pragma(conn, table, "journal_mode").await?;
    report.refuse_if(
        mode == "off",
        "journal_mode is OFF: a rollback does not undo the registration; set it to WAL",
    );
    if !is_on_file(conn, table).await? {
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
    let synchronous = pragma(conn, table, "synchronous").await?;
    // 2 is FULL, 3 is EXTRA.
    if matches!(&*synchronous, "0" | "1") {
        report.warn(
            "synchronous is below FULL: a loss of power can undo commits of messages that were acknowledged; set it to FULL",
        );
    }
    Ok(())
}

/// Tries to become the writer, and changes nothing: BEGIN IMMEDIATE on a read-only database is no error.
pub(crate) async fn writable<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    match conn.run(&format!("DELETE FROM {} WHERE 0", table.quoted())).await {
        Ok(()) => Ok(()),
        // For example a foreign key to a table that is not there.
        Err(error) if error.primary_code() == Some(errors::ERROR) => {
            report
                .refuse(format!("a write to the table does not even compile ({error}): mend its definition"));
            Ok(())
        }
        Err(error) if error.primary_code() == Some(errors::READONLY) => {
            report.refuse(format!(
                "the database is read-only for this connection ({error}): check permissions of file and folder, the URI, and PRAGMA query_only"
            ));
            Ok(())
        }
        Err(error) => Err(error),
    }
}
