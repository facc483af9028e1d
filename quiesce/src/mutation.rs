//! Bugs that tests plant, to show that the tests would find them.

/// A planted bug. Without the feature `mutation` no machine can have one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(any(test, feature = "simulation")), allow(missing_docs))]
pub enum Mutation {
    /// Acknowledgements go to one replica of the sender only.
    AckLost,
    /// Sends do not wait for stable decisions.
    OutputCommitSkipped,
    /// A new supplier is told to start one message late.
    BookmarkLate,
    /// The log keeps nothing for replicas other than the own target.
    ReleasedEarly,
    /// After a loss, the new supplier is not asked for payloads.
    SupplierWrong,
    /// A new leader decides without asking its siblings for the decisions they hold.
    SyncSkipped,
    /// Nothing is kept for a newcomer before it has joined.
    PinSkipped,
    /// A leader cancels a receive without asking its siblings.
    BallotsIgnored,
    /// After a connection was lost, no service is requested anew.
    ResetIgnored,
    /// An outvoted payload is delivered.
    VerdictIgnored,
    /// A new leader that has just joined receives only decisions that are not stable.
    SyncFromStable,
    /// A place that is free at the start is served before the copy that takes it has asked.
    FreePlaceServed,
    /// A payload that no sender has intact is delivered, though a sibling could go on alone.
    CorruptLogDelivered,
    /// A newcomer does not learn of the messages that are kept for it.
    IntroductionSkipped,
    /// A copy's vote on a message counts fully, though it repeats its source's.
    KinshipIgnored,
    /// A send that waits for its release is not completed when its message is kept for newcomers only.
    DetachSkipped,
    /// A copy keeps nothing for others that have joined between its cut and its view.
    LateJoinersUnpinned,
    /// The source of an image for a checkpoint goes on before the last source is stopped.
    SourceGoesOn,
    /// Without a majority, each receiver takes its own plane's payload, at any degree.
    SidesTaken,
    /// Matching gets a message with the envelope of its first offer, before other senders have vouched for it.
    EnvelopeBelieved,
    /// A disputed message goes on waiting when no arbiter is left.
    DisputeKept,
    /// An outcome is taken even if it was decided for another question.
    LeaderTrusted,
    /// A reading of a clock is taken by the next reader in the program, even if it belongs to another one.
    AskersIgnored,
    /// A change that others can see is made before a majority has asked for it.
    ChangeUnbacked,
    /// A receiver does not ask for a message that some of its senders have passed.
    OverdueIgnored,
    /// A copy's claim on a path counts fully, though it repeats its source's.
    PathKinshipIgnored,
}

#[cfg(any(test, feature = "simulation"))]
simulation_kit::named! {
    Mutation:
    AckLost,
    OutputCommitSkipped,
    BookmarkLate,
    ReleasedEarly,
    SupplierWrong,
    SyncSkipped,
    PinSkipped,
    BallotsIgnored,
    ResetIgnored,
    VerdictIgnored,
    SyncFromStable,
    FreePlaceServed,
    CorruptLogDelivered,
    IntroductionSkipped,
    KinshipIgnored,
    DetachSkipped,
    LateJoinersUnpinned,
    SourceGoesOn,
    SidesTaken,
    EnvelopeBelieved,
    DisputeKept,
    LeaderTrusted,
    AskersIgnored,
    ChangeUnbacked,
    OverdueIgnored,
    PathKinshipIgnored,
}
