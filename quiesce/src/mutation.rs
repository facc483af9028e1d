//! Bugs that tests plant to show that they would be found.

/// A planted bug. Without the feature `mutation` no machine can have one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(any(test, feature = "mutation")), allow(missing_docs))]
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
    /// A new leader decides without asking its siblings what they hold.
    SyncSkipped,
    /// Nothing is kept for a newcomer before it has joined.
    PinSkipped,
    /// A leader cancels a receive without asking its siblings.
    BallotsIgnored,
    /// After a connection was lost, nothing is asked for anew.
    ResetIgnored,
    /// An outvoted payload is delivered.
    VerdictIgnored,
    /// A new leader that has just joined is told only what is not stable.
    SyncFromStable,
    /// A place that is free at the start is served before the copy that takes it has asked.
    FreePlaceServed,
    /// A payload that nobody has as it was sent is delivered though a sibling could go on alone.
    CorruptLogDelivered,
    /// A newcomer is not told of what is kept for it.
    IntroductionSkipped,
    /// A copy's vote counts for itself, though it says what its source says.
    KinshipIgnored,
    /// A message that is kept for newcomers only is not let go for the send that waits for it.
    DetachSkipped,
    /// A copy keeps nothing for those that have joined between its cut and its view.
    LateJoinersUnpinned,
    /// The source of an image for a line goes on before the last one is held.
    SourceGoesOn,
    /// Where nobody can judge, each receiver takes what its own plane sent, however many there are.
    SidesTaken,
    /// Matching gets a message as its first offer has it, before anybody else has spoken.
    EnvelopeBelieved,
    /// A message in dispute waits also when nobody is left who could judge it.
    DisputeKept,
    /// An outcome is taken whatever it was decided for.
    LeaderTrusted,
    /// The next reader in the program takes a reading of a clock, whoever asked for it.
    AskersIgnored,
    /// A change that others can see is made before a majority has asked for it.
    ChangeUnbacked,
    /// A receiver does not ask for a message that some of its senders have passed by.
    OverdueIgnored,
    /// A copy's claim on the path counts for itself, though it says what its source says.
    PathKinshipIgnored,
}
