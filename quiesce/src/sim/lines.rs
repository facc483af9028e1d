//! Checkpoints (*lines*): images of one replica of each rank, from which all go on.
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
struct Line {
    /// The membership at their cuts.
    view: View,
    /// The image of each rank.
    images: Vec<Process>,
}

/// The checkpoints of a run.
pub(super) struct Lines {
    /// A generator of its own, so that other choices stay the same.
    random: Random,
    left: usize,
    returns_left: usize,
    /// The checkpoint in progress: images of the first ranks, and the source of each rank.
    taking: Option<(Line, Vec<ReplicaId>)>,
    taken: Option<Line>,
}

impl Lines {
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
        let taking = self.lines.as_ref().and_then(|lines| lines.taking.as_ref());
        taking.is_some_and(|(line, sources)| sources[..line.images.len()].contains(&replica))
    }

    /// Returns true if any process is held for a checkpoint.
    pub(super) fn is_holding(&self) -> bool {
        self.lines.as_ref().is_some_and(|lines| lines.taking.is_some())
    }

    /// Begins and takes checkpoints, and lets all processes go back to the latest one.
    pub(super) fn take_lines(&mut self) {
        let Some(mut lines) = self.lines.take() else { return };
        match lines.taking.take() {
            Some((line, _)) if line.view != self.view => self.say(|| "the line is void".into()),
            Some((line, sources)) if line.images.len() == sources.len() => {
                self.say(|| format!("a line is taken of {sources:?}"));
                self.summary.lines += 1;
                lines.taken = Some(line);
            }
            Some((mut line, sources)) => {
                if lines.random.below(4) == 0 {
                    line.images.push(self.image(sources[line.images.len()]));
                }
                lines.taking = Some((line, sources));
            }
            None if lines.left > 0 && self.joins.is_empty() && lines.random.below(30) == 0 => {
                lines.left -= 1;
                let sources = (0..self.world.rank_count()).map(|rank| {
                    let live: Vec<_> = self.view.live(VirtualRank(rank)).collect();
                    lines.random.pick(&live)
                });
                lines.taking = Some((Line { view: self.view.clone(), images: Vec::new() }, sources.collect()));
            }
            None => {}
        }
        if lines.returns_left > 0
            && lines.random.below(50) == 0
            && let Some(line) = lines.taken.clone()
        {
            lines.returns_left -= 1;
            lines.taking = None;
            self.go_back(&line, &mut lines.random);
        }
        self.lines = Some(lines);
    }

    fn image(&mut self, source: ReplicaId) -> Process {
        self.say(|| format!("{source}  held    for a line"));
        let place = self.world.process(source).0 as usize;
        self.processes[place].flush();
        self.post_outgoing(place);
        self.processes[place].clone()
    }

    /// Ends all processes. For each rank a random number of replicas go on from its one image.
    fn go_back(&mut self, line: &Line, random: &mut Random) {
        self.summary.returns += 1;
        let lives = 1 + self.lives.iter().max().copied().unwrap_or(0);
        let cut = CutNumber(1 + line.view.latest_cut().0.max(self.cut_count));
        self.cut_count = cut.0;
        let mut loaded = Vec::new();
        for image in &line.images {
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
            let mut process = line.images[copy.replica.rank.0 as usize].copy(copy.replica);
            process.alive = true;
            self.processes[place] = process;
            self.lives[place] = lives;
        }
        // The coordinator goes back as well: it knows nothing of later events.
        self.view = line.view.of_images(&loaded);
        self.say(|| format!("all go back, with {loaded:?}"));
        self.tell(&Control::View(self.view.clone()));
        self.tell_pins(None);
    }
}
