//! Keeps every rank at its degree. Missing replicas are made good by copies of living ones, and a replica that is to
//! leave does so when another has its part.
//!
//! ```text
//!  missing ──a place is granted──▶ opening ──▶ copying ──▶ ready ──▶ pinning ──▶ cutting ──▶ joining ──▶ in step
//!    ▲                                │           │          └ waits until no other clone is in these two
//!    └───── after a rest ─────────────┴── its source or host is lost, something failed
//! ```
//! One rule drives all of it ([`filling`]): a rank's replicas that stay, and the copies under way, are to be as many as
//! its degree. A loss, a greater degree, and a replica that is told to leave each make one missing. A replica that is
//! to leave goes when enough others are in step ([`leaving`]), so redundancy never suffers from a move.
//!
//! Only one clone at a time is between *pinning* and the view with its copy. The trap: a process that is copied then
//! would have an image from before it was asked to pin for the other clone, and would keep nothing for it.
//!
//! A view with the copy is made only while its source is live. Otherwise the source's siblings may have gone on without
//! decisions that the copy alone has (`quiesce`'s join).
//!
//! [`Copies`] passes what is decided from one machine to the next:
//!
//! | machine | decides |
//! |---|---|
//! | [`Hosts`] | which hosts may get copies |
//! | [`Needs`] | which places are to be filled, and on which hosts |
//! | [`Clones`] | the course of each clone, with its pins and its proof |
//! | [`Moves`] | which replicas are to leave |
//! | [`Holding`], [`Cases`] | which copies stand ready to judge, and which do |

mod arbitration;
mod attempt;
mod clones;
mod filling;
mod holding;
mod hosts;
mod judging;
mod leaving;
mod making;
mod missing;
mod moves;
mod proof;
mod request;
mod sources;

pub(super) use arbitration::judges;
pub(super) use clones::Clones;
pub use judging::{Arbiter, Arbitration};
pub use proof::Unproven;
pub use request::{ChangeRequest, ChangeRequestError};

use crate::effect::Effects;
use crate::facts::Facts;
use crate::scrub::ScrubWatch;
use holding::Holding;
use hosts::Hosts;
use judging::Cases;
use missing::Needs;
use moves::Moves;
use redrt_types::ReplicaId;
use redrt_wire::clone::Cost;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The purpose of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// It replaces a lost replica.
    Loss,
    /// It takes the part of a replica that is to leave.
    Move,
    /// Its rank is to have more replicas.
    Growth,
    /// It stands ready to judge if its siblings differ.
    Arbitration,
}

/// The making of one copy, for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// The place that the copy fills.
    pub replica: ReplicaId,
    /// The replica that was copied.
    pub source: ReplicaId,
    /// The purpose of the copy.
    pub purpose: Purpose,
    /// Time from the loss, or the request, until the copy was in step. After a loss this is the vulnerability window.
    pub window: Duration,
    /// Part of `window` before a clone was begun.
    pub waited: Duration,
    /// Part of `window` from then until the source could be stopped.
    pub copied: Duration,
    /// The cost of the clone. None if its source or the job ended before its daemon reported it.
    pub cost: Option<Cost>,
}

/// The means to replace the lost replicas of a job.
#[derive(Clone, Debug)]
pub struct Recovery {
    hosts: Vec<String>,
    /// Number of replicas wanted, by rank.
    pub(super) degrees: Vec<u16>,
    /// Host numbers, by process.
    pub(super) host_of: Vec<u32>,
    clone_count_max: usize,
    /// Interval of renewing the copies that arbitrate. None without them.
    arbitration_interval: Option<Duration>,
}

impl Recovery {
    /// A job on these hosts. `degrees` are by rank, `host_of` is by process, and `clone_count_max` bounds the clones at
    /// a time.
    #[must_use]
    pub fn new(hosts: Vec<String>, degrees: Vec<u16>, host_of: Vec<u32>, clone_count_max: usize) -> Self {
        Self { hosts, degrees, host_of, clone_count_max, arbitration_interval: None }
    }

    /// Keeps a copy of both replicas of each rank with two, to judge when the two differ. Copies are renewed after
    /// `interval`.
    #[must_use]
    pub fn arbitrating(self, interval: Duration) -> Self {
        Self { arbitration_interval: Some(interval), ..self }
    }
}

/// The plans for a job's replicas, for machines that decide by those of others.
#[derive(Clone, Copy)]
struct Plans<'a> {
    needs: &'a Needs,
    clones: &'a Clones,
    moves: &'a Moves,
}

/// A part of what is due. The consequences of each part are carried out before the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Clones that wait for too long, and disputes that are over.
    Disputes,
    /// Replicas that are to leave.
    Departures,
    /// Copies that are to be made.
    Copies,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; 3] = [Self::Disputes, Self::Departures, Self::Copies];
}

/// Keeps every rank at its degree; see the module for the rule and the machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Copies {
    hosts: Hosts,
    needs: Needs,
    clones: Clones,
    moves: Moves,
    /// None without `redrun --arbitrate`.
    holding: Option<Holding>,
    cases: Cases,
    /// Number of the next request for a place, or of the next clone.
    next_number: u64,
    clone_count_max: usize,
    /// The user was told that ranks which share memory are not copied.
    was_told_of_planes: bool,
}

impl Copies {
    /// A job in which `cut_count` cuts were made before.
    pub(super) fn new(recovery: Recovery, cut_count: u64) -> Self {
        let Recovery { hosts, clone_count_max, arbitration_interval, .. } = recovery;
        Self {
            hosts: Hosts::new(hosts),
            needs: Needs::default(),
            clones: Clones::new(cut_count),
            moves: Moves::default(),
            holding: arbitration_interval.map(Holding::new),
            cases: Cases::default(),
            next_number: 0,
            clone_count_max,
            was_told_of_planes: false,
        }
    }

    /// The clones under way.
    pub(super) fn clones(&self) -> &Clones {
        &self.clones
    }

    /// The replicas that are to leave, each with the number of its new host. None if any host will do.
    pub(super) fn leaving(&self) -> impl Iterator<Item = (ReplicaId, Option<u32>)> {
        self.moves.all()
    }

    /// The hosts of the job.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The hosts of the job, which come and go whatever is planned.
    pub(super) fn hosts_mut(&mut self) -> &mut Hosts {
        &mut self.hosts
    }

    /// Drops all plans and clones, because the job ends or all its processes finalize.
    pub(super) fn end(&mut self, facts: Facts<'_>, out: &mut Effects) {
        self.moves.clear();
        self.holding = None;
        self.cases.clear();
        self.needs.clear(out);
        for id in self.clones.all().map(|(id, _)| id).collect::<Vec<_>>() {
            self.clones.withdraw(facts, id, None, out);
        }
        self.clones.report_recovered(|_| true, out);
    }

    /// Does a part of all that is due by now. Copies are not begun unless they `may_begin`.
    pub(super) fn pass_time(
        &mut self,
        facts: Facts<'_>,
        scrub: Option<&ScrubWatch>,
        part: Part,
        may_begin: bool,
        out: &mut Effects,
    ) {
        match part {
            Part::Disputes => {
                self.give_up_late_pins(facts, out);
                self.follow_vouching(facts, scrub, out);
                self.conclude_cases(facts, out);
            }
            Part::Departures => self.let_leave(facts, out),
            Part::Copies => {
                self.hold_copies(facts, out);
                self.report_planes(facts, out);
                if may_begin {
                    self.fill_places(facts, out);
                }
            }
        }
    }

    fn plans(&self) -> Plans<'_> {
        Plans { needs: &self.needs, clones: &self.clones, moves: &self.moves }
    }
}
