//! Each kind of error as a real server raises it (R13), and that nothing of the effect can be
//! committed after it (R9).

use std::time::Duration;

use inbox_core::{Error, ErrorKind, Identifier, Inbox, TableName};
use inbox_mysql::{MySqlStore, is_retryable, kind_of};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{ConnectOptions, Connection, MySql, MySqlConnection, MySqlPool, Transaction};

use crate::stand::{
    Guarded, Stand, consumer, effect, kind, message, number, on_each_server, on_own_servers, run, session,
    source_number, try_run,
};

on_each_server![
    r13_a_wrong_table_is_of_kind_schema,
    r13_a_missing_right_is_of_kind_schema,
    r13_b11_a_deadlock_is_retryable,
    r13_b10_a_lock_that_is_not_had_in_time_is_busy,
    r13_a_snapshot_that_is_too_old_is_retryable,
    r13_a_killed_statement_is_of_kind_backend,
    r13_a_session_that_was_ended_is_unavailable,
    r13_a_session_that_was_ended_while_it_waits_is_unavailable,
    r13_no_connection_is_unavailable,
    r13_a_refused_login_is_unavailable,
    r13_an_account_that_has_all_its_connections_is_unavailable,
    r13_a_read_only_transaction_is_of_kind_backend,
    r13_a_table_altered_since_the_snapshot_is_retryable,
    a_handlers_own_errors_are_told_apart,
];

on_own_servers![r13_a_server_that_is_full_or_read_only_or_shuts_down_is_unavailable];

/// The ways in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ByValue,
    ByReference,
    BatchByReference,
    Guarded,
    BatchGuarded,
}

const WAYS: [Way; 5] =
    [Way::ByValue, Way::ByReference, Way::BatchByReference, Way::Guarded, Way::BatchGuarded];

/// A transaction with an effect that is not to be committed.
enum Begun<'i> {
    Plain(Transaction<'static, MySql>),
    Guarded(Guarded<'i>),
}

impl<'i> Begun<'i> {
    async fn new(inbox: &'i Inbox<MySqlStore>, way: Way) -> Self {
        let mut begun = match way {
            Way::Guarded | Way::BatchGuarded => Self::Guarded(inbox.begin().await.unwrap()),
            _ => Self::Plain(inbox.store().pool().begin().await.unwrap()),
        };
        effect(begun.conn()).await;
        begun
    }

    fn conn(&mut self) -> &mut MySqlConnection {
        match self {
            Self::Plain(tx) => tx,
            Self::Guarded(tx) => tx,
        }
    }

    /// Registers the message `m`, which fails. Then does what a caller does who swallows the error:
    /// writes more, and commits.
    async fn fails(self, inbox: &Inbox<MySqlStore>, way: Way) -> Error {
        let m = message("m");
        match self {
            Self::Plain(tx) if way == Way::ByValue => inbox.register(tx, &m).await.unwrap_err(),
            Self::Plain(mut tx) => {
                let answer = match way {
                    Way::ByReference => inbox.register_if_new(&mut tx, &m).await.map(drop),
                    _ => inbox.register_batch(&mut tx, &[m]).await.map(drop),
                };
                let written = try_run(&mut tx, "INSERT INTO effect VALUES ('after')").await;
                assert!(written.is_err(), "{way:?}: {answer:?}");
                assert!(tx.commit().await.is_err(), "{way:?}: {answer:?}");
                answer.unwrap_err()
            }
            Self::Guarded(mut tx) => {
                let answer = match way {
                    Way::Guarded => tx.register_if_new(&m).await.map(drop),
                    _ => tx.register_batch(&[m]).await.map(drop),
                };
                assert_eq!(kind(tx.commit().await), ErrorKind::Aborted, "{way:?}: {answer:?}");
                answer.unwrap_err()
            }
        }
    }
}

/// Each way in meets a trouble that is there already, all at once, since some wait.
async fn each_fails(inbox: &Inbox<MySqlStore>, expected: ErrorKind, number: u16, remedy: &str) {
    let tasks = WAYS.map(|way| {
        let inbox = inbox.clone();
        tokio::spawn(async move { Begun::new(&inbox, way).await.fails(&inbox, way).await })
    });
    for (way, task) in WAYS.into_iter().zip(tasks) {
        let error = task.await.unwrap();
        assert_eq!((error.kind(), source_number(&error)), (expected, Some(number)), "{way:?}: {error}");
        assert!(error.to_string().contains(remedy), "{way:?}: {error}");
    }
}

fn inbox_on(options: MySqlConnectOptions, connections: u32) -> (MySqlPool, Inbox<MySqlStore>) {
    let pool = MySqlPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy_with(options);
    (pool.clone(), Inbox::new(MySqlStore::new(pool).unwrap(), consumer()))
}

async fn r13_a_wrong_table_is_of_kind_schema(stand: Stand) {
    let nowhere = TableName::new("inbox_test_of_nobody", "inbox").unwrap();
    let inbox = Inbox::new(stand.store.clone().with_table(nowhere), consumer());
    let no_database = if stand.is_mysql() { 1049 } else { 1146 };
    each_fails(&inbox, ErrorKind::Schema, no_database, "run create_schema, or the text of ddl").await;

    stand.sql("ALTER TABLE inbox DROP COLUMN event_type").await;
    each_fails(&stand.inbox, ErrorKind::Schema, 1054, "run verify").await;
    stand.sql("DROP TABLE inbox").await;
    each_fails(&stand.inbox, ErrorKind::Schema, 1146, "run create_schema, or the text of ddl").await;
    assert_eq!(stand.effects().await, 0);
}

async fn r13_a_missing_right_is_of_kind_schema(stand: Stand) {
    let database = stand.database.name();
    let (options, account) = stand.account("").await;
    let error = kind_and_number(&options.clone().connect().await.unwrap_err());
    assert_eq!(error, (ErrorKind::Schema, Some(1044)), "no right on the database");

    stand.sql(&format!("GRANT INSERT, SELECT ON {database}.effect TO {account}")).await;
    let (pool, inbox) = inbox_on(options, 5);
    each_fails(&inbox, ErrorKind::Schema, 1142, "the text of grants").await;

    stand.sql(&format!("GRANT SELECT, INSERT (consumer, message_id) ON {database}.inbox TO {account}")).await;
    each_fails(&inbox, ErrorKind::Schema, 1143, "the text of grants").await;
    assert_eq!(stand.committed().await, (0, 0));
    pool.close().await;
    stand.sql(&format!("DROP USER {account}")).await;
}

fn kind_and_number(error: &sqlx::Error) -> (ErrorKind, Option<u16>) {
    (kind_of(error), number(error))
}

/// The other one has the id, and waits for a row of this one's; it has written more, so this one is
/// the victim.
async fn r13_b11_a_deadlock_is_retryable(stand: Stand) {
    stand
        .sql(
            "CREATE TABLE stock (id INT PRIMARY KEY, n INT) ENGINE = InnoDB; INSERT INTO stock VALUES (1, 0)",
        )
        .await;
    let take = "UPDATE stock SET n = n + 1 WHERE id = 1";
    for way in WAYS {
        let mut begun = Begun::new(&stand.inbox, way).await;
        run(begun.conn(), take).await;

        let mut other = stand.inbox.begin().await.unwrap();
        other.register_if_new(&message("m")).await.unwrap();
        let rows = ["('other')"; 20].join(", ");
        run(&mut other, &format!("INSERT INTO effect VALUES {rows}")).await;
        let session = session(&mut other).await;
        let deadlock = async {
            stand.until_waiting(session).await;
            begun.fails(&stand.inbox, way).await
        };
        let ((), error) = tokio::join!(run(&mut other, take), deadlock);
        other.rollback().await.unwrap();
        let met = (error.kind(), source_number(&error));
        assert_eq!(met, (ErrorKind::Retryable, Some(1213)), "{way:?}: {error}");
    }
    assert_eq!(stand.committed().await, (0, 0));
}

async fn r13_b10_a_lock_that_is_not_had_in_time_is_busy(stand: Stand) {
    let mut holder = stand.inbox.begin().await.unwrap();
    holder.register_if_new(&message("m")).await.unwrap();
    each_fails(&stand.inbox.clone().with_wait(Duration::ZERO), ErrorKind::Busy, 1205, "the bound").await;
    if !stand.is_mysql() {
        let inbox = stand.inbox.clone().with_wait(Duration::from_millis(50));
        each_fails(&inbox, ErrorKind::Busy, 1969, "the bound of the wait is 50ms").await;
    }
    holder.rollback().await.unwrap();
    assert_eq!(stand.committed().await, (0, 0));
}

async fn r13_a_snapshot_that_is_too_old_is_retryable(stand: Stand) {
    if !stand.isolates_snapshots() {
        return; // there it is a duplicate: see register.rs
    }
    for way in WAYS {
        let mut begun = Begun::new(&stand.inbox, way).await;
        run(begun.conn(), "SELECT count(*) FROM inbox").await;
        stand.insert("m").await;
        let error = begun.fails(&stand.inbox, way).await;
        let met = (error.kind(), source_number(&error));
        assert_eq!(met, (ErrorKind::Retryable, Some(1020)), "{way:?}: {error}");
        stand.sql("DELETE FROM inbox").await;
    }
    assert_eq!(stand.effects().await, 0);
}

/// Each way in is interrupted while it waits.
async fn each_is_interrupted(stand: &Stand, kill: &str) -> Vec<(ErrorKind, Option<u16>)> {
    let mut holder = stand.inbox.begin().await.unwrap();
    holder.register_if_new(&message("m")).await.unwrap();
    let mut met = Vec::new();
    for way in WAYS {
        let mut begun = Begun::new(&stand.inbox, way).await;
        let session = session(begun.conn()).await;
        let (error, ()) = tokio::join!(begun.fails(&stand.inbox, way), async {
            stand.until_waiting(session).await;
            stand.sql(&format!("{kill} {session}")).await;
        });
        met.push((error.kind(), source_number(&error)));
    }
    holder.rollback().await.unwrap();
    assert_eq!(stand.committed().await, (0, 0));
    met
}

/// Somebody else's doing, so nobody knows whether to run it again.
async fn r13_a_killed_statement_is_of_kind_backend(stand: Stand) {
    let met = each_is_interrupted(&stand, "KILL QUERY").await;
    assert_eq!(met, [(ErrorKind::Backend, Some(1317)); 5]);
}

async fn r13_a_session_that_was_ended_while_it_waits_is_unavailable(stand: Stand) {
    let met = each_is_interrupted(&stand, "KILL").await;
    assert_eq!(met, [(ErrorKind::Unavailable, None); 5], "the connection is closed");
}

async fn r13_a_session_that_was_ended_is_unavailable(stand: Stand) {
    for idle in [false, true] {
        let mut ended = Vec::new();
        for way in WAYS {
            let mut begun = Begun::new(&stand.inbox, way).await;
            let session = session(begun.conn()).await;
            match idle {
                false => stand.kill(session).await,
                true => run(begun.conn(), "SET wait_timeout = 1").await,
            }
            ended.push((way, begun, session));
        }
        let number = if idle && stand.is_mysql() { Some(4031) } else { None };
        for (way, begun, session) in ended {
            stand.until_gone(session).await;
            let error = begun.fails(&stand.inbox, way).await;
            let met = (error.kind(), source_number(&error));
            assert_eq!(met, (ErrorKind::Unavailable, number), "{way:?}, idle: {idle}: {error}");
        }
    }
    assert_eq!(stand.committed().await, (0, 0));
}

async fn r13_no_connection_is_unavailable(stand: Stand) {
    let inbox = stand.inbox_on_one("DO 0").await;
    let held = inbox.begin().await.unwrap();
    assert_eq!(kind(inbox.begin().await), ErrorKind::Unavailable, "the pool is used up");
    drop(held);
    inbox.store().pool().close().await;
    assert_eq!(kind(inbox.begin().await), ErrorKind::Unavailable, "the pool is closed");

    let nobody = MySqlPoolOptions::new()
        .acquire_timeout(Duration::from_millis(200))
        .connect_lazy("mysql://nobody@127.0.0.1:1/none")
        .unwrap();
    assert_eq!(kind(MySqlStore::open(nobody).await), ErrorKind::Unavailable);
}

/// Redelivered, not parked: the message is not to blame.
async fn r13_a_refused_login_is_unavailable(stand: Stand) {
    let (options, account) = stand.account("IDENTIFIED BY 'secret'").await;
    let (_, inbox) = inbox_on(options, 1);
    let error = inbox.begin().await.unwrap_err();
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Unavailable, Some(1045)), "{error}");
    assert!(error.to_string().contains("check user, password and host"), "{error}");
    stand.sql(&format!("DROP USER {account}")).await;
}

async fn r13_an_account_that_has_all_its_connections_is_unavailable(stand: Stand) {
    let (options, account) = stand.account("WITH MAX_USER_CONNECTIONS 1").await;
    stand.sql(&format!("GRANT SELECT ON {}.effect TO {account}", stand.database.name())).await;
    let first = options.connect().await.unwrap();
    let error = options.connect().await.unwrap_err();
    assert_eq!(kind_and_number(&error), (ErrorKind::Unavailable, Some(1226)));
    let (_, inbox) = inbox_on(options, 1);
    assert_eq!(kind(inbox.begin().await), ErrorKind::Unavailable);
    first.close().await.unwrap();
    stand.sql(&format!("DROP USER {account}")).await;
}

/// A setting of the session, which does not change by itself; that of a server is 1290.
async fn r13_a_read_only_transaction_is_of_kind_backend(stand: Stand) {
    for way in [Way::ByReference, Way::BatchByReference] {
        let begin = "START TRANSACTION READ ONLY";
        let mut tx = stand.pool.begin_with(begin).await.unwrap();
        let answer = match way {
            Way::ByReference => stand.inbox.register_if_new(&mut tx, &message("m")).await.map(drop),
            _ => stand.inbox.register_batch(&mut tx, &[message("m")]).await.map(drop),
        };
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Backend, Some(1792)));
        try_run(&mut tx, "INSERT INTO effect VALUES ('after')").await.unwrap_err();
    }
    assert_eq!(stand.committed().await, (0, 0));
}

async fn r13_a_table_altered_since_the_snapshot_is_retryable(stand: Stand) {
    let begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT";
    let mut tx = stand.pool.begin_with(begin).await.unwrap();
    stand.sql("ALTER TABLE effect ADD COLUMN more INT, ALGORITHM = COPY").await;
    let error = try_run(&mut tx, "SELECT 1 FROM effect").await.unwrap_err();
    assert_eq!(kind_and_number(&error), (ErrorKind::Retryable, Some(1412)));
}

async fn a_handlers_own_errors_are_told_apart(stand: Stand) {
    stand.sql("INSERT INTO effect VALUES ('held')").await;
    let mut holder = stand.pool.begin().await.unwrap();
    run(&mut holder, "SELECT 1 FROM effect FOR UPDATE").await;
    let mut tx = stand.pool.begin().await.unwrap();

    let error = try_run(&mut tx, "SELECT 1 FROM effect FOR UPDATE NOWAIT").await.unwrap_err();
    let no_wait = if stand.is_mysql() { 3572 } else { 1205 };
    assert_eq!(kind_and_number(&error), (ErrorKind::Busy, Some(no_wait)));
    assert!(is_retryable(&error));

    let error = match stand.is_mysql() {
        true => {
            run(&mut tx, "SET max_execution_time = 1").await;
            try_run(
                &mut tx,
                "SELECT count(*) FROM information_schema.columns a, information_schema.columns b",
            )
            .await
        }
        false => {
            try_run(&mut tx, "SET STATEMENT max_statement_time = 0.05 FOR SELECT 1 FROM effect FOR UPDATE")
                .await
        }
    };
    let limit = if stand.is_mysql() { 3024 } else { 1969 };
    assert_eq!(kind_and_number(&error.unwrap_err()), (ErrorKind::Backend, Some(limit)), "the handler's own");

    let error = try_run(&mut tx, "RELEASE SAVEPOINT nobody").await.unwrap_err();
    assert_eq!(kind_and_number(&error), (ErrorKind::Backend, Some(1305)));
    let error = try_run(&mut tx, "INSERT INTO effect VALUES (NULL)").await.unwrap_err();
    assert_eq!(kind_and_number(&error), (ErrorKind::Backend, Some(1048)));
    let error = try_run(&mut tx, "KILL CONNECTION_ID()").await.unwrap_err();
    let killed = if stand.is_mysql() { (ErrorKind::Backend, 1317) } else { (ErrorKind::Unavailable, 1927) };
    assert_eq!(kind_and_number(&error), (killed.0, Some(killed.1)), "a session that ends itself");
}

async fn r13_a_server_that_is_full_or_read_only_or_shuts_down_is_unavailable(stand: Stand) {
    // Root gets in past every limit, so an ordinary account is needed.
    let mut control = stand.connection().await;
    let (options, account) = stand.account("").await;
    let database: Identifier = Identifier::new(stand.database.name()).unwrap();
    stand.sql(&format!("GRANT ALL ON {database}.* TO {account}")).await;

    run(&mut control, "SET GLOBAL max_connections = 10").await;
    let mut open = Vec::new();
    let full = loop {
        match options.connect().await {
            Ok(connection) => open.push(connection),
            Err(error) => break error,
        }
    };
    assert_eq!(kind_and_number(&full), (ErrorKind::Unavailable, Some(1040)));
    assert_eq!(kind(inbox_on(options.clone(), 1).1.begin().await), ErrorKind::Unavailable);
    open.clear();
    run(&mut control, "SET GLOBAL max_connections = 100").await;

    let (pool, inbox) = inbox_on(options.clone(), 3);
    let (mut plain, mut guarded) = (pool.begin().await.unwrap(), inbox.begin().await.unwrap());
    run(&mut control, "SET GLOBAL read_only = 1").await;
    let error = inbox.register_if_new(&mut plain, &message("m")).await.unwrap_err();
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Unavailable, Some(1290)));
    let error = guarded.register_if_new(&message("m")).await.unwrap_err();
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Unavailable, Some(1290)));
    assert_eq!(kind(guarded.commit().await), ErrorKind::Aborted);
    drop(plain);

    // Of what was done before the server became read-only, the commit is refused.
    run(&mut control, "SET GLOBAL read_only = 0").await;
    let mut begun = inbox.begin().await.unwrap();
    begun.register_if_new(&message("before")).await.unwrap();
    effect(&mut begun).await;
    run(&mut control, "SET GLOBAL read_only = 1").await;
    let error = begun.commit().await.unwrap_err();
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Unavailable, Some(1290)));
    run(&mut control, "SET GLOBAL read_only = 0").await;
    assert_eq!(stand.committed().await, (0, 0));

    let mut holder = stand.inbox.begin().await.unwrap();
    holder.register_if_new(&message("m")).await.unwrap();
    let mut waiting = inbox.begin().await.unwrap();
    let session = session(&mut waiting).await;
    let letter = message("m");
    let (answer, ()) = tokio::join!(waiting.register_if_new(&letter), async {
        stand.until_waiting(session).await;
        run(&mut control, "SHUTDOWN").await;
    });
    let error = answer.unwrap_err();
    // MariaDB only closes the connection.
    let shut_down = if stand.is_mysql() { Some(1053) } else { None };
    assert_eq!((error.kind(), source_number(&error)), (ErrorKind::Unavailable, shut_down), "{error}");
    // The server may come to the commit before it closes this connection; then it is committed.
    if let Err(error) = holder.commit().await {
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    }
}
