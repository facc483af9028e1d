//! Compares the memory of replicas at rest, in rounds of questions, orders and digests of pages.
//!
//! ```text
//!   Resting ──interval──▶ Asking: how many collectives has each begun?
//!                            │ all have said
//!                            ▼
//!                         Comparing: every rank at a collective none of its replicas has begun ──▶ pages that differ
//! ```
//! The orders turn an interval of time into a place in the program, so that all replicas look at their memory in the
//! same state. A replica may have passed the place before its order arrives. Nothing is compared there then, and the
//! next place is chosen farther ahead.
//!
//! A pass covers all memory of a rank, in as many rounds as it takes. It also shows which replicas need not count as
//! kin any more: corruption that a source had at its cut would appear as pages on which it and its copies differ from
//! the others ([`Kinship::prove`]).
//!
//! Some memory differs between sound replicas. So a page counts only after it was equal once, and a page that differs
//! when it is first compared is left out for good. The price: corruption before that, and in pages that are left out,
//! is not found.

use redrt_types::{CutNumber, Kinship, ReplicaId, ReplicaIndex, ReplicaSet, VirtualRank};
use redrt_wire::scrub::{Answer, Order, Page, Scrub, Stretch};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum bytes of a process that a round covers. The next round continues behind them.
pub const ROUND_BYTES_MAX: u64 = 1 << 30;
/// Time after which a round that was asked for is given up.
const ASKED_ROUND_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum distance of the place ahead, in collectives.
const MARGIN_MAX: u64 = 1 << 20;
/// Stands for no collective: the rank is not compared in this round.
const NONE: u64 = u64::MAX;

/// A set of pages, as bits in groups of 64.
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

/// Memory of a rank that was equal in its replicas, and differs now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The rank that differs.
    pub rank: VirtualRank,
    /// Number of the main thread's collective at which it was compared.
    pub collective: u64,
    /// Addresses of the pages.
    pub pages: Vec<u64>,
    /// Replicas that a majority contradicts. Empty if there is no majority.
    pub outvoted: BTreeSet<ReplicaId>,
}

/// Counts of comparisons so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Number of comparisons, each of all replicas of one rank.
    pub comparisons: u64,
    /// Number of pages in all comparisons.
    pub pages_compared: u64,
    /// Number of pages that were equal at least once.
    pub pages_watched: u64,
    /// Number of pages that are left out, because they have differed.
    pub pages_excluded: u64,
    /// Number of pages that some replicas lacked, in the last comparison of each rank.
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
    /// Number of the round of the last comparison.
    compared: Option<u64>,
    /// Replicas that, on a page that was equal before, had contents which only kin shared. The page is left out from
    /// then on, so the finding must be kept.
    alone: ReplicaSet,
}

/// The testimony of a rank's other replicas for the memory of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vouching {
    /// No comparison since the round asked for.
    Open,
    /// All pages that were equal before still are, or a replica of another lineage has the same contents.
    Vouched,
    /// On some page that was equal before, only its kin has the same contents.
    Alone,
    /// The rank's memory cannot be compared.
    Impossible,
}

/// A series of rounds that together cover all memory of the same replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pass {
    /// The last cut before its begin.
    pub since: CutNumber,
    /// Number of its first round.
    pub first_round: u64,
    /// The replicas that were compared.
    pub compared: ReplicaSet,
    /// For pages that differ, the groups of replicas with the same contents. Empty if all memory was equal.
    pub sides: BTreeSet<ReplicaSet>,
    /// Replicas that had contents on some page which only their kin shared, pages that were never equal included.
    pub alone: ReplicaSet,
    /// Number of such pages.
    pub differing: u64,
    /// True if all of the replicas share an unproven image.
    pub is_one_lineage: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Phase {
    Resting,
    Asking(BTreeMap<ReplicaId, u64>),
    Comparing { orders: Vec<Order>, answers: BTreeMap<ReplicaId, Answer> },
}

/// A finding or a request of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// All processes get this message.
    Send(Scrub),
    /// Memory that was equal differs.
    Differs(Difference),
    /// The memory of a rank cannot be compared, for the reason that this replica gave. Reported once.
    Unfit(ReplicaId, String),
    /// A pass over all memory of a rank is complete.
    Compared(VirtualRank, Pass),
    /// A round has covered a part of a rank's memory.
    InPart(VirtualRank),
    /// A round is over.
    Over(Coverage),
}

/// Compares the memory of replicas in rounds; see the module for the stages.
#[derive(Debug, Serialize, Deserialize)]
pub struct ScrubWatch {
    /// None if rounds begin only when they are asked for.
    interval: Option<Duration>,
    /// Maximum bytes of a process in a round.
    bytes_max: u64,
    /// Begin of the next round. None if none is asked for.
    next: Option<Duration>,
    round: u64,
    phase: Phase,
    ranks: Vec<Rank>,
    comparisons: u64,
    pages_compared: u64,
    /// True if another round must follow this one at once.
    is_wanted: bool,
}

impl ScrubWatch {
    /// A job with this number of ranks, whose memory is compared every `interval`, at most `bytes_max` at a time.
    pub fn new(interval: Option<Duration>, bytes_max: u64, rank_count: u32) -> Self {
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
            bytes_max,
            next: interval,
            round: 0,
            phase: Phase::Resting,
            ranks,
            comparisons: 0,
            pages_compared: 0,
            is_wanted: false,
        }
    }

    /// The time of the next round. None if it begins only when it is asked for.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Number of the next round to begin.
    pub fn next_round(&self) -> u64 {
        self.round + 1
    }

    /// Asks for a round at this time, unless one is under way.
    pub fn demand_round(&mut self, at: Duration) {
        if matches!(self.phase, Phase::Resting) {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
    }

    /// Number of the earliest round that may include a rank, if it is asked for now.
    pub fn earliest(&self, rank: VirtualRank) -> u64 {
        match self.phase {
            Phase::Resting => self.round + 1,
            Phase::Comparing { .. } if self.ranks[rank.0 as usize].is_done => self.round + 1,
            Phase::Asking(_) | Phase::Comparing { .. } => self.round,
        }
    }

    /// Asks for a comparison of a rank soon.
    pub fn demand(&mut self, now: Duration, rank: VirtualRank) {
        match self.phase {
            Phase::Resting => self.demand_round(now),
            Phase::Comparing { .. } if self.ranks[rank.0 as usize].is_done => self.is_wanted = true,
            // The current round will include it.
            Phase::Asking(_) | Phase::Comparing { .. } => {}
        }
    }

    /// The testimony for a replica's memory, from a round with this number or a later one.
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

    /// Counts of all comparisons so far.
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

    /// Begins a round if one is due. A round that is not over is given up, since a rank may be far from its next
    /// collective. `cut` is the number of the last cut.
    pub fn pass_time(&mut self, now: Duration, cut: CutNumber) -> Vec<Finding> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        let first_round = self.next_round();
        for rank in self.ranks.iter_mut().filter(|rank| rank.from == 0) {
            rank.pass = Some(Pass::begun(cut, first_round));
        }
        let mut findings = Vec::new();
        if let Phase::Comparing { .. } = self.phase {
            findings.push(Finding::Over(self.coverage()));
            // The place was farther ahead than the program comes in an interval.
            self.ranks.iter_mut().filter(|rank| !rank.is_done).for_each(|rank| rank.margin = (rank.margin / 2).max(1));
        }
        self.next = Some(now + self.interval.unwrap_or(ASKED_ROUND_TIME_MAX));
        self.round = first_round;
        self.phase = Phase::Asking(BTreeMap::new());
        findings.push(Finding::Send(Scrub::Where { round: self.round }));
        findings
    }

    /// Discards all answers, because the membership changed. `live` gives the live replicas of a rank.
    pub fn reset(&mut self, live: impl Fn(VirtualRank) -> ReplicaSet) {
        if !matches!(self.phase, Phase::Resting) {
            self.rest();
        }
        for (number, rank) in (0..).zip(&mut self.ranks) {
            // The next pass begins with the first page.
            (rank.pass, rank.from) = (None, 0);
            rank.alone = rank.alone.intersection(live(VirtualRank(number)));
        }
    }

    /// Takes an answer. `live` are all replicas that take part, `kinship` is that of the replica's rank.
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
                let tell = Finding::Send(Scrub::Orders { round, orders: orders.clone() });
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

    /// Chooses a collective for each rank that none of its replicas has begun. A rank without siblings gets [`NONE`].
    fn orders(&mut self, positions: &BTreeMap<ReplicaId, u64>) -> Vec<Order> {
        let bytes_max = self.bytes_max;
        let one = |(number, rank): (usize, &mut Rank)| {
            let of_rank = positions.iter().filter(|(replica, _)| replica.rank.0 as usize == number);
            let has_siblings = of_rank.clone().count() > 1;
            let farthest = of_rank.map(|(_, position)| *position).max().unwrap_or(0);
            rank.is_done = !has_siblings || rank.is_unfit;
            let collective = if rank.is_done { NONE } else { farthest.saturating_add(rank.margin) };
            Order { collective, from: rank.from, bytes_max }
        };
        self.ranks.iter_mut().enumerate().map(one).collect()
    }

    /// Compares the answers of a rank's replicas, once all are there.
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
            // The next round follows at once, since the place can be chosen farther ahead.
            self.is_wanted |= state.margin < MARGIN_MAX;
            state.margin = (state.margin * 4).min(MARGIN_MAX);
        } else if let Some(compared) = state.compare(rank, &found, kinship) {
            self.comparisons += 1;
            self.pages_compared += compared.page_count;
            state.compared = Some(self.round);
            state.alone = state.alone.union(compared.alone);
            findings.extend(compared.difference.map(Finding::Differs));
            let is_whole = state.from == 0;
            let pass = state.pass.take_if(|_| is_whole);
            findings.extend(pass.map(|pass| Finding::Compared(rank, pass)));
            findings.extend(compared.is_in_part.then_some(Finding::InPart(rank)));
        }
        if self.ranks.iter().all(|rank| rank.is_done) {
            self.rest();
            findings.push(Finding::Over(self.coverage()));
        }
        findings
    }

    /// Ends a round.
    fn rest(&mut self) {
        self.phase = Phase::Resting;
        if std::mem::take(&mut self.is_wanted) {
            self.next = Some(Duration::ZERO);
        } else if self.interval.is_none() {
            self.next = None;
        }
    }
}

struct Compared {
    page_count: u64,
    /// True if a replica has memory beyond what was compared.
    is_in_part: bool,
    /// Replicas that had contents on some page which only their kin shared.
    alone: ReplicaSet,
    difference: Option<Difference>,
}

impl Rank {
    /// Returns None if the replicas did not look at the same collective.
    fn compare(&mut self, rank: VirtualRank, found: &[(ReplicaId, Answer)], kinship: &Kinship) -> Option<Compared> {
        let mut collectives = BTreeSet::new();
        let mut nexts = BTreeSet::new();
        let mut memories: Vec<(ReplicaId, Vec<Page>)> = Vec::new();
        for (replica, answer) in found {
            let Answer::Pages { collective, stretches, next } = answer else { return None };
            collectives.insert(*collective);
            nexts.insert(*next);
            let mut pages: Vec<_> = stretches.iter().flat_map(Stretch::pages).collect();
            // Stretches are in order, unless the process is corrupt.
            pages.sort_unstable();
            memories.push((*replica, pages));
        }
        let collective = *collectives.first().filter(|_| collectives.len() == 1)?;
        let all: ReplicaSet = memories.iter().map(|(replica, _)| replica.index).collect();
        if nexts.len() > 1 {
            // The replicas looked at different stretches, so the pass begins anew.
            self.pass = None;
        }
        self.from = *nexts.first().filter(|_| nexts.len() == 1).unwrap_or(&0);
        let mut difference = Difference { rank, collective, pages: Vec::new(), outvoted: BTreeSet::new() };
        let (mut page_count, mut alone) = (0, ReplicaSet::EMPTY);
        self.unmatched = 0;
        let is_one_lineage = kinship.is_one_lineage(all);
        self.pass.iter_mut().for_each(|pass| (pass.compared, pass.is_one_lineage) = (all, is_one_lineage));
        let mut at = vec![0; memories.len()];
        let first = |at: &[usize]| {
            memories.iter().zip(at).filter_map(|((_, pages), at)| pages.get(*at)).map(|page| page.address).min()
        };
        while let Some(page) = first(&at) {
            let mut found: Vec<(ReplicaIndex, Page)> = Vec::with_capacity(memories.len());
            for ((replica, pages), at) in memories.iter().zip(&mut at) {
                let here = pages[*at..].iter().take_while(|other| other.address == page);
                let (count, last) = here.fold((0, None), |(count, _), page| (count + 1, Some(*page)));
                *at += count;
                found.extend(last.map(|page| (replica.index, page)));
            }
            let digests = digests_of(&found);
            let was_equal = self.equal.contains(page);
            if digests.len() < memories.len() {
                self.unmatched += 1;
            } else if digests.iter().all(|(_, digest)| *digest == digests[0].1) {
                page_count += 1;
                self.equal.insert(page);
                continue;
            } else {
                let is_news = !self.excluded.contains(page);
                self.excluded.insert(page);
                let alone_here = alone_among(&digests, kinship);
                if is_news && was_equal {
                    page_count += 1;
                    difference.pages.push(page);
                    let outvoted = outvoted(&digests, kinship);
                    difference.outvoted.extend(outvoted.map(|index| ReplicaId { rank, index }));
                    alone = alone.union(alone_here);
                }
                if let Some(pass) = &mut self.pass {
                    pass.differing += 1;
                    pass.alone = pass.alone.union(alone_here);
                }
            }
            if let Some(pass) = &mut self.pass {
                pass.record(all, &digests);
            }
        }
        let is_in_part = nexts.iter().any(|next| *next != 0);
        let difference = Some(difference).filter(|difference| !difference.pages.is_empty());
        Some(Compared { page_count, is_in_part, alone, difference })
    }
}

/// Returns true if an answer has no more pages than a round covers.
pub(super) fn is_plausible(answer: &Answer) -> bool {
    let Answer::Pages { stretches, .. } = answer else { return true };
    let pages: usize = stretches.iter().map(|stretch| stretch.digests.len()).sum();
    let are_fewer = stretches.iter().all(|stretch| stretch.plain.len() <= stretch.digests.len());
    are_fewer && pages as u64 <= ROUND_BYTES_MAX / redrt_wire::scrub::PAGE_BYTES
}

/// Digests by which replicas of one page are compared: alike where all bytes are the same, or all but words that differ
/// in each process. What looks like such a word may be another one, in some replicas only.
fn digests_of(found: &[(ReplicaIndex, Page)]) -> Vec<(ReplicaIndex, u64)> {
    let are_same = |one: &Page, other: &Page| one.digest == other.digest || one.plain == other.plain;
    let first_like = |page: &Page| found.iter().map(|(_, other)| other).find(|other| are_same(page, other));
    found.iter().map(|(index, page)| (*index, first_like(page).unwrap_or(page).digest)).collect()
}

impl Pass {
    fn begun(since: CutNumber, first_round: u64) -> Self {
        Self {
            since,
            first_round,
            compared: ReplicaSet::EMPTY,
            sides: BTreeSet::new(),
            alone: ReplicaSet::EMPTY,
            differing: 0,
            is_one_lineage: false,
        }
    }

    /// Records the digests of a page that is not equal in all replicas. Replicas without the page form a group of their
    /// own.
    fn record(&mut self, all: ReplicaSet, digests: &[(ReplicaIndex, u64)]) {
        let side = |like: &dyn Fn(u64) -> bool| -> ReplicaSet {
            digests.iter().filter(|(_, digest)| like(*digest)).map(|(index, _)| *index).collect()
        };
        let others = all.without(side(&|_| true));
        let sides = digests.iter().map(|(_, one)| side(&|digest| digest == *one)).chain([others]);
        self.sides.extend(sides.filter(|side| !side.is_empty() && *side != all));
    }
}

/// The replicas that a majority contradicts. A copy and its source count once, since corrupt contents may have been
/// copied.
fn outvoted<'a>(digests: &'a [(ReplicaIndex, u64)], kinship: &Kinship) -> impl Iterator<Item = ReplicaIndex> + use<'a> {
    let agreed = sdc_detect::agreed(digests, kinship).copied();
    digests.iter().filter(move |(_, digest)| agreed.is_some_and(|agreed| *digest != agreed)).map(|(index, _)| *index)
}

/// The replicas whose contents no replica of another lineage shares.
fn alone_among(digests: &[(ReplicaIndex, u64)], kinship: &Kinship) -> ReplicaSet {
    let has_witness = |index: ReplicaIndex, digest: u64| {
        let alike: ReplicaSet = digests.iter().filter(|(_, other)| *other == digest).map(|(other, _)| *other).collect();
        alike.len() > kinship.relatives(index, alike)
    };
    digests.iter().filter(|(index, digest)| !has_witness(*index, *digest)).map(|(index, _)| *index).collect()
}

#[cfg(test)]
mod tests;
