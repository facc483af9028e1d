//! Compares the memory of replicas at rest: rounds of questions, orders and digests of pages, and what follows from
//! them.
//!
//! ```text
//!   Resting ──interval──▶ Asking: how many collectives has each begun?
//!                            │ all have said
//!                            ▼
//!                         Comparing: every rank at a collective none of its replicas has begun ──▶ pages that differ
//! ```
//! An interval of time becomes a place in the program by this one decision, so that all replicas look at their memory
//! in the same state. Some may have passed the place when they hear of it: then nothing is compared there, and next
//! time it is farther ahead.
//!
//! A pass over all memory of a rank, in as many rounds as it takes, also says who need not be kin any more: what was
//! corrupt in a source when it was copied would show as pages on which it and its copies differ from the others
//! ([`Kinship::prove`]).
//!
//! Not all memory of replicas is the same. A page counts only after it was equal once; one that differs when it is
//! first seen is left out from then on. So what corrupts a page before that is not found here, nor what hits a page
//! that was left out.

use super::{Coordinator, Output, Report};
use redrt_types::{CutNumber, Kinship, ReplicaId, ReplicaIndex, ReplicaSet, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::scrub::{Answer, Order, Scrub, Stretch};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A round looks at so much memory of a process at most; the next goes on behind it.
const ROUND_BYTES_MAX: u64 = 1 << 30;
/// How far ahead the place is at most, in collectives.
const MARGIN_MAX: u64 = 1 << 20;
/// No collective.
const NONE: u64 = u64::MAX;

/// Pages by number, in groups of 64.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PageSet {
    groups: BTreeMap<u64, u64>,
    count: u64,
}

impl PageSet {
    fn place(page: u64) -> (u64, u64) {
        let number = page / redrt_wire::scrub::PAGE_BYTES;
        (number / 64, 1 << (number % 64))
    }

    fn contains(&self, page: u64) -> bool {
        let (group, bit) = Self::place(page);
        self.groups.get(&group).is_some_and(|bits| bits & bit != 0)
    }

    fn insert(&mut self, page: u64) {
        let (group, bit) = Self::place(page);
        let bits = self.groups.entry(group).or_default();
        self.count += u64::from(*bits & bit == 0);
        *bits |= bit;
    }
}

/// Memory of a rank that was equal in its replicas and is not any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The rank.
    pub rank: VirtualRank,
    /// At which collective of the main thread's.
    pub collective: u64,
    /// Addresses of the pages.
    pub pages: Vec<u64>,
    /// Replicas that a majority contradicts.
    pub outvoted: BTreeSet<ReplicaId>,
}

/// What was compared so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Comparisons of a rank's replicas.
    pub comparisons: u64,
    /// Pages compared in them, together.
    pub pages_compared: u64,
    /// Pages that were equal at least once.
    pub pages_watched: u64,
    /// Pages that are left out because they differ anyway.
    pub pages_excluded: u64,
    /// Pages that in the last comparison of each rank not all replicas had.
    pub pages_unmatched: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Rank {
    margin: u64,
    from: u64,
    equal: PageSet,
    excluded: PageSet,
    unmatched: u64,
    is_unfit: bool,
    is_done: bool,
    pass: Option<Pass>,
    /// The round of the last comparison.
    compared: Option<u64>,
    /// Who had something on a page that was equal before, and none but its kin had it. The page is left out from then
    /// on, so this is kept.
    alone: ReplicaSet,
}

/// What others of its rank say of the memory of a replica, since a round was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vouching {
    /// It is not compared yet.
    Open,
    /// Memory that was equal once is equal still, or a replica of another lineage has the same.
    Vouched,
    /// Of memory that was equal once, nobody but its kin has what it has.
    Alone,
    /// Its memory is not compared with anybody's.
    Impossible,
}

/// Rounds that together look at all memory of the same replicas.
#[derive(Debug, Serialize, Deserialize)]
struct Pass {
    /// The last cut before it.
    since: CutNumber,
    compared: ReplicaSet,
    /// Who was alike on a page on which not all were.
    sides: BTreeSet<ReplicaSet>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Phase {
    Resting,
    Asking(BTreeMap<ReplicaId, u64>),
    Comparing { orders: Vec<Order>, answers: BTreeMap<ReplicaId, Answer> },
}

/// What follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// All processes are to be told.
    Tell(Scrub),
    /// Memory differs.
    Differs(Difference),
    /// The memory of a rank cannot be compared, why; told once.
    Unfit(ReplicaId, String),
    /// All memory of a rank was compared.
    Compared {
        /// The rank.
        rank: VirtualRank,
        /// The last cut before.
        since: CutNumber,
        /// Whose memory.
        compared: ReplicaSet,
        /// Who was alike on a page on which not all were.
        sides: Vec<ReplicaSet>,
    },
    /// A round is over.
    Over(Coverage),
}

/// The state machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct ScrubWatch {
    interval: Duration,
    next: Duration,
    round: u64,
    phase: Phase,
    ranks: Vec<Rank>,
    comparisons: u64,
    pages_compared: u64,
    /// Another round is to follow this one at once.
    is_wanted: bool,
}

impl ScrubWatch {
    /// For a job with this number of ranks; a round begins every `interval`.
    pub fn new(interval: Duration, rank_count: u32) -> Self {
        let rank = || Rank {
            margin: 1,
            from: 0,
            equal: PageSet::default(),
            excluded: PageSet::default(),
            unmatched: 0,
            is_unfit: false,
            is_done: false,
            pass: None,
            compared: None,
            alone: ReplicaSet::EMPTY,
        };
        let ranks = (0..rank_count).map(|_| rank()).collect();
        Self {
            interval,
            next: interval,
            round: 0,
            phase: Phase::Resting,
            ranks,
            comparisons: 0,
            pages_compared: 0,
            is_wanted: false,
        }
    }

    /// When the next round is due.
    pub fn next_deadline(&self) -> Duration {
        self.next
    }

    /// Wants the memory of a rank compared soon; the number of the round that does it, or of the first that may.
    pub fn demand(&mut self, now: Duration, rank: VirtualRank) -> u64 {
        match self.phase {
            Phase::Resting => self.next = self.next.min(now),
            Phase::Comparing { .. } if self.ranks[rank.0 as usize].is_done => self.is_wanted = true,
            // This one will.
            Phase::Asking(_) | Phase::Comparing { .. } => return self.round,
        }
        self.round + 1
    }

    /// What others say of a replica's memory, in a round with this number or a later one.
    pub fn vouching(&self, replica: ReplicaId, round: u64) -> Vouching {
        let rank = &self.ranks[replica.rank.0 as usize];
        match rank.compared {
            _ if rank.is_unfit => Vouching::Impossible,
            None => Vouching::Open,
            Some(last) if last < round => Vouching::Open,
            Some(_) if rank.alone.contains(replica.index) => Vouching::Alone,
            Some(_) => Vouching::Vouched,
        }
    }

    /// What was compared so far.
    pub fn coverage(&self) -> Coverage {
        let sum = |count: fn(&Rank) -> u64| self.ranks.iter().map(count).sum();
        Coverage {
            comparisons: self.comparisons,
            pages_compared: self.pages_compared,
            pages_watched: sum(|rank| rank.equal.count),
            pages_excluded: sum(|rank| rank.excluded.count),
            pages_unmatched: sum(|rank| rank.unmatched),
        }
    }

    /// Begins a round if one is due. One that is not over is given up: a rank may be far from its next collective.
    /// `cut`: the last one.
    pub fn pass_time(&mut self, now: Duration, cut: CutNumber) -> Vec<Finding> {
        if now < self.next {
            return Vec::new();
        }
        for rank in self.ranks.iter_mut().filter(|rank| rank.from == 0) {
            rank.pass = Some(Pass { since: cut, compared: ReplicaSet::EMPTY, sides: BTreeSet::new() });
        }
        let mut findings = Vec::new();
        if let Phase::Comparing { .. } = self.phase {
            findings.push(Finding::Over(self.coverage()));
            // Farther ahead than the program comes in that time.
            self.ranks.iter_mut().filter(|rank| !rank.is_done).for_each(|rank| rank.margin = (rank.margin / 2).max(1));
        }
        self.next = now + self.interval;
        self.round += 1;
        self.phase = Phase::Asking(BTreeMap::new());
        findings.push(Finding::Tell(Scrub::Where { round: self.round }));
        findings
    }

    /// The membership changed: what was answered is void. `live`: of each rank.
    pub fn reset(&mut self, live: impl Fn(VirtualRank) -> ReplicaSet) {
        self.phase = Phase::Resting;
        for (number, rank) in (0..).zip(&mut self.ranks) {
            // The next pass begins with the first page.
            (rank.pass, rank.from) = (None, 0);
            rank.alone = rank.alone.intersection(live(VirtualRank(number)));
        }
    }

    /// Takes an answer. `live`: all replicas that take part; `kinship`: of the replica's rank.
    pub fn answered(
        &mut self,
        replica: ReplicaId,
        round: u64,
        answer: Answer,
        live: &BTreeSet<ReplicaId>,
        kinship: &Kinship,
    ) -> Vec<Finding> {
        if round != self.round || !live.contains(&replica) {
            return Vec::new();
        }
        match (&mut self.phase, answer) {
            (Phase::Asking(positions), Answer::Position(position)) => {
                positions.insert(replica, position);
                let positions = positions.clone();
                if !live.iter().all(|replica| positions.contains_key(replica)) {
                    return Vec::new();
                }
                let orders = self.orders(&positions);
                let tell = Finding::Tell(Scrub::Orders { round, orders: orders.clone() });
                self.phase = Phase::Comparing { orders, answers: BTreeMap::new() };
                vec![tell]
            }
            (Phase::Comparing { answers, .. }, answer) if !matches!(answer, Answer::Position(_)) => {
                answers.insert(replica, answer);
                self.judge(replica.rank, live, kinship)
            }
            _ => Vec::new(),
        }
    }

    /// For each rank with siblings a collective that none of them has begun.
    fn orders(&mut self, positions: &BTreeMap<ReplicaId, u64>) -> Vec<Order> {
        let one = |(number, rank): (usize, &mut Rank)| {
            let of_rank = positions.iter().filter(|(replica, _)| replica.rank.0 as usize == number);
            let has_siblings = of_rank.clone().count() > 1;
            let farthest = of_rank.map(|(_, position)| *position).max().unwrap_or(0);
            rank.is_done = !has_siblings || rank.is_unfit;
            let collective = if rank.is_done { NONE } else { farthest.saturating_add(rank.margin) };
            Order { collective, from: rank.from, bytes_max: ROUND_BYTES_MAX }
        };
        self.ranks.iter_mut().enumerate().map(one).collect()
    }

    /// Compares what the replicas of a rank have found, if all have.
    fn judge(&mut self, rank: VirtualRank, live: &BTreeSet<ReplicaId>, kinship: &Kinship) -> Vec<Finding> {
        let Phase::Comparing { orders, answers } = &mut self.phase else { return Vec::new() };
        let siblings: Vec<_> = live.iter().filter(|replica| replica.rank == rank).copied().collect();
        let number = rank.0 as usize;
        let state = &mut self.ranks[number];
        if state.is_done || orders[number].collective == NONE || !siblings.iter().all(|one| answers.contains_key(one)) {
            return Vec::new();
        }
        state.is_done = true;
        let found: Vec<_> = siblings.iter().filter_map(|one| Some((*one, answers.remove(one)?))).collect();
        let mut findings = Vec::new();
        if let Some((replica, why)) = found.iter().find_map(|(replica, answer)| match answer {
            Answer::Unfit(why) => Some((*replica, why.clone())),
            _ => None,
        }) {
            state.is_unfit = true;
            findings.push(Finding::Unfit(replica, why));
        } else if found.iter().any(|(_, answer)| matches!(answer, Answer::Late)) {
            state.margin = (state.margin * 4).min(MARGIN_MAX);
        } else if let Some(compared) = state.compare(rank, &found, kinship) {
            self.comparisons += 1;
            self.pages_compared += compared.page_count;
            state.compared = Some(self.round);
            state.alone = state.alone.union(compared.alone);
            findings.extend(compared.difference.map(Finding::Differs));
            let is_whole = state.from == 0;
            let pass = state.pass.take_if(|_| is_whole);
            findings.extend(pass.map(|Pass { since, compared, sides }| {
                let sides = sides.into_iter().collect();
                Finding::Compared { rank, since, compared, sides }
            }));
        }
        if self.ranks.iter().all(|rank| rank.is_done) {
            self.phase = Phase::Resting;
            if std::mem::take(&mut self.is_wanted) {
                self.next = Duration::ZERO;
            }
            findings.push(Finding::Over(self.coverage()));
        }
        findings
    }
}

struct Compared {
    page_count: u64,
    /// Who had something on a page that none but its kin had.
    alone: ReplicaSet,
    difference: Option<Difference>,
}

impl Rank {
    /// Nothing when they were not at the same place.
    fn compare(&mut self, rank: VirtualRank, found: &[(ReplicaId, Answer)], kinship: &Kinship) -> Option<Compared> {
        let mut collectives = BTreeSet::new();
        let mut nexts = BTreeSet::new();
        let mut memories: Vec<(ReplicaId, Vec<(u64, u64)>)> = Vec::new();
        for (replica, answer) in found {
            let Answer::Pages { collective, stretches, next } = answer else { return None };
            collectives.insert(*collective);
            nexts.insert(*next);
            let mut pages: Vec<_> = stretches.iter().flat_map(Stretch::pages).collect();
            // They come in this order, unless the process is corrupt.
            pages.sort_unstable();
            memories.push((*replica, pages));
        }
        let collective = *collectives.first().filter(|_| collectives.len() == 1)?;
        let all: ReplicaSet = memories.iter().map(|(replica, _)| replica.index).collect();
        if nexts.len() > 1 {
            // They have looked at different stretches: the pass begins anew.
            self.pass = None;
        }
        self.from = *nexts.first().filter(|_| nexts.len() == 1).unwrap_or(&0);
        let mut difference = Difference { rank, collective, pages: Vec::new(), outvoted: BTreeSet::new() };
        let (mut page_count, mut alone) = (0, ReplicaSet::EMPTY);
        self.unmatched = 0;
        self.pass.iter_mut().for_each(|pass| pass.compared = all);
        let mut at = vec![0; memories.len()];
        let first = |at: &[usize]| {
            memories.iter().zip(at).filter_map(|((_, pages), at)| pages.get(*at)).map(|(page, _)| *page).min()
        };
        while let Some(page) = first(&at) {
            let mut digests: Vec<(ReplicaIndex, u64)> = Vec::with_capacity(memories.len());
            for ((replica, pages), at) in memories.iter().zip(&mut at) {
                let here = pages[*at..].iter().take_while(|(other, _)| *other == page);
                let (count, last) = here.fold((0, None), |(count, _), (_, digest)| (count + 1, Some(*digest)));
                *at += count;
                digests.extend(last.map(|digest| (replica.index, digest)));
            }
            if digests.len() < memories.len() {
                self.unmatched += 1;
            } else if digests.iter().all(|(_, digest)| *digest == digests[0].1) {
                page_count += 1;
                self.equal.insert(page);
                continue;
            } else if !self.excluded.contains(page) {
                self.excluded.insert(page);
                if self.equal.contains(page) {
                    page_count += 1;
                    difference.pages.push(page);
                    let outvoted = outvoted(&digests, kinship);
                    difference.outvoted.extend(outvoted.map(|index| ReplicaId { rank, index }));
                    alone = alone.union(alone_among(&digests, kinship));
                }
            }
            if let Some(pass) = &mut self.pass {
                pass.note(all, &digests);
            }
        }
        let difference = Some(difference).filter(|difference| !difference.pages.is_empty());
        Some(Compared { page_count, alone, difference })
    }
}

/// Whether a process tells of no more memory than a round looks at.
pub(super) fn is_plausible(answer: &Answer) -> bool {
    let Answer::Pages { stretches, .. } = answer else { return true };
    let pages: usize = stretches.iter().map(|stretch| stretch.digests.len()).sum();
    pages as u64 <= ROUND_BYTES_MAX / redrt_wire::scrub::PAGE_BYTES
}

impl Pass {
    /// These are the digests of a page on which not all are alike; who has none does not have it.
    fn note(&mut self, all: ReplicaSet, digests: &[(ReplicaIndex, u64)]) {
        let side = |like: &dyn Fn(u64) -> bool| -> ReplicaSet {
            digests.iter().filter(|(_, digest)| like(*digest)).map(|(index, _)| *index).collect()
        };
        let others = all.without(side(&|_| true));
        let sides = digests.iter().map(|(_, one)| side(&|digest| digest == *one)).chain([others]);
        self.sides.extend(sides.filter(|side| !side.is_empty() && *side != all));
    }
}

/// Those that the majority contradicts. A copy and its source count once: what differs may be what was copied.
fn outvoted<'a>(digests: &'a [(ReplicaIndex, u64)], kinship: &Kinship) -> impl Iterator<Item = ReplicaIndex> + use<'a> {
    let agreed = sdc_detect::agreed(digests, kinship).copied();
    digests.iter().filter(move |(_, digest)| agreed.is_some_and(|agreed| *digest != agreed)).map(|(index, _)| *index)
}

/// Those with whom none agrees that is not kin.
fn alone_among(digests: &[(ReplicaIndex, u64)], kinship: &Kinship) -> ReplicaSet {
    let has_witness = |index: ReplicaIndex, digest: u64| {
        let alike: ReplicaSet = digests.iter().filter(|(_, other)| *other == digest).map(|(other, _)| *other).collect();
        alike.len() > kinship.relatives(index, alike)
    };
    digests.iter().filter(|(index, digest)| !has_witness(*index, *digest)).map(|(index, _)| *index).collect()
}

impl Coordinator {
    /// Who takes part in a round.
    fn scrubbed_replicas(&self) -> BTreeSet<ReplicaId> {
        let process = |replica: &ReplicaId| &self.processes[self.world().process(*replica).0 as usize];
        let world = self.world();
        world.replicas().filter(|replica| self.view.is_live(*replica) && process(replica).counts()).collect()
    }

    pub(super) fn pass_scrub_time(&mut self, now: Duration) {
        if self.is_under_way() {
            let cut = CutNumber(self.recovery.as_ref().map_or(0, |recovery| recovery.cut_count));
            let findings = self.scrub.as_mut().map(|scrub| scrub.pass_time(now, cut));
            findings.into_iter().flatten().for_each(|finding| self.act_on_scrub(finding));
        }
    }

    pub(super) fn scrubbed(&mut self, now: Duration, replica: ReplicaId, round: u64, answer: Answer) {
        let live = self.scrubbed_replicas();
        let findings = self
            .scrub
            .as_mut()
            .map(|scrub| scrub.answered(replica, round, answer, &live, self.view.kinship(replica.rank)));
        findings.into_iter().flatten().for_each(|finding| self.act_on_scrub(finding));
        self.heed_vouching(now);
    }

    /// The membership changed.
    pub(super) fn interrupt_scrub(&mut self) {
        if let Some(scrub) = &mut self.scrub {
            scrub.reset(|rank| self.view.live_set(rank));
        }
    }

    /// The program ends.
    pub(super) fn end_scrub(&mut self) {
        if let Some(scrub) = self.scrub.take() {
            self.report(Report::ScrubEnded(scrub.coverage()));
        }
    }

    /// Who was compared need not be kin any more.
    fn note_proof(&mut self, rank: VirtualRank, compared: ReplicaSet, sides: &[ReplicaSet], since: CutNumber) {
        if sides.is_empty() {
            self.doubts.settle(rank);
        }
        let next = self.view.with_proof(rank, compared, sides, since);
        if next.kinship(rank) != self.view.kinship(rank) {
            self.view = next;
            self.send(ToDaemon::View(self.view.clone()));
            self.outputs.push_back(Output::Kinship(rank, self.view.kinship(rank).clone()));
        }
    }

    fn act_on_scrub(&mut self, finding: Finding) {
        match finding {
            Finding::Tell(message) => self.send(ToDaemon::Scrub(message)),
            Finding::Unfit(replica, why) => self.report(Report::ScrubUnfit { replica, why }),
            Finding::Compared { rank, since, compared, sides } => self.note_proof(rank, compared, &sides, since),
            Finding::Over(coverage) => self.report(Report::Scrubbed(coverage)),
            // Not acted on: memory that was equal once may differ in sound replicas, too, as nobody orders what is done
            // to it. What is corrupt there is outvoted when a message carries it.
            Finding::Differs(difference) => self.report(Report::MemoryDiffers(difference)),
        }
    }
}

#[cfg(test)]
mod tests;
