//! The faults: what authors of inboxes get wrong, one by one.

/// One fault of a broken store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    // Uniqueness.
    /// Looks first, then inserts and trusts its look.
    CheckThenInsert,
    AlwaysNew,
    AlwaysDuplicate,
    /// The consumer is not part of the key.
    ConsumerIgnored,
    /// Consumer and id are joined into one text.
    KeyConcatenated,

    // Bytes.
    IdCut,
    IdCaseFolded,
    IdTrimmed,
    IdAccentsStripped,
    IdAstralMerged,
    IdReadAsNumber,
    LongIdRefused,
    ConsumerCaseFolded,
    EventTypeTrimmed,

    // Where it registers.
    /// Ends the caller's transaction first.
    Autocommits,
    /// Registers on another connection, which commits at once.
    OtherConnection,
    /// Remembers ids in the process: nothing is forgotten on rollback.
    RemembersInProcess,
    /// The table's name is not qualified.
    Unqualified,

    // Answers.
    ErrorAsDuplicate,
    InFlightAsDuplicate,
    /// No row inserted is taken for a duplicate without proof.
    SwallowedAsDuplicate,
    SwallowedAsNew,
    OriginalIsTheCallers,
    OriginalReadAtNow,
    OriginalOverwritten,
    /// A duplicate leaves the transaction aborted.
    DuplicateAborts,
    /// Keeps others from writing until the transaction that saw a duplicate ends.
    DuplicateLocksTable,
    FingerprintIgnored,
    FingerprintNotKept,
    MissingFingerprintMismatches,
    EveryErrorPermanent,
    EveryErrorRetryable,

    // Waiting.
    WaitsForEver,
    NeverWaits,
    /// Waits for its own default, whatever the call says.
    WaitIgnored,
    /// Undoes only its own statement when the wait ends, and does not condemn the transaction.
    BusyKeepsTransaction,
    SettingLeftBehind,

    // Batches.
    BatchShifted,
    BatchTruncated,
    BatchSortedAnswers,
    BatchRepeatsAllNew,
    BatchUnsorted,
    BatchLimited,
    BatchEmptyRefused,
    BatchOneOriginalForAll,
    BatchMismatchFails,
    BatchStopsAtKnown,

    // Ends of transactions.
    /// Rolls back and says `Ok`.
    CommitLies,
    /// The driver's own commit, which says `Ok` for an aborted transaction.
    CommitUnguarded,
    /// Takes a transaction of duplicates for a lost one.
    CommitWantsNew,
    /// Proves no more than one registration.
    CommitExpectsOne,
    /// Guards with a savepoint that the caller's own savepoints take along.
    CommitBySavepoint,
    CondemnsNothing,
    /// Does not notice at a rollback that the transaction had been ended.
    RollbackUnguarded,
    /// Begins by a statement that the pool knows nothing of, and leaks when it is cancelled.
    BeginLeaks,

    // Operators.
    FindsNothing,
    ForgetsNothing,
    VerifiesAnything,
    VerifiesNothing,
    SchemaCreatedAnew,
    SchemaCreatedOnce,
    /// Denies a capability that works.
    DeniesSavepoints,
}

impl Fault {
    /// Every fault.
    pub(crate) const ALL: &[Fault] = &[
        Self::CheckThenInsert,
        Self::AlwaysNew,
        Self::AlwaysDuplicate,
        Self::ConsumerIgnored,
        Self::KeyConcatenated,
        Self::IdCut,
        Self::IdCaseFolded,
        Self::IdTrimmed,
        Self::IdAccentsStripped,
        Self::IdAstralMerged,
        Self::IdReadAsNumber,
        Self::LongIdRefused,
        Self::ConsumerCaseFolded,
        Self::EventTypeTrimmed,
        Self::Autocommits,
        Self::OtherConnection,
        Self::RemembersInProcess,
        Self::Unqualified,
        Self::ErrorAsDuplicate,
        Self::InFlightAsDuplicate,
        Self::SwallowedAsDuplicate,
        Self::SwallowedAsNew,
        Self::OriginalIsTheCallers,
        Self::OriginalReadAtNow,
        Self::OriginalOverwritten,
        Self::DuplicateAborts,
        Self::DuplicateLocksTable,
        Self::FingerprintIgnored,
        Self::FingerprintNotKept,
        Self::MissingFingerprintMismatches,
        Self::EveryErrorPermanent,
        Self::EveryErrorRetryable,
        Self::WaitsForEver,
        Self::NeverWaits,
        Self::WaitIgnored,
        Self::BusyKeepsTransaction,
        Self::SettingLeftBehind,
        Self::BatchShifted,
        Self::BatchTruncated,
        Self::BatchSortedAnswers,
        Self::BatchRepeatsAllNew,
        Self::BatchUnsorted,
        Self::BatchLimited,
        Self::BatchEmptyRefused,
        Self::BatchOneOriginalForAll,
        Self::BatchMismatchFails,
        Self::BatchStopsAtKnown,
        Self::CommitLies,
        Self::CommitUnguarded,
        Self::CommitWantsNew,
        Self::CommitExpectsOne,
        Self::CommitBySavepoint,
        Self::CondemnsNothing,
        Self::RollbackUnguarded,
        Self::BeginLeaks,
        Self::FindsNothing,
        Self::ForgetsNothing,
        Self::VerifiesAnything,
        Self::VerifiesNothing,
        Self::SchemaCreatedAnew,
        Self::SchemaCreatedOnce,
        Self::DeniesSavepoints,
    ];

    /// Whether the fault changes the right answers of a whole batch.
    pub(crate) fn changes_batch_answers(self) -> bool {
        matches!(
            self,
            Self::BatchShifted
                | Self::BatchTruncated
                | Self::BatchSortedAnswers
                | Self::BatchRepeatsAllNew
                | Self::BatchOneOriginalForAll
                | Self::BatchMismatchFails
        )
    }

    /// Whether the fault lies in a single registration, so that a batch of it is a loop.
    pub(crate) fn is_of_single_calls(self) -> bool {
        self < Self::EveryErrorPermanent
            || self == Self::BusyKeepsTransaction
            || self == Self::SettingLeftBehind
    }

    /// Whether the transaction cannot hold what the guard of the healthy store looks for.
    pub(crate) fn bypasses_the_guard(self) -> bool {
        matches!(
            self,
            Self::CheckThenInsert
                | Self::AlwaysNew
                | Self::AlwaysDuplicate
                | Self::Autocommits
                | Self::OtherConnection
                | Self::RemembersInProcess
                | Self::SwallowedAsNew
                | Self::BatchRepeatsAllNew
                | Self::CommitUnguarded
        )
    }
}
