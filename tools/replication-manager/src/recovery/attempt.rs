//! One attempt to make a copy, from its first order until the copy is in step.

use super::missing::Missing;
use super::{Purpose, Recovered};
use redrt_types::{CutNumber, ReplicaId};
use redrt_wire::card::Card;
use redrt_wire::clone::{Cost, Newcomer, Position};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum time for all processes to confirm that they keep messages for the copy. They confirm at once, unless one was
/// stopped. The source is not kept ready for such a one for ever.
pub(super) const PIN_TIME_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Stage {
    Opening,
    Copying,
    Ready,
    Pinning {
        missing: BTreeSet<ReplicaId>,
        since: Duration,
    },
    Cutting,
    /// The copy stands ready to judge.
    Held,
    Joining,
}

/// Evidence of other replicas for the memory that is to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Proof {
    /// No comparison was asked for yet.
    Unasked,
    /// The answer comes with this round of comparisons or a later one. The clone goes on without it at `until`.
    Asked { round: u64, until: Duration },
    /// All is known that can be known.
    Settled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub newcomer: Newcomer,
    /// The need that the copy fills. Its request for a place is that of this attempt.
    pub missing: Missing,
    /// Number of the host of the copy, followed by that of its place.
    pub host: u32,
    pub number: u64,
    /// Number of the source's host.
    pub source_host: u32,
    pub stage: Stage,
    pub proof: Proof,
    /// Number of its cut among all cuts. Zero before the cut.
    pub cut: CutNumber,
    pub begun_at: Duration,
    pub ready_at: Duration,
    /// Time at which the source was stopped.
    pub stopped_at: Duration,
    pub position: Option<Position>,
    /// Process id of the copy, once it runs.
    pub pid: Option<i32>,
    pub card: Option<Card>,
    pub cost: Option<Cost>,
    /// True if the source's host will not report the cost any more.
    pub source_has_ended: bool,
}

/// A copy in step that is reported when its cost is known. The daemon of `source_host` knows it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Unreported {
    pub recovered: Recovered,
    pub source_host: u32,
}

impl Attempt {
    pub fn new(
        newcomer: Newcomer,
        missing: Missing,
        (host, number): (u32, u64),
        source_host: u32,
        now: Duration,
    ) -> Self {
        Self {
            newcomer,
            missing,
            host,
            number,
            source_host,
            stage: Stage::Opening,
            proof: Proof::Unasked,
            cut: CutNumber(0),
            begun_at: now,
            ready_at: now,
            stopped_at: now,
            position: None,
            pid: None,
            card: None,
            cost: None,
            source_has_ended: false,
        }
    }

    /// Returns true if all processes must keep messages that the copy may ask for.
    pub fn is_awaited(&self) -> bool {
        matches!(self.stage, Stage::Pinning { .. } | Stage::Cutting | Stage::Held | Stage::Joining)
    }

    /// Returns true if the source is about to be stopped, or was, and the copy is not in the view yet.
    pub fn is_cutting(&self) -> bool {
        matches!(self.stage, Stage::Pinning { .. } | Stage::Cutting)
    }

    /// Returns true if the copy is being made, which keeps its source and its host busy.
    pub fn is_at_work(&self) -> bool {
        self.stage != Stage::Held
    }

    /// Returns true if the copy is in the view, and not in step yet.
    pub fn is_joining(&self) -> bool {
        self.stage == Stage::Joining
    }

    /// Returns true if the copy is to judge, and has not joined.
    pub fn is_to_judge(&self) -> bool {
        self.is_for_judging() && !self.is_joining()
    }

    /// Returns true if the copy was made to judge.
    pub fn is_for_judging(&self) -> bool {
        self.missing.purpose == Purpose::Arbitration
    }

    /// Returns true if the copy runs and can be reached.
    pub fn is_complete(&self) -> bool {
        self.position.is_some() && self.card.is_some() && self.pid.is_some()
    }

    /// The copy, for the user, as of the time when it is in step.
    pub fn recovered(&self, now: Duration) -> Recovered {
        let since = self.missing.since;
        Recovered {
            replica: self.newcomer.replica,
            source: self.newcomer.source,
            purpose: self.missing.purpose,
            window: now.saturating_sub(since),
            waited: self.begun_at.saturating_sub(since),
            copied: self.ready_at.saturating_sub(self.begun_at),
            cost: self.cost,
        }
    }
}
