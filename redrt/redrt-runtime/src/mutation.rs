//! Bugs that simulations plant, to show that they would be found. They cannot be planted in the library that programs
//! load.

/// A bug of the library that simulations can plant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(any(test, feature = "simulation")), allow(dead_code))]
pub enum Mutation {
    /// A barrier leaves out its last round.
    BarrierShort,
    /// A member of the tree of a broadcast forwards without waiting for its parent's data.
    BroadcastEarly,
    /// A reduction leaves out the last child of a member.
    ReduceChildLost,
    /// A scan combines with one member too few.
    ScanShort,
    /// An allgather stores the first piece that it receives in its own piece's place.
    GatherMisplaced,
    /// An alltoall waits for its receives, but not for its sends.
    AlltoallUnawaited,
    /// Nonblocking collectives have one context and one tag.
    NonblockingMixed,
    /// A duplicate has its parent's context.
    ContextShared,
    /// A freed communicator's number is reused before all members have freed it.
    ContextReusedEarly,
    /// A fence does not wait for the operations of others.
    FenceUncounted,
    /// Exclusive locks are given while others have the lock.
    LockIgnored,
    /// An accumulate replaces the target's elements instead of combining them.
    AccumulateReplaces,
    /// An access epoch of groups begins before its targets have posted.
    PostIgnored,
    /// A follower takes the request that completed first here, not the one that completed first at its leader.
    FirstByItself,
    /// A follower tests by itself.
    TestByItself,
    /// A follower probes by itself.
    ProbeByItself,
    /// A receive is cancelled without asking siblings.
    CancelByItself,
    /// A checkpoint is cut while messages without numbers are in flight.
    CheckpointUnquiet,
    /// A checkpoint has any replica of a rank, instead of the one that has made the rank's changes outside.
    CheckpointOfFollowers,
    /// Siblings of saved processes are not told to begin new records of changes.
    SiblingsUnsent,
    /// Messages that a daemon sends together with the one to go on are lost.
    ReadTogetherLost,
    /// A process that goes on from a checkpoint does not report again that it is in `MPI_Finalize`.
    FinalizingOnce,
    /// A job that goes back to a checkpoint does not send its view again.
    ViewUnsaid,
    /// A process that has asked for a checkpoint, and goes on from it, assumes that it was not taken.
    CheckpointUnsent,
    /// Each replica asks for a checkpoint by itself.
    CheckpointByItself,
    /// Each replica raises a signal by itself, at its next call.
    SignalByItself,
    /// A follower that has reported its place goes on before the call of a signal is decided.
    SignalUnwaited,
    /// A process does not check if hosts answer.
    SilenceUnheard,
}

#[cfg(any(test, feature = "simulation"))]
simulation_kit::named! {
    Mutation:
    BarrierShort,
    BroadcastEarly,
    ReduceChildLost,
    ScanShort,
    GatherMisplaced,
    AlltoallUnawaited,
    NonblockingMixed,
    ContextShared,
    ContextReusedEarly,
    FenceUncounted,
    LockIgnored,
    AccumulateReplaces,
    PostIgnored,
    FirstByItself,
    TestByItself,
    ProbeByItself,
    CancelByItself,
    CheckpointUnquiet,
    CheckpointOfFollowers,
    SiblingsUnsent,
    ReadTogetherLost,
    FinalizingOnce,
    ViewUnsaid,
    CheckpointUnsent,
    CheckpointByItself,
    SignalByItself,
    SignalUnwaited,
    SilenceUnheard,
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
