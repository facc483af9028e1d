//! Bugs that tests plant in this machine, to show that the simulation would find them.

/// A planted bug. Outside of tests none is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// A host whose part of a checkpoint has no copy yet is lost, and the checkpoint is committed all the same.
    LostPartCommitted,
    /// Pieces of a part are on its own host, beside its first one, though there are others.
    PiecesTogether,
    /// A checkpoint is committed when each part has as many pieces as give it back, and others are being sent.
    PiecesUnawaited,
    /// The archive's copy of a checkpoint counts when the first host has sent its part.
    ArchivedInPart,
    /// A checkpoint with which the job ends goes to the archive only if one is due.
    StopUnarchived,
    /// A checkpoint on its way to the archive may be built on another, which is not there.
    ArchivedWithoutChain,
    /// A checkpoint that is proven goes when a newer one is kept.
    ProvenNotPinned,
    /// A job whose replicas differ goes back to the newest checkpoint.
    NewestThoughDifferent,
    /// A host that was lost before all images were on disk is to copy its part.
    LostSourceAsked,
    /// An answer of the store is taken for the newest order of its kind.
    NumbersIgnored,
    /// Daemons of a new life count as holding their processes, since those of the one before did.
    HoldOutlivesLife,
    /// Standard input that is read while images are written counts as part of them.
    InputCountedLate,
    /// Input that was read in an earlier life counts as being on its way in the next.
    InputCountedTwice,
    /// Input that comes while rank 0 is stopped for an image is given at once.
    InputNotHeld,
    /// Answers to questions about other jobs go to processes of a later life.
    QuestionsOutliveLife,
    /// A name that is published already is published again.
    NamePublishedTwice,
    /// A spawned job that fails when it has been met, and before that was heard of, does not end this one.
    FailureBeforeMetForgotten,
    /// A job goes back to hosts that were lost.
    ReturnToLostHost,
    /// A return that cannot have a second host is chosen with the first one that it could not have.
    MissingHostForgotten,
    /// A host that cannot be had is left out under its number of the life that begins.
    MissingHostByNumber,
    /// A job goes back to a checkpoint since which standard input was forgotten.
    InputBetweenForgotten,
    /// The order to load processes is not noted in the times of a return.
    LoadingNotRecorded,
    /// A job whose output was lost ends as a success.
    LostOutputForgotten,
    /// All processes are launched on one host.
    SiblingsTogether,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Runs this with a planted bug.
#[cfg(test)]
pub(crate) fn with<T>(mutation: Mutation, run: impl FnOnce() -> T) -> T {
    PLANTED.set(Some(mutation));
    let outcome = run();
    PLANTED.set(None);
    outcome
}

/// True if this bug is planted.
pub(crate) fn is(mutation: Mutation) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(mutation);
    #[cfg(not(test))]
    {
        let _ = mutation;
        false
    }
}
