//! Proofs of checkpoints: replicas of a program whose memory bits flip, images of some of them, comparisons that are
//! answered at any time, losses and copies. What follows from an image that is proven is what sound replicas have.
//!
//! The program is a rule of what each step writes, from what is in memory. So a flip stays, spreads or is written over,
//! as in real programs.

use crate::proofs::{ProofMode, Proofs, Verdict};
use crate::scrub::{Finding, ROUND_BYTES_MAX, ScrubWatch};
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, ReplicaIndex, ReplicaSet, View, VirtualRank, World};
use redrt_wire::checkpoint::{Generation, Proof};
use redrt_wire::scrub::{Answer, Order, PAGE_BYTES, Scrub, Stretch};
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PAGE_COUNT: usize = 6;
const RANK: VirtualRank = VirtualRank(0);

simulation_kit::named! {
    /// A planted mistake.
    pub enum Mistake {
        /// A pass that began before the cut counts.
        PassBeforeTheCut,
        /// A copy in the place of a source that was lost counts as the source.
        SourceReplaced,
        /// A page that differs counts in the pass that finds it, and in no later one.
        DifferencesForgotten,
        /// A copy vouches for its source like any other.
        KinVouch,
    }
}

/// A replica.
#[derive(Clone)]
struct Replica {
    /// Number of steps that it has made, each with a collective.
    steps: u64,
    pages: [u64; PAGE_COUNT],
    /// The round that it takes part in, and the collective at which it compares.
    ordered: Option<(u64, Order)>,
}

impl Replica {
    fn new() -> Self {
        Self { steps: 0, pages: std::array::from_fn(|page| page as u64), ordered: None }
    }

    /// Makes a step: most write a page from another one.
    fn step(&mut self) {
        self.steps += 1;
        let mut rule = Random::new(self.steps);
        let (from, to) = (rule.below(PAGE_COUNT), rule.below(PAGE_COUNT));
        if rule.chance(60) {
            self.pages[to] = self.pages[from].wrapping_mul(31).wrapping_add(self.steps);
        }
    }

    /// The memory after this number of steps.
    fn at(mut self, steps: u64) -> [u64; PAGE_COUNT] {
        while self.steps < steps {
            self.step();
        }
        self.pages
    }
}

/// The world around the machine.
struct Proving {
    now: Duration,
    view: View,
    replicas: BTreeMap<ReplicaIndex, Replica>,
    scrub: ScrubWatch,
    proofs: Proofs,
    /// Answers that are on their way.
    answers: Vec<(ReplicaIndex, u64, Answer)>,
    /// Images of checkpoints.
    images: BTreeMap<Generation, Replica>,
    /// Images that are cut, and not kept yet: with the incarnation of the source.
    cut: Option<(Generation, ReplicaIndex, Incarnation)>,
    cuts: u64,
    lives: u32,
    flips: u64,
    mistake: Option<Mistake>,
    proven: u64,
    /// True if answers are soon there.
    is_quick: bool,
    /// Of this number of changes of the membership, one takes place.
    change_rarity: usize,
    random: Random,
    trace: Trace,
}

impl Proving {
    fn new(seed: u64, setup: &Setup<ProofsSimulator>) -> Self {
        let mut random = Random::new(seed);
        let degree = random.pick(&[2, 3]);
        let world = World::new(vec![degree]);
        // Memory may be compared all the time, or only for proofs.
        let interval = random.pick(&[None, Some(Duration::from_millis(100))]);
        Self {
            now: Duration::ZERO,
            view: View::initial(&world),
            replicas: (0..degree).map(|index| (ReplicaIndex(index), Replica::new())).collect(),
            scrub: ScrubWatch::new(interval, ROUND_BYTES_MAX, 1),
            proofs: Proofs::new(ProofMode::Always, None),
            answers: Vec::new(),
            images: BTreeMap::new(),
            cut: None,
            cuts: 0,
            lives: 0,
            flips: 0,
            mistake: setup.mistake,
            proven: 0,
            is_quick: random.chance(50),
            change_rarity: random.pick(&[1, 3, 10]),
            random,
            trace: setup.trace,
        }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn any(&mut self) -> ReplicaIndex {
        let live: Vec<_> = self.replicas.keys().copied().collect();
        self.random.pick(&live)
    }

    /// A replica makes a step, and compares where it was ordered to.
    fn step(&mut self, index: ReplicaIndex) {
        let replica = self.replicas.get_mut(&index).expect("it lives");
        replica.step();
        let Some((round, order)) = replica.ordered.take_if(|(_, order)| replica.steps >= order.collective) else {
            return;
        };
        let digests = replica.pages.to_vec();
        let stretches = vec![Stretch { start: PAGE_BYTES, digests, plain: Vec::new() }];
        let answer = Answer::Pages { collective: order.collective, stretches, next: 0 };
        self.answers.push((index, round, answer));
    }

    fn follow(&mut self, findings: Vec<Finding>) -> Result<(), Violation> {
        let has_news = findings.iter().any(|finding| matches!(finding, Finding::Differs(_)));
        for finding in findings {
            match finding {
                Finding::Send(Scrub::Where { round }) => {
                    let positions = self.replicas.iter().map(|(index, replica)| (*index, replica.steps));
                    self.answers.extend(positions.map(|(index, steps)| (index, round, Answer::Position(steps))));
                }
                Finding::Send(Scrub::Orders { round, orders }) => {
                    for (index, replica) in self.replicas.iter_mut().filter(|_| orders[0].collective != u64::MAX) {
                        match replica.steps >= orders[0].collective {
                            true => self.answers.push((*index, round, Answer::Late)),
                            false => replica.ordered = Some((round, orders[0])),
                        }
                    }
                }
                Finding::Compared(rank, mut pass) => {
                    if !has_news && self.is(Mistake::DifferencesForgotten) {
                        pass.alone = ReplicaSet::EMPTY;
                    }
                    self.trace.say(|| format!("{pass:?}, {:?}", self.view.kinship(rank)));
                    let verdict = self.proofs.compared(rank, &pass);
                    self.judge(verdict)?;
                    let sides: Vec<_> = pass.sides.iter().copied().collect();
                    self.view = self.view.with_proof(rank, pass.compared, &sides, pass.since);
                }
                Finding::Over(_) => self.proofs.go_on(self.now, &mut self.scrub),
                Finding::Differs(_) | Finding::Unfit(..) | Finding::InPart(_) => {}
            }
        }
        Ok(())
    }

    /// Checks a proof: what follows from the image is what follows without a flip.
    fn judge(&mut self, verdict: Option<Verdict>) -> Result<(), Violation> {
        if let Some(verdict) = &verdict {
            self.trace.say(|| format!("{verdict:?}"));
        }
        let Some(Verdict { generation, outcome: Ok(proof) }) = verdict else { return Ok(()) };
        self.proven += 1;
        let farthest = self.replicas.values().map(|replica| replica.steps).max().unwrap_or_default();
        let sound = Replica::new().at(farthest);
        let follows = self.images[&generation].clone().at(farthest);
        match proof == Proof::Kin || follows == sound {
            true => Ok(()),
            false => Err(format!("{generation} is proven, and leads to {follows:?} and not to {sound:?}").into()),
        }
    }

    fn answer(&mut self) -> Result<(), Violation> {
        if self.answers.is_empty() {
            return Ok(());
        }
        let (index, round, answer) = self.answers.remove(self.random.below(self.answers.len()));
        let live: BTreeSet<_> = self.view.live(RANK).collect();
        let kinship = match self.is(Mistake::KinVouch) {
            true => &Default::default(),
            false => self.view.kinship(RANK),
        };
        let findings = self.scrub.answered(ReplicaId { rank: RANK, index }, round, answer, &live, kinship);
        self.follow(findings)
    }

    /// An image is cut, or one that was cut is kept.
    fn checkpoint(&mut self) -> Result<(), Violation> {
        let Some((generation, source, life)) = self.cut.take() else {
            let source = self.any();
            let generation = Generation(self.images.len() as u64 + 1);
            self.images.insert(generation, self.replicas[&source].clone());
            let member = self.view.member(ReplicaId { rank: RANK, index: source }).expect("it lives");
            self.trace.say(|| format!("{generation} is cut of {source:?}: {:?}", self.replicas[&source].pages));
            self.cut = Some((generation, source, member.incarnation));
            return if self.random.chance(50) { self.checkpoint() } else { Ok(()) };
        };
        let first_round = if self.is(Mistake::PassBeforeTheCut) { 0 } else { self.scrub.next_round() };
        let sources = vec![(ReplicaId { rank: RANK, index: source }, life)];
        let verdict = self.proofs.kept(generation, sources, first_round, &self.view);
        self.proofs.go_on(self.now, &mut self.scrub);
        self.judge(verdict)
    }

    /// A replica is lost, or a copy takes a free place.
    fn change_members(&mut self) -> Result<(), Violation> {
        let places = self.view.live_set(RANK).len().max(2) as u16 + 1;
        let free = (0..places.min(3)).map(ReplicaIndex).find(|index| !self.replicas.contains_key(index));
        let other = self.any();
        match free.filter(|free| self.view.fits(&World::new(vec![3])) && usize::from(free.0) < 3) {
            Some(index) if self.replicas.len() < 2 || self.random.chance(50) => {
                (self.cuts, self.lives) = (self.cuts + 1, self.lives + 1);
                let copy = Replica { ordered: None, ..self.replicas[&other].clone() };
                self.trace.say(|| format!("{index:?} is a copy of {other:?}"));
                self.replicas.insert(index, copy);
                let replica = ReplicaId { rank: RANK, index };
                let (incarnation, cut) = (Incarnation(self.lives), CutNumber(self.cuts));
                self.view = self.view.with(Admission { replica, incarnation, source: other, cut });
            }
            _ if self.replicas.len() > 1 => {
                self.trace.say(|| format!("{other:?} is lost"));
                self.replicas.remove(&other);
                self.view = self.view.without(&[ReplicaId { rank: RANK, index: other }]);
            }
            _ => return Ok(()),
        }
        self.answers.clear();
        self.replicas.values_mut().for_each(|replica| replica.ordered = None);
        let view = self.view.clone();
        self.scrub.reset(|rank| view.live_set(rank));
        let verdict = match self.is(Mistake::SourceReplaced) {
            true => None,
            false => self.proofs.membership_changed(&view),
        };
        self.proofs.go_on(self.now, &mut self.scrub);
        self.judge(verdict)
    }

    fn play(&mut self) -> Result<(), Violation> {
        for _ in 0..1_500 {
            self.now += Duration::from_millis(5);
            match self.random.below(100) {
                0..60 => {
                    // Replicas of a program are never far apart.
                    let slowest =
                        self.replicas.iter().min_by_key(|(_, replica)| replica.steps).map(|(index, _)| *index);
                    let any = self.any();
                    let index = if self.random.chance(50) { any } else { slowest.unwrap_or(any) };
                    self.step(index);
                }
                60..70 => self.answer()?,
                80..92 if self.is_quick => self.answer()?,
                70..80 => {
                    let findings = self.scrub.pass_time(self.now, CutNumber(self.cuts));
                    self.follow(findings)?;
                }
                92..94 => self.checkpoint()?,
                94..97 => {
                    let index = self.any();
                    self.flips += 1;
                    let page = self.random.below(PAGE_COUNT);
                    // No two flips make up a third.
                    let bits = self.flips.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    self.trace.say(|| format!("a bit flips in page {page} of {index:?}"));
                    self.replicas.get_mut(&index).expect("it lives").pages[page] ^= bits;
                }
                97 if self.random.one_in(self.change_rarity) => self.change_members()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The simulator of proofs.
pub enum ProofsSimulator {}

impl Simulator for ProofsSimulator {
    const NAME: &'static str = "proofs";
    const ABOUT: &'static str = "Proofs of checkpoints by comparisons, while bits flip in the memory of replicas";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let mut world = Proving::new(seed, setup);
        world.play()?;
        Ok(format!(
            "{} of {} checkpoints are proven, {} bits have flipped",
            world.proven,
            world.images.len(),
            world.flips
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::{Named, sweep};

    #[test]
    fn planted_mistakes_are_found() {
        sweep::finds::<ProofsSimulator>(Mistake::ALL, 0..20_000, &Setup::default());
    }

    #[test]
    fn what_is_proven_is_sound() {
        let runs = sweep::right::<ProofsSimulator>(0..3_000, &Setup::default());
        let proven = runs.iter().filter(|run| !run.starts_with("0 of")).count();
        assert!(proven > 500, "{proven}");
    }
}
