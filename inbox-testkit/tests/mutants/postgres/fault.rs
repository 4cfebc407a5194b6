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

    // The deferred inbox: keeping.
    KeepsNothing,
    /// Keeps on another connection, which commits at once.
    KeepsElsewhere,
    KeepReversed,
    KeepErrorSwallowed,
    /// Takes every id for new.
    KeepsDuplicates,
    /// Takes another payload under the same id for a duplicate.
    KeepsMismatches,
    /// Cuts payloads and headers at 64 KiB.
    PayloadCut,
    TimesInSeconds,
    TimesUnclamped,
    NotBeforeIgnored,
    TableUnchecked,

    // Claiming.
    /// A SELECT, then an UPDATE.
    ClaimLooksFirst,
    ClaimTakesAll,
    ClaimFoldsConsumers,
    /// Judges by a clock that is not the database's injected one.
    ClaimByAnotherClock,
    /// Never goes back before the last sequence that it has claimed.
    ClaimBySequence,
    ClaimWithoutPayload,
    ClaimWaitsForLocked,
    /// Leaks when it is cancelled.
    ClaimLeaks,
    LeaseIgnored,
    /// Judges leases by the length that it would give itself.
    LeaseOfTheClaimer,
    LeaseUnclamped,
    AttemptNotCounted,
    ExhaustedNeverDead,
    /// Leaves rows that it cannot read out of its answer.
    DamagedDropped,

    // Settling.
    HistoryForgotten,
    RenewNothing,
    RenewUnfenced,
    CompleteUnfenced,
    /// Completes on another connection, which commits at once.
    CompleteElsewhere,
    /// Refuses a lease that ran out, though nobody took the message over.
    CompleteJudgesTime,
    /// Commits and rolls back by the driver.
    CompletionUnproved,
    /// Says `Ok` to a commit that was rolled back, the completion being elsewhere.
    EffectLost,
    FailUnfenced,
    RetryAtOnce,
    RetryLater,
    ErrorNotKept,
    ReleaseUnfenced,
    ReleaseSpends,

    // Order.
    OrderIgnored,
    OrderAlways,
    AfterDeadSwapped,
    PostponedForEver,
    UnblocksNothing,
    UnblockMakesDue,
    /// Sees no further than the first 200 rows that are pending.
    ClaimReadsFirstRows,

    // Replaying, listing, counting.
    ReplayLooksFirst,
    ReplayCountsAnew,
    ReplayForgetsHistory,
    /// Gives no attempt beyond what a worker allows.
    ReplayWithinTheLimit,
    ReplayForgetsRegistration,
    ReplayIgnoresFilter,
    ReplayOfDeadOnly,
    ListingIgnoresFilter,
    PagesByTime,
    DamagedHidesAll,
    CountsAll,
    AgeFromReceiving,
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
        Self::KeepsNothing,
        Self::KeepsElsewhere,
        Self::KeepReversed,
        Self::KeepErrorSwallowed,
        Self::KeepsDuplicates,
        Self::KeepsMismatches,
        Self::PayloadCut,
        Self::TimesInSeconds,
        Self::TimesUnclamped,
        Self::NotBeforeIgnored,
        Self::TableUnchecked,
        Self::ClaimLooksFirst,
        Self::ClaimTakesAll,
        Self::ClaimFoldsConsumers,
        Self::ClaimByAnotherClock,
        Self::ClaimBySequence,
        Self::ClaimWithoutPayload,
        Self::ClaimWaitsForLocked,
        Self::ClaimLeaks,
        Self::LeaseIgnored,
        Self::LeaseOfTheClaimer,
        Self::LeaseUnclamped,
        Self::AttemptNotCounted,
        Self::ExhaustedNeverDead,
        Self::DamagedDropped,
        Self::HistoryForgotten,
        Self::RenewNothing,
        Self::RenewUnfenced,
        Self::CompleteUnfenced,
        Self::CompleteElsewhere,
        Self::CompleteJudgesTime,
        Self::CompletionUnproved,
        Self::EffectLost,
        Self::FailUnfenced,
        Self::RetryAtOnce,
        Self::RetryLater,
        Self::ErrorNotKept,
        Self::ReleaseUnfenced,
        Self::ReleaseSpends,
        Self::OrderIgnored,
        Self::OrderAlways,
        Self::AfterDeadSwapped,
        Self::PostponedForEver,
        Self::UnblocksNothing,
        Self::UnblockMakesDue,
        Self::ClaimReadsFirstRows,
        Self::ReplayLooksFirst,
        Self::ReplayCountsAnew,
        Self::ReplayForgetsHistory,
        Self::ReplayWithinTheLimit,
        Self::ReplayForgetsRegistration,
        Self::ReplayIgnoresFilter,
        Self::ReplayOfDeadOnly,
        Self::ListingIgnoresFilter,
        Self::PagesByTime,
        Self::DamagedHidesAll,
        Self::CountsAll,
        Self::AgeFromReceiving,
    ];

    /// Of a fault of the deferred inbox, how the names of the cases begin that it may concern: the others
    /// only take time, or wait for what never comes.
    fn concerns(self) -> &'static [&'static str] {
        match self {
            Self::KeepsNothing => &[
                "d01_",
                "d02_",
                "d03_dropped_completion",
                "d05_worker_tries",
                "d07_worker",
                "d11_long_payload",
            ],
            Self::KeepsElsewhere => &["d02_rolled_back"],
            Self::KeepReversed => &["d02_batch", "d02_large", "d07_order_is"],
            Self::KeepErrorSwallowed => &["d02_failed_keep"],
            Self::KeepsDuplicates => &["d02_duplicate", "d02_direct", "d08_replayed_message_stays"],
            Self::KeepsMismatches => &["d02_mismatch", "d02_batch"],
            Self::PayloadCut => &["d02_", "d11_"],
            Self::TimesInSeconds => &["d02_"],
            Self::TimesUnclamped => &["d02_"],
            Self::NotBeforeIgnored => {
                &["d02_delay", "d02_not_before", "d02_longest", "d02_b86", "d07_delayed"]
            }
            Self::TableUnchecked => &["d01_"],
            Self::ClaimLooksFirst => &["d02_claim", "d02_b57", "d02_b46"],
            Self::ClaimTakesAll => &["d02_"],
            Self::ClaimFoldsConsumers => &["d02_claims_of"],
            Self::ClaimByAnotherClock => &["d02_", "d04_b87"],
            Self::ClaimBySequence => &["d02_late", "d02_longest", "d02_b57"],
            Self::ClaimWithoutPayload => &["d02_claim_leases", "d02_b03"],
            Self::ClaimWaitsForLocked => &["d03_b82"],
            Self::ClaimLeaks => &["d02_dropped_claim", "d03_dropped_calls"],
            Self::LeaseIgnored => &["d02_claim", "d03_b8", "d03_rolled", "d04_"],
            Self::LeaseOfTheClaimer => &["d04_"],
            Self::LeaseUnclamped => &["d02_extreme"],
            Self::AttemptNotCounted => &["d02_claim_", "d03_completed", "d04_", "d05_failed", "d05_error"],
            Self::ExhaustedNeverDead => &["d04_", "d07_exhausted", "d08_b91", "d10_worker_reports"],
            Self::DamagedDropped => &["d06_b79_damaged"],
            Self::HistoryForgotten => &["d04_b84", "d05_", "d08_b91"],
            Self::RenewNothing => &["d03_renewal", "d03_settled", "d04_"],
            Self::RenewUnfenced => &["d03_b83", "d03_settled", "d03_renewal", "d04_"],
            Self::CompleteUnfenced => &["d03_"],
            Self::CompleteElsewhere => &[
                "d03_dropped_completion",
                "d03_rolled",
                "d03_killed",
                "d03_swallowed",
                "d03_raw",
                "d05_never",
                "d05_worker_gives",
                "d06_failing",
                "d06_panicking",
                "d06_handler",
                "d10_after",
                "d10_dropped",
                "d10_worker_goes_on",
            ],
            Self::CompleteJudgesTime => &["d03_"],
            Self::CompletionUnproved => &["d03_"],
            Self::EffectLost => &[
                "d03_completed",
                "d03_completing",
                "d08_replayed_done",
                "d10_worker_handles",
                "d10_workers",
                "d10_batches",
                "d10_shutdown",
            ],
            Self::FailUnfenced => &["d03_b83", "d03_settled", "d03_b81"],
            Self::RetryAtOnce => &["d05_failed", "d07_b88_retried"],
            Self::RetryLater => &["d05_failed"],
            Self::ErrorNotKept => &["d05_dead", "d06_b79_worker"],
            Self::ReleaseUnfenced => &["d03_b83", "d03_settled", "d03_renewals"],
            Self::ReleaseSpends => &["d04_released"],
            Self::OrderIgnored => &[
                "d07_leased",
                "d07_b88",
                "d07_delayed",
                "d07_abandoned",
                "d07_released",
                "d07_dead",
                "d07_exhausted",
                "d07_claimers",
                "d07_batches",
                "d07_order",
            ],
            Self::OrderAlways => &["d07_without", "d02_b46"],
            Self::AfterDeadSwapped => &["d07_dead", "d07_leased"],
            Self::PostponedForEver => &["d07_missed", "d07_leased"],
            Self::UnblocksNothing => &["d07_leased", "d07_dead", "d07_order", "d07_claimers"],
            Self::UnblockMakesDue => &["d07_unblocking", "d07_leased"],
            Self::ClaimReadsFirstRows => &["d07_b88_many"],
            Self::ReplayLooksFirst => &["d08_replays_at_once", "d08_pending"],
            Self::ReplayCountsAnew => &["d08_b91", "d08_replayed"],
            Self::ReplayForgetsHistory => &["d08_b91", "d08_worker"],
            Self::ReplayWithinTheLimit => &["d08_b91", "d08_replayed_message_is", "d08_replays_at_once"],
            Self::ReplayForgetsRegistration => &["d08_replayed"],
            Self::ReplayIgnoresFilter => &["d08_replay_goes"],
            Self::ReplayOfDeadOnly => &["d08_replayed_done", "d08_replay_goes"],
            Self::ListingIgnoresFilter => &["d08_messages"],
            Self::PagesByTime => &["d08_pages"],
            Self::DamagedHidesAll => &["d06_b79"],
            Self::CountsAll => &["d09_"],
            Self::AgeFromReceiving => &["d09_"],
            _ => &[],
        }
    }

    /// Whether a case runs.
    pub(crate) fn runs(self, case: &str) -> bool {
        match case.starts_with("d0") || case.starts_with("d1") {
            true => self.concerns().iter().any(|start| case.starts_with(start)),
            false => self < Self::KeepsNothing,
        }
    }

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
                | Self::KeepsDuplicates
                | Self::CompleteUnfenced
                | Self::CompleteElsewhere
                | Self::CompletionUnproved
        )
    }
}
