//! Looks for what would break the deferred inbox without an error, or make it slow (R16, D9).

use inbox_core::{Error, SchemaReport, TableName};

use super::schema::{SCHEMA_VERSION, version_mark, version_of};
use crate::ddl_words::has_word;
use crate::driver::Driver;
use crate::errors::to_error;
use crate::schema::ddl_of;
use crate::statements::Statements;
use crate::verify::{
    Column, column_collations, database, expression_indexes, foreign_keys, is_null, is_too_old, journal,
    read_columns, table_kind, triggers, writable,
};

/// Name, type, and whether NOT NULL.
const COLUMNS: [(&str, &str, bool); 18] = [
    ("sequence", "INTEGER", false),
    ("consumer", "TEXT", true),
    ("message_id", "TEXT", true),
    ("event_type", "TEXT", true),
    ("fingerprint", "BLOB", false),
    ("headers", "TEXT", true),
    ("content_type", "TEXT", false),
    ("ordering_key", "TEXT", false),
    ("state", "TEXT", true),
    ("lease_token", "BLOB", false),
    ("due_at", "INTEGER", true),
    ("not_before", "INTEGER", true),
    ("attempts", "INTEGER", true),
    ("allowed", "INTEGER", false),
    ("history", "TEXT", true),
    ("received_at", "INTEGER", true),
    ("state_since", "INTEGER", true),
    ("payload", "BLOB", true),
];

/// The columns that are compared.
const COMPARED: [&str; 4] = ["consumer", "message_id", "ordering_key", "state"];

pub(crate) fn verifying(sql: &Statements) -> String {
    format!("verify the table of kept messages {}", sql.messages.table)
}

/// Looks at the table as `conn` sees it.
pub(crate) async fn inspect<D: Driver>(conn: &mut D, sql: &Statements) -> Result<SchemaReport, Error> {
    let mut report = SchemaReport::new();
    look(conn, sql, &mut report).await.map_err(|source| to_error(verifying(sql), source))?;
    report.into_result(&sql.messages.table)
}

pub(crate) async fn look<D: Driver>(
    conn: &mut D,
    sql: &Statements,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let table = &sql.messages.table;
    if is_too_old(conn, report).await? {
        return Ok(());
    }
    let Some(kind) = table_kind(conn, table, "create_message_schema", report).await? else { return Ok(()) };
    report.refuse_if(
        kind.without_rowid,
        "the table is WITHOUT ROWID, so nothing gives a message its sequence: create it without that",
    );
    columns(conn, table, report).await?;
    column_collations(conn, table, &COMPARED, report).await;
    indexes(conn, table, report).await?;
    expression_indexes(conn, table, report).await?;
    table_text(conn, table, report).await?;
    triggers(conn, table, report).await?;
    foreign_keys(conn, table, report).await?;
    database(conn, table, report).await?;
    journal(conn, table, report).await?;
    writable(conn, table, report).await
}

async fn columns<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let found = read_columns(conn, table).await?;
    for (name, kind, not_null) in COLUMNS {
        match found.iter().find(|column| column.name.eq_ignore_ascii_case(name)) {
            None => report.refuse(format!("the column {name} is missing: add it as {kind}")),
            Some(column) => one_of_ours(column, name, kind, not_null, report),
        }
    }
    let is_key = |column: &Column| column.key_place > 0;
    let in_key: Vec<&str> =
        found.iter().filter(|column| is_key(column)).map(|column| &*column.name).collect();
    report.refuse_if(
        !matches!(in_key[..], [only] if only.eq_ignore_ascii_case("sequence")),
        "the primary key is not exactly the sequence, so nothing gives a message its own: declare INTEGER PRIMARY KEY",
    );
    for column in found.iter().filter(|column| !is_ours(&column.name) && column.not_null) {
        let unset = match &column.default {
            Some(default) => is_null(conn, default).await,
            None => !column.generated,
        };
        report.refuse_if(
            unset,
            format!(
                "the column {} is NOT NULL without a default, so no message can be kept: give it a default",
                column.name
            ),
        );
    }
    Ok(())
}

fn one_of_ours(column: &Column, name: &str, kind: &str, not_null: bool, report: &mut SchemaReport) {
    report.refuse_if(
        column.generated,
        format!("the column {name} is generated: the inbox writes it; make it a plain column"),
    );
    report.refuse_if(
        !column.kind.eq_ignore_ascii_case(kind),
        format!(
            "the column {name} is of type {}, not {kind}: what is kept is not what was received",
            column.kind
        ),
    );
    report.refuse_if(
        not_null && !column.not_null,
        format!("the column {name} may be NULL, and no state or time means that: declare it NOT NULL"),
    );
    report.refuse_if(
        !not_null && column.not_null && column.key_place == 0,
        format!("the column {name} is NOT NULL: a message without one could not be kept; allow NULL"),
    );
}

fn is_ours(column: &str) -> bool {
    COLUMNS.iter().any(|(name, ..)| column.eq_ignore_ascii_case(name))
}

/// An index that a statement reads by. Its last column may be followed by the sequence.
struct Wanted {
    columns: &'static [&'static str],
    /// What makes it partial, without blanks.
    partial: Option<&'static str>,
}

const CLAIM: Wanted = Wanted { columns: &["consumer", "due_at"], partial: Some("state='pending'") };

/// As good, but it grows with what is done.
const CLAIM_OF_ALL: Wanted = Wanted { columns: &["consumer", "state", "due_at"], partial: None };

const STATE: Wanted = Wanted { columns: &["consumer", "state", "state_since"], partial: None };

const ID: Wanted = Wanted { columns: &["consumer", "message_id"], partial: None };

const KEY: Wanted = Wanted {
    columns: &["consumer", "ordering_key", "state"],
    partial: Some("ordering_keyisnotnullandstate<>'done'"),
};

async fn indexes<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let found = read_indexes(conn, table).await?;
    for unique in found.iter().filter(|index| index.unique) {
        report.refuse(format!(
            "the index {} is unique: a message that was forgotten and comes again could not be kept; drop it",
            unique.name
        ));
    }
    let has = |wanted: &Wanted| found.iter().any(|index| index.is(wanted));
    report.refuse_if(
        !has(&CLAIM) && !has(&CLAIM_OF_ALL),
        "there is no index on (consumer, due_at) WHERE state = 'pending': each claim would read every message, with \
         the writer's lock held; create it as create_message_schema does",
    );
    for (wanted, costs) in [
        (STATE, "(consumer, state, state_since): counting and listing read every message"),
        (ID, "(consumer, message_id): to look for an id or to replay it reads every message"),
        (
            KEY,
            "(consumer, ordering_key, state) WHERE ordering_key IS NOT NULL AND state <> 'done': where an order is \
             kept, a claim reads every message for each candidate",
        ),
    ] {
        if !has(&wanted) {
            report.warn(format!("there is no index on {costs}; create it as create_message_schema does"));
        }
    }
    Ok(())
}

struct Index {
    name: String,
    unique: bool,
    columns: Vec<String>,
    /// The condition of a partial index, in small letters without blanks.
    partial: Option<String>,
}

impl Index {
    fn is(&self, wanted: &Wanted) -> bool {
        let columns = match self.columns.split_last() {
            Some((last, before)) if last == "sequence" => before,
            _ => &self.columns,
        };
        columns == wanted.columns && self.partial.as_deref() == wanted.partial
    }
}

async fn read_indexes<D: Driver>(conn: &mut D, table: &TableName) -> Result<Vec<Index>, D::Error> {
    let list = format!(
        r#"SELECT list.name, list."unique", list.partial, coalesce(entry.sql, '')
             FROM pragma_index_list(?1, ?2) AS list
             LEFT JOIN "{}".sqlite_schema AS entry ON entry.type = 'index' AND entry.name = list.name"#,
        table.schema()
    );
    let mut indexes = Vec::new();
    for row in conn.rows(&list, &[table.table().as_str(), table.schema().as_str()]).await? {
        let partial = row.is_true(2).then(|| condition(&row.text(3)));
        let columns = index_columns(conn, table, &row.text(0)).await?;
        indexes.push(Index { name: row.text(0), unique: row.is_true(1), columns, partial });
    }
    Ok(indexes)
}

/// The columns in the order of the index; one that is compared by a collation is another.
async fn index_columns<D: Driver>(
    conn: &mut D,
    table: &TableName,
    index: &str,
) -> Result<Vec<String>, D::Error> {
    const READ: &str = "SELECT lower(coalesce(name, '(expression)'))
                               || CASE WHEN upper(coll) = 'BINARY' THEN '' ELSE ' ' || coll END
                          FROM pragma_index_xinfo(?1, ?2) WHERE key ORDER BY seqno";
    let rows = conn.rows(READ, &[index, table.schema().as_str()]).await?;
    Ok(rows.iter().map(|row| row.text(0)).collect())
}

/// What stands after WHERE, in small letters without blanks, brackets and quotes of names.
fn condition(ddl: &str) -> String {
    let ddl = ddl.to_ascii_lowercase();
    let (_, condition) = ddl.rsplit_once("where").unwrap_or_default();
    condition
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')' | '"' | '`' | '[' | ']'))
        .collect()
}

/// What only the table's SQL tells: its version, and the constraint on the states.
async fn table_text<D: Driver>(
    conn: &mut D,
    table: &TableName,
    report: &mut SchemaReport,
) -> Result<(), D::Error> {
    let ddl = ddl_of(conn, table).await?.unwrap_or_default();
    match version_of(&ddl) {
        Some(version) => report.refuse_if(
            version > SCHEMA_VERSION,
            format!("the table is of version {version}, this library knows {SCHEMA_VERSION}: update the library"),
        ),
        None => report.warn(format!(
            "the table does not say which version of the kept messages it is: put the comment {} into its CREATE TABLE",
            version_mark(SCHEMA_VERSION)
        )),
    }
    if !has_word(&ddl, "CHECK") {
        report.warn("no CHECK keeps other states than pending, done and dead out of the table: add create_message_schema's");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_the_same_however_it_is_written() {
        for ddl in [
            "CREATE INDEX a ON t (b) WHERE state = 'pending'",
            "create index a on t (b)\nwhere (\"state\"='pending')",
            "CREATE INDEX wherever ON t (b) WHERE\n [state] = 'pending'",
        ] {
            assert_eq!(Some(&*condition(ddl)), CLAIM.partial, "{ddl}");
        }
        assert_eq!(condition("CREATE INDEX a ON t (b)"), "");
    }
}
