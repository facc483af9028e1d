//! Bugs that simulations plant to show that they would be found. The library that programs load can have none.

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(any(test, feature = "simulation")), allow(dead_code))]
pub enum Mutation {
    /// A barrier leaves out its last round.
    BarrierShort,
    /// A member of the tree of a broadcast does not wait for its parent before it sends on.
    BroadcastEarly,
    /// A reduction leaves out the last child of a member.
    ReduceChildLost,
    /// A scan combines with one member too few.
    ScanShort,
    /// An allgather puts the first piece that it has received where its own belongs.
    GatherMisplaced,
    /// An alltoall waits for its receives, and not for its sends.
    AlltoallUnawaited,
    /// Nonblocking collectives have one context and one tag.
    NonblockingMixed,
    /// A duplicate has the context of the communicator that it was made from.
    ContextShared,
    /// A number of a freed communicator is used again before all members have freed it.
    ContextReusedEarly,
    /// A fence does not wait for the operations of others.
    FenceUncounted,
    /// Exclusive locks are given while others have the lock.
    LockIgnored,
    /// An accumulate replaces the target's elements in place of combining them.
    AccumulateReplaces,
    /// An access epoch of groups begins before its targets have posted.
    PostIgnored,
    /// A follower takes the request that is complete here, not the one that was complete at its leader.
    FirstByItself,
    /// A follower tests by itself.
    TestByItself,
    /// A follower probes by itself.
    ProbeByItself,
    /// A receive is cancelled without asking siblings.
    CancelByItself,
    /// A line is cut while messages without numbers are in flight.
    LineUnquiet,
    /// A line has any replica of a rank, not the one that has made the rank's changes outside.
    LineOfFollowers,
    /// Siblings of saved processes are not told to begin new records of changes of files.
    SiblingsUntold,
    /// Messages that a daemon sends together with the one that a line goes are lost.
    ReadTogetherLost,
    /// A process that goes on from a line does not report again that it is in `MPI_Finalize`.
    FinalizingOnce,
    /// A job that goes back to a line does not send its view.
    ViewUnsaid,
    /// A process that has asked for a line, and goes on from it, does not know that it was taken.
    LineUntold,
    /// Each replica asks for a line by itself.
    LineByItself,
    /// Each replica raises a signal by itself, at its next call.
    SignalByItself,
    /// A follower that has reported its place goes on before the call of a signal is decided.
    SignalUnwaited,
    /// A process does not look whether hosts answer.
    SilenceUnheard,
}

impl Mutation {
    /// All mutations.
    #[cfg(any(test, feature = "simulation"))]
    pub const ALL: [Self; 28] = [
        Self::BarrierShort,
        Self::BroadcastEarly,
        Self::ReduceChildLost,
        Self::ScanShort,
        Self::GatherMisplaced,
        Self::AlltoallUnawaited,
        Self::NonblockingMixed,
        Self::ContextShared,
        Self::ContextReusedEarly,
        Self::FenceUncounted,
        Self::LockIgnored,
        Self::AccumulateReplaces,
        Self::PostIgnored,
        Self::FirstByItself,
        Self::TestByItself,
        Self::ProbeByItself,
        Self::CancelByItself,
        Self::LineUnquiet,
        Self::LineOfFollowers,
        Self::SiblingsUntold,
        Self::ReadTogetherLost,
        Self::FinalizingOnce,
        Self::ViewUnsaid,
        Self::LineUntold,
        Self::LineByItself,
        Self::SignalByItself,
        Self::SignalUnwaited,
        Self::SilenceUnheard,
    ];
}

#[cfg(any(test, feature = "simulation"))]
process_local! {
    /// The bug that is planted in this process.
    pub static PLANTED: std::sync::OnceLock<Mutation> = std::sync::OnceLock::new();
}

/// Returns true if this bug is planted in this process.
#[inline(always)]
pub fn is_planted(mutation: Mutation) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    {
        PLANTED.get() == Some(&mutation)
    }
    #[cfg(not(any(test, feature = "simulation")))]
    {
        let _ = mutation;
        false
    }
}
