//! The faults that InnoDB and its drivers invite. Those that lie in a wrapper around any store are
//! PostgreSQL's, but for one of the deferred inbox (`LostLeaseIsOk`): it depends on the rows that an
//! UPDATE answers.

/// One fault of a broken store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    // How it registers.
    /// No row inserted is taken for a duplicate without proof, whatever IGNORE ignored.
    SwallowedAsDuplicate,
    /// Reads the original without a lock, in an older snapshot.
    OriginalReadPlainly,
    /// ON DUPLICATE KEY UPDATE that changes nothing; the affected rows decide (B04).
    UpsertByAffectedRows,
    /// SELECT … FOR UPDATE, then a plain INSERT (B19).
    LockThenInsert,
    /// REPLACE deletes the original.
    ReplaceInto,
    /// Registers on another connection, which commits at once.
    OtherConnection,
    /// Creates its table on the caller's connection first, which commits the caller's transaction (B14).
    DdlFirst,

    // Locks.
    /// 1205 is taken for a duplicate.
    BusyAsDuplicate,
    /// 1213 is an error like any other.
    DeadlockPermanent,
    /// After 1213 it registers again in the same call, where each statement is committed alone.
    DeadlockRunAgain,
    /// After 1205 the transaction goes on, and its commit keeps what came before.
    CondemnsNothing,
    /// Condemns by a ROLLBACK, after which each statement is committed alone.
    CondemnsByRollback,
    WaitsForEver,
    /// Sets the bound of the wait for the session, and leaves it there.
    SettingLeftBehind,

    // Tables.
    /// The server's default collation, which merges case and accents.
    TableOfText,
    /// A binary collation, which merges trailing spaces.
    TableOfBinaryText,
    /// A column in which IGNORE cuts the id.
    TableNarrow,
    /// An engine without transactions (B15).
    TableMyIsam,

    // Batches.
    /// Takes all for new if a row was inserted.
    BatchAnsweredAsOne,
    /// Reads which ids are known, then inserts: what was not known is new.
    BatchReadFirst,
    BatchUnsorted,
    BatchRepeatsAllNew,

    // Ends of transactions.
    /// The driver's own commit, which says `Ok` where 1213 or DDL had ended the transaction.
    CommitUnguarded,
    /// Looks for the guard, and not for registrations that a savepoint undid.
    CommitCountsNothing,
    /// Does not put the guard on a transaction that the caller began.
    GuardAtBeginOnly,
    /// Sets the guard where it registers, inside of savepoints of the caller's.
    GuardMoves,
    /// Does not look whether something was committed.
    RollbackUnguarded,

    // Reads.
    FingerprintNotRead,
    /// A column or a type without fractions of a second.
    TimeCutToSeconds,
    FindReadsUncommitted,
    VerifiesAnything,

    // The deferred inbox.
    /// A SELECT without a lock, then an UPDATE (B47).
    ClaimLooksFirst,
    /// FOR UPDATE without SKIP LOCKED (B82).
    ClaimWaitsForLocked,
    /// In the order of the primary key.
    ClaimBySequence,
    /// Takes an expired lease for none, and writes nothing down.
    AbandonedForgotten,
    /// By the sequence alone.
    CompleteUnfenced,
    LostLeaseIsOk,
    /// A SELECT of what is dead, then an UPDATE by its keys.
    ReplayLooksFirst,
}

impl Fault {
    /// Every fault.
    pub(crate) const ALL: &[Fault] = &[
        Self::SwallowedAsDuplicate,
        Self::OriginalReadPlainly,
        Self::UpsertByAffectedRows,
        Self::LockThenInsert,
        Self::ReplaceInto,
        Self::OtherConnection,
        Self::DdlFirst,
        Self::BusyAsDuplicate,
        Self::DeadlockPermanent,
        Self::DeadlockRunAgain,
        Self::CondemnsNothing,
        Self::CondemnsByRollback,
        Self::WaitsForEver,
        Self::SettingLeftBehind,
        Self::TableOfText,
        Self::TableOfBinaryText,
        Self::TableNarrow,
        Self::TableMyIsam,
        Self::BatchAnsweredAsOne,
        Self::BatchReadFirst,
        Self::BatchUnsorted,
        Self::BatchRepeatsAllNew,
        Self::CommitUnguarded,
        Self::CommitCountsNothing,
        Self::GuardAtBeginOnly,
        Self::GuardMoves,
        Self::RollbackUnguarded,
        Self::FingerprintNotRead,
        Self::TimeCutToSeconds,
        Self::FindReadsUncommitted,
        Self::VerifiesAnything,
        Self::ClaimLooksFirst,
        Self::ClaimWaitsForLocked,
        Self::ClaimBySequence,
        Self::AbandonedForgotten,
        Self::CompleteUnfenced,
        Self::LostLeaseIsOk,
        Self::ReplayLooksFirst,
    ];

    /// Whether it lies in the deferred inbox.
    pub(crate) fn is_of_kept_messages(self) -> bool {
        self >= Self::ClaimLooksFirst
    }

    /// Of a fault of the deferred inbox, how the names of the cases begin that it may concern.
    pub(crate) fn concerns(self) -> &'static [&'static str] {
        match self {
            Self::ClaimLooksFirst => &["d02_b46", "d02_b57"],
            Self::ClaimWaitsForLocked => &["d03_b82"],
            Self::ClaimBySequence => &["d02_longest", "d02_late"],
            Self::AbandonedForgotten => &["d04_b84"],
            Self::CompleteUnfenced => &["d03_b83", "d03_settled"],
            Self::LostLeaseIsOk => &["d03_b83", "d03_settled"],
            Self::ReplayLooksFirst => &["d08_replays", "d08_pending"],
            _ => &[],
        }
    }

    /// Whether the fault lies in a single registration, so that a batch of it is a loop.
    pub(crate) fn is_of_single_calls(self) -> bool {
        self < Self::CondemnsNothing || self == Self::SettingLeftBehind
    }

    /// Whether it has an insert of its own.
    pub(crate) fn inserts_itself(self) -> bool {
        matches!(
            self,
            Self::OriginalReadPlainly | Self::UpsertByAffectedRows | Self::LockThenInsert | Self::ReplaceInto
        )
    }

    /// Whether the transaction cannot hold what the guard of the healthy store looks for, and the
    /// store has the driver's commit.
    pub(crate) fn bypasses_the_guard(self) -> bool {
        matches!(
            self,
            Self::OtherConnection | Self::DdlFirst | Self::DeadlockRunAgain | Self::CommitUnguarded
        )
    }

    /// The table that is wrong, and which the store does not verify.
    pub(crate) fn table(self) -> Option<String> {
        let table = |message_id: &str, engine: &str| {
            format!(
                "DROP TABLE inbox;
                 CREATE TABLE inbox (
                     consumer      VARBINARY(100) NOT NULL,
                     message_id    {message_id}   NOT NULL,
                     event_type    VARBINARY(255) NOT NULL,
                     fingerprint   BINARY(16)     NULL,
                     attempt       BINARY(16)     NULL,
                     registered_at DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
                     PRIMARY KEY (consumer, message_id)
                 ) ENGINE = {engine}"
            )
        };
        match self {
            Self::TableOfText => Some(table("VARCHAR(255)", "InnoDB")),
            Self::TableOfBinaryText => {
                Some(table("VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "InnoDB"))
            }
            Self::TableNarrow => Some(table("VARBINARY(64)", "InnoDB")),
            Self::TableMyIsam => Some(table("VARBINARY(255)", "MyISAM")),
            _ => None,
        }
    }
}
