//! The SQL on the table of kept messages: the texts are in `sql/messages/`.

use inbox_core::TableName;

use crate::statements::{Statement, without_comments};

#[derive(Debug)]
pub(crate) struct MessageStatements {
    pub(crate) keep: Statement,
    pub(crate) claim: Statement,
    pub(crate) lock_due: Statement,
    pub(crate) claim_in_order: Statement,
    pub(crate) renew: Statement,
    pub(crate) complete: Statement,
    pub(crate) done: Statement,
    pub(crate) fail: Statement,
    pub(crate) release: Statement,
    pub(crate) unblock: Statement,
    pub(crate) replay_ids: Statement,
    pub(crate) replay_in_state: Statement,
    pub(crate) select_ids: Statement,
    pub(crate) select_in_state: Statement,
    pub(crate) count: Statement,
}

impl MessageStatements {
    /// The statements beside an inbox's table, with the expression that is their clock.
    pub(crate) fn new(inbox: &TableName, now: &str) -> Self {
        let messages = inbox.messages().quoted();
        let leases = without_comments(include_str!("../sql/messages/leases.sql"));
        let found = |ids| without_comments(include_str!("../sql/messages/found.sql")).replace("{ids}", ids);
        let whole = |text: &str, payload: &str| {
            let text = without_comments(text)
                .replace("{take}", &without_comments(include_str!("../sql/messages/take.sql")))
                .replace("{leases}", &leases)
                .replace("{replay}", include_str!("../sql/messages/replay.sql"))
                .replace("{columns}", include_str!("../sql/messages/columns.sql").trim_end())
                .replace("{payload}", payload)
                .replace("{messages}", &messages)
                .replace("{now}", now);
            Statement::from(text)
        };
        let text = |text| whole(text, "message.payload");
        Self {
            keep: text(include_str!("../sql/messages/keep.sql")),
            claim: text(include_str!("../sql/messages/claim.sql")),
            lock_due: text(include_str!("../sql/messages/lock_due.sql")),
            claim_in_order: text(include_str!("../sql/messages/claim_in_order.sql")),
            renew: text(include_str!("../sql/messages/renew.sql")),
            complete: text(include_str!("../sql/messages/complete.sql")),
            done: text(include_str!("../sql/messages/done.sql")),
            fail: text(include_str!("../sql/messages/fail.sql")),
            release: text(include_str!("../sql/messages/release.sql")),
            unblock: text(include_str!("../sql/messages/unblock.sql")),
            replay_ids: text(
                &include_str!("../sql/messages/replay_ids.sql").replace("{found}", &found("$4")),
            ),
            replay_in_state: text(include_str!("../sql/messages/replay_in_state.sql")),
            select_ids: text(
                &include_str!("../sql/messages/select_ids.sql").replace("{found}", &found("$2")),
            ),
            select_in_state: whole(
                include_str!("../sql/messages/select_in_state.sql"),
                "CASE WHEN $8 THEN message.payload ELSE ''::bytea END",
            ),
            count: text(include_str!("../sql/messages/count.sql")),
        }
    }
}
