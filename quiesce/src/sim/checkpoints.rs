//! Checkpoints: images of one replica of each rank, from which all go on.
//!
//! ```text
//!  nobody joins ─▶ one source after another is held and copied ─▶ all are: they go on ─▶ … ─▶ all are loaded again
//!                    the others run; a change of the membership voids it
//! ```
//! Nothing is drained, and the siblings of the sources go on. A source is held from its own copy until the last one. So
//! no image needs a message that another source has released, or a decision it has made, after its own copy.

use super::process::{Control, Process};
use super::world::Simulation;
use crate::mutation::Mutation;
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, View, VirtualRank};
use simulation_kit::Random;
use simulation_kit::network::Links;

/// A checkpoint: images that fit each other.
#[derive(Clone, Debug)]
struct Checkpoint {
    /// The membership at their cuts.
    view: View,
    /// The image of each rank.
    images: Vec<Process>,
}

/// The checkpoints of a run.
pub(super) struct Checkpoints {
    /// A generator of its own, so that other choices stay the same.
    random: Random,
    left: usize,
    returns_left: usize,
    /// The checkpoint in progress: images of the first ranks, and the source of each rank.
    taking: Option<(Checkpoint, Vec<ReplicaId>)>,
    taken: Option<Checkpoint>,
}

impl Checkpoints {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, "lines");
        let (left, returns_left) = (1 + random.below(3), 1 + random.below(3));
        Self { random, left, returns_left, taking: None, taken: None }
    }
}

impl Simulation {
    /// Returns true if a process is held for a checkpoint.
    pub(super) fn is_held(&self, replica: ReplicaId) -> bool {
        if self.processes.iter().any(|process| process.replica.has(Mutation::SourceGoesOn)) {
            return false;
        }
        let taking = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.taking.as_ref());
        taking.is_some_and(|(checkpoint, sources)| sources[..checkpoint.images.len()].contains(&replica))
    }

    /// Returns true if any process is held for a checkpoint.
    pub(super) fn is_holding(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.taking.is_some())
    }

    /// Begins and takes checkpoints, and lets all processes go back to the latest one.
    pub(super) fn take_checkpoints(&mut self) {
        let Some(mut checkpoints) = self.checkpoints.take() else { return };
        match checkpoints.taking.take() {
            Some((checkpoint, _)) if checkpoint.view != self.view => self.say(|| "the checkpoint is void".into()),
            Some((checkpoint, sources)) if checkpoint.images.len() == sources.len() => {
                self.say(|| format!("a checkpoint is taken of {sources:?}"));
                self.summary.checkpoints += 1;
                checkpoints.taken = Some(checkpoint);
            }
            Some((mut checkpoint, sources)) => {
                if checkpoints.random.below(4) == 0 {
                    checkpoint.images.push(self.image(sources[checkpoint.images.len()]));
                }
                checkpoints.taking = Some((checkpoint, sources));
            }
            None if checkpoints.left > 0 && self.joins.is_empty() && checkpoints.random.below(30) == 0 => {
                checkpoints.left -= 1;
                let sources = (0..self.world.rank_count()).map(|rank| {
                    let live: Vec<_> = self.view.live(VirtualRank(rank)).collect();
                    checkpoints.random.pick(&live)
                });
                checkpoints.taking =
                    Some((Checkpoint { view: self.view.clone(), images: Vec::new() }, sources.collect()));
            }
            None => {}
        }
        if checkpoints.returns_left > 0
            && checkpoints.random.below(50) == 0
            && let Some(checkpoint) = checkpoints.taken.clone()
        {
            checkpoints.returns_left -= 1;
            checkpoints.taking = None;
            self.go_back(&checkpoint, &mut checkpoints.random);
        }
        self.checkpoints = Some(checkpoints);
    }

    fn image(&mut self, source: ReplicaId) -> Process {
        self.say(|| format!("{source}  held    for a checkpoint"));
        let place = self.world.process(source).0 as usize;
        self.processes[place].flush();
        self.post_outgoing(place);
        self.processes[place].clone()
    }

    /// Ends all processes. For each rank a random number of replicas go on from its one image.
    fn go_back(&mut self, checkpoint: &Checkpoint, random: &mut Random) {
        self.summary.returns += 1;
        let lives = 1 + self.lives.iter().max().copied().unwrap_or(0);
        let cut = CutNumber(1 + checkpoint.view.latest_cut().0.max(self.cut_count));
        self.cut_count = cut.0;
        let mut loaded = Vec::new();
        for image in &checkpoint.images {
            let source = image.me();
            let siblings = self.world.sphere(source.rank).filter(|place| *place != source && random.chance(80));
            let admit = |replica| Admission { replica, incarnation: Incarnation(lives), source: source.index, cut };
            loaded.extend(std::iter::once(source).chain(siblings).map(admit));
        }
        self.links = Links::default();
        self.transfers.clear();
        self.joins.clear();
        self.breaks.notices.clear();
        self.breaks.cut.clear();
        self.processes.iter_mut().for_each(|process| (process.alive, process.fenced) = (false, false));
        for copy in &loaded {
            let place = self.world.process(copy.replica).0 as usize;
            let mut process = checkpoint.images[copy.replica.rank.0 as usize].copy(copy.replica);
            process.alive = true;
            self.processes[place] = process;
            self.lives[place] = lives;
        }
        // The coordinator goes back as well: it knows nothing of later events.
        self.view = checkpoint.view.of_images(&loaded);
        self.say(|| format!("all go back, with {loaded:?}"));
        self.send_all(&Control::View(self.view.clone()));
        self.send_pins(None);
    }
}
