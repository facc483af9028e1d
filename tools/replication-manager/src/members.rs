//! The processes of the job: its membership, the hosts, and the latest known state of each process.
//!
//! The other machines read all of it. It changes only by the methods here, which the replication manager calls for
//! inputs and for what the machines decide.

use super::process::{Phase, Process};
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, ReplicaSet, View, VirtualRank, World};
use redrt_wire::card::Card;
use redrt_wire::event::{Coverage, Statistics};
use redrt_wire::exit::Exit;
use redrt_wire::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

/// A copy that takes its place.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    pub admission: Admission,
    pub card: Option<Card>,
    /// Its process id on its host.
    pub pid: Option<i32>,
    /// It is a copy of a program that a script had started.
    pub lacks_script: bool,
}

/// The processes of the job; see the module.
#[derive(Debug, Serialize, Deserialize)]
pub struct Members {
    world: World,
    /// Number of replicas that each rank started with, by rank.
    first_degrees: Vec<u16>,
    view: View,
    processes: Vec<Process>,
    /// Host numbers, by process. Empty before the launch.
    host_of: Vec<u32>,
    /// Number of replicas wanted, by rank.
    degrees: Vec<u16>,
}

impl Members {
    /// Processes that are about to be launched: those of `first`.
    pub(super) fn new(world: World, first: View) -> Self {
        // In a job that goes on from a checkpoint, a free place may have had a process before. Its number must not be
        // reused.
        let lives = world.replicas().filter_map(|replica| first.member(replica));
        let latest = lives.map(|member| member.incarnation).max().unwrap_or_default();
        let process = |replica| match first.member(replica) {
            Some(member) => Process { incarnation: member.incarnation, ..Process::new() },
            None => Process::vacant(latest),
        };
        let processes = world.replicas().map(process).collect();
        let degrees = first.degrees();
        Self { world, first_degrees: degrees.clone(), view: first, processes, host_of: Vec::new(), degrees }
    }

    /// The shape of the job, with all places of its ranks.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The latest view of the job.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Number of replicas that each rank started with, by rank.
    #[must_use]
    pub fn first_degrees(&self) -> &[u16] {
        &self.first_degrees
    }

    /// Number of replicas that a rank is to have.
    #[must_use]
    pub fn degree(&self, rank: VirtualRank) -> u16 {
        self.degrees[rank.0 as usize]
    }

    /// All ranks, in order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = VirtualRank> + use<> {
        (0..self.world.rank_count()).map(VirtualRank)
    }

    /// The process in a place, or the last one there.
    pub(super) fn of(&self, replica: ReplicaId) -> &Process {
        &self.processes[self.world.process(replica).0 as usize]
    }

    /// All places, with their processes.
    pub(super) fn all(&self) -> impl Iterator<Item = (ReplicaId, &Process)> {
        self.world.replicas().zip(&self.processes)
    }

    /// The processes in the view.
    pub(super) fn live(&self) -> impl Iterator<Item = (ReplicaId, &Process)> {
        self.all().filter(|(replica, _)| self.view.is_live(*replica))
    }

    /// Returns true if the messages and votes of this process count.
    pub(super) fn counts(&self, replica: ReplicaId) -> bool {
        self.of(replica).counts()
    }

    /// Returns true if a replica has all decisions of its sphere. A copy that has not caught up with its leader lacks
    /// some, and cannot go on alone.
    pub(super) fn is_in_step(&self, replica: ReplicaId) -> bool {
        !self.of(replica).joins
    }

    /// Number of copies that are in the view and not in step yet.
    pub(super) fn joining_count(&self) -> usize {
        self.processes.iter().filter(|process| process.joins).count()
    }

    /// The live replicas of a rank that are in step, each able to go on alone.
    pub(super) fn in_step(&self, rank: VirtualRank) -> impl Iterator<Item = ReplicaId> {
        self.view.live(rank).filter(|replica| self.is_in_step(*replica))
    }

    /// Number of live replicas of a rank that are in step, each able to go on alone.
    #[must_use]
    pub fn in_step_count(&self, rank: VirtualRank) -> usize {
        self.in_step(rank).count()
    }

    /// A place with the number of its present life, by which lives are told apart. None without a live process.
    pub(super) fn life(&self, replica: ReplicaId) -> Option<(ReplicaId, Incarnation)> {
        self.view.member(replica).map(|member| (replica, member.incarnation))
    }

    /// Number of the host that a replica is on. None before the launch.
    pub(super) fn host_of(&self, replica: ReplicaId) -> Option<u32> {
        self.host_of.get(self.world.process(replica).0 as usize).copied()
    }

    /// The live replicas that are not being ended.
    pub(super) fn counting(&self) -> impl Iterator<Item = ReplicaId> {
        self.live().filter(|(_, process)| process.counts()).map(|(replica, _)| replica)
    }

    /// The replicas whose pace is compared: live, in step and not being ended.
    pub(super) fn paced(&self) -> Vec<ReplicaId> {
        let is_paced = |process: &Process| !process.joins && process.counts();
        self.live().filter(|(_, process)| is_paced(process)).map(|(replica, _)| replica).collect()
    }

    /// Number of replicas besides this one with which its rank can go on, where those that share an unproven image
    /// count once.
    pub(super) fn others_fit(&self, replica: ReplicaId) -> usize {
        let is_fit = |other: &ReplicaId| *other != replica && self.is_plane_whole(*other);
        let fit: ReplicaSet = self.in_step(replica.rank).filter(is_fit).map(|other| other.index).collect();
        let counting = fit.union(ReplicaSet::only(replica.index));
        self.view.kinship(replica.rank).weight(fit, counting)
    }

    /// The replicas on a host that are live and not being ended.
    pub(super) fn live_on(&self, host: u32) -> Vec<ReplicaId> {
        let is_there =
            |(replica, process): &(ReplicaId, &Process)| self.host_of(*replica) == Some(host) && process.counts();
        self.live().filter(is_there).map(|(replica, _)| replica).collect()
    }

    /// Returns true if all live processes can be reached.
    pub(super) fn all_have_cards(&self) -> bool {
        self.live().all(|(_, process)| process.card.is_some())
    }

    /// The cards of the live processes, by which others connect.
    pub(super) fn cards(&self) -> Vec<Card> {
        self.live().filter_map(|(_, process)| process.card.clone()).collect()
    }

    /// Returns true if all live processes are in `MPI_Finalize`, as of the latest view.
    pub(super) fn all_finalize(&self) -> bool {
        self.live().all(|(_, process)| process.phase == Phase::Finalizing(self.view.number))
    }

    /// Returns true if all processes have ended and all they printed has arrived.
    pub(super) fn all_are_gone(&self) -> bool {
        self.processes.iter().all(Process::is_gone)
    }

    /// Returns true for a copy that lacks the script which started its program, if a sibling has the script. The
    /// sibling's exit counts then.
    pub(super) fn ends_before_script(&self, replica: ReplicaId) -> bool {
        let has_script = |process: &Process| !process.lacks_script && !process.lost && !process.is_vacant;
        self.of(replica).lacks_script && self.world.sphere(replica.rank).any(|other| has_script(self.of(other)))
    }
}

/// Changes.
impl Members {
    /// The process in a place, for what an input says about it alone.
    pub(super) fn process(&mut self, replica: ReplicaId) -> &mut Process {
        &mut self.processes[self.world.process(replica).0 as usize]
    }

    /// The processes are about to be launched on these hosts.
    pub(super) fn launch(&mut self, host_of: Vec<u32>) {
        self.host_of = host_of;
    }

    /// Changes the number of replicas that a rank is to have.
    pub(super) fn want(&mut self, rank: VirtualRank, degree: u16) {
        self.degrees[rank.0 as usize] = degree;
    }

    /// Records an exit. Returns false if the process had ended before. With `was_killed`, its exit says nothing.
    pub(super) fn exited(&mut self, replica: ReplicaId, exit: Exit, was_killed: bool) -> bool {
        let process = self.process(replica);
        let is_first = process.exit.is_none();
        if is_first {
            (process.exit, process.killed_at_end) = (Some(exit), was_killed);
        }
        is_first
    }

    /// The daemon of these processes is gone. Returns those that had not ended before.
    pub(super) fn daemon_lost(&mut self, replicas: &[ReplicaId], exit: Exit) -> Vec<ReplicaId> {
        replicas.iter().for_each(|replica| self.process(*replica).drained = true);
        replicas.iter().copied().filter(|replica| self.exited(*replica, exit, false)).collect()
    }

    /// Nothing more is heard of any process.
    pub(super) fn all_lost(&mut self, exit: Exit) {
        for process in self.processes.iter_mut().filter(|process| !process.is_vacant) {
            process.exit.get_or_insert(exit);
            process.drained = true;
        }
    }

    /// Marks replicas as lost. They remain in the view until [`Members::remove`].
    pub(super) fn lose(&mut self, replicas: &[ReplicaId]) {
        for replica in replicas {
            let process = self.process(*replica);
            (process.lost, process.joins) = (true, false);
        }
    }

    /// Makes a view without these replicas.
    pub(super) fn remove(&mut self, replicas: &[ReplicaId]) {
        self.view = self.view.without(replicas);
    }

    /// Frees the place of a replica that was not needed any more, once it is gone. Returns true if it is free now.
    pub(super) fn vacate(&mut self, replica: ReplicaId) -> bool {
        let process = self.process(replica);
        let is_free = process.leaves && process.lost && process.is_gone();
        if is_free {
            *process = Process::vacant(process.incarnation);
        }
        is_free
    }

    /// A copy is begun that is to fill a place, on this host.
    pub(super) fn begin_life(&mut self, replica: ReplicaId, host: u32) {
        let at = self.world.process(replica).0 as usize;
        self.processes[at].incarnation.0 += 1;
        self.host_of[at] = host;
    }

    /// Gives copies their places, all in one view. All copies must have the same purpose.
    pub(super) fn admit(&mut self, copies: Vec<Admitted>, are_to_judge: bool) {
        let admissions: Vec<_> = copies.iter().map(|copy| copy.admission).collect();
        for Admitted { admission, card, pid, lacks_script } in copies {
            let (incarnation, phase) = (admission.incarnation, Phase::Ready);
            *self.process(admission.replica) =
                Process { phase, card, pid, incarnation, lacks_script, joins: true, ..Process::new() };
        }
        self.view = match admissions[..] {
            [copy] if !are_to_judge => self.view.with(copy),
            _ => self.view.with_arbiters(&admissions),
        };
    }

    /// No copy has to catch up any more, because the job ends.
    pub(super) fn end_joining(&mut self) {
        self.processes.iter_mut().for_each(|process| process.joins = false);
    }

    /// Records a complete comparison of a rank's memory. Returns true if fewer of its replicas count as kin.
    pub(super) fn prove(
        &mut self,
        rank: VirtualRank,
        compared: ReplicaSet,
        sides: &[ReplicaSet],
        since: CutNumber,
    ) -> bool {
        let next = self.view.with_proof(rank, compared, sides, since);
        let is_news = next.kinship(rank) != self.view.kinship(rank);
        if is_news {
            self.view = next;
        }
        is_news
    }
}

/// For status pages, metrics and reports.
impl Members {
    /// The incarnation of the process in a place, or of the last one there.
    #[must_use]
    pub fn incarnation(&self, replica: ReplicaId) -> Incarnation {
        self.of(replica).incarnation
    }

    /// The process id on its host. None before the process was started.
    #[must_use]
    pub fn pid(&self, replica: ReplicaId) -> Option<i32> {
        self.of(replica).pid
    }

    /// The counters of a process, as of its latest answer to a wave.
    #[must_use]
    pub fn latest(&self, replica: ReplicaId) -> Statistics {
        self.of(replica).latest
    }

    /// Returns true if a process has called `MPI_Init`.
    #[must_use]
    pub fn has_begun(&self, replica: ReplicaId) -> bool {
        self.of(replica).phase != Phase::Started
    }

    /// The final counters of each process. None for those that did not come to `MPI_Finalize`.
    pub fn statistics(&self) -> impl Iterator<Item = (ReplicaId, Option<Statistics>)> + '_ {
        self.present().map(|(replica, process)| (replica, process.statistics))
    }

    /// The comparisons that a process made, by communicator. Empty before `MPI_Finalize`.
    #[must_use]
    pub fn coverage(&self, replica: ReplicaId) -> &[Coverage] {
        &self.of(replica).coverage
    }

    /// The profiles of the processes that sent one in `MPI_Finalize`, which they do only if profiling is on.
    pub fn profiles(&self) -> impl Iterator<Item = (ReplicaId, &ProcessProfile)> + '_ {
        self.all().filter_map(|(replica, process)| Some((replica, process.profile.as_deref()?)))
    }

    /// The state of each process in one or two words, in order of process number.
    pub fn states(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.processes.iter().map(Process::state)
    }

    /// The exit of each process, and true if it was counted as lost.
    pub fn exits(&self) -> impl Iterator<Item = (ReplicaId, Option<Exit>, bool)> + '_ {
        self.present().map(|(replica, process)| (replica, process.exit, process.lost))
    }

    fn present(&self) -> impl Iterator<Item = (ReplicaId, &Process)> {
        self.all().filter(|(_, process)| !process.is_vacant)
    }

    /// Greater than every incarnation that any place has had.
    pub(super) fn next_life(&self) -> Incarnation {
        Incarnation(self.processes.iter().map(|process| process.incarnation.0).max().unwrap_or(0) + 1)
    }
}
