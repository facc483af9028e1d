//! Checkpoints of a job: daemons and processes that answer in any order, and are lost at any moment; a store that may
//! refuse, and answers late. No image is torn, nobody stays stopped, and a return is to the newest checkpoint.

use super::{card, settings};
use crate::{
    CheckpointWatchSettings, Input, Output, ProofMode, ReplicationManager, Schedule, Settings, StoreFailure, StoreNews,
};
use redrt_types::{ProcessIndex, ReplicaId};
use redrt_wire::checkpoint::{CheckpointOrder, CheckpointStep, Generation};
use redrt_wire::clone::{Cost, Position};
use redrt_wire::control::FromAgent;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use simulation_kit::network::Links;
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::VecDeque;
use std::time::Duration;

simulation_kit::named! {
    /// A planted mistake.
    pub enum Mistake {
        /// The store reports that a checkpoint is dropped before it has carried out earlier orders.
        DropsAtOnce,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Runs,
    Saving,
    Ready,
    Held,
    Quiet,
    Stopped,
    Copied,
    Writing,
    Gone,
}

/// Daemons and processes that answer in any order, and are lost at any moment. The invariants are checked with each
/// order.
struct Saved {
    manager: ReplicationManager,
    now: Duration,
    trace: Trace,
    processes: Vec<At>,
    generation: u64,
    committed: u64,
    /// The orders that have not reached each process, each with its checkpoint.
    orders: Links<usize, (u64, CheckpointOrder)>,
    /// Sources whose images for the latest checkpoint are complete.
    sources: Vec<usize>,
    /// The checkpoint to which each process's current image belongs.
    of_checkpoint: Vec<u64>,
    /// Orders to the store that it has not carried out.
    asked: VecDeque<StoreWork>,
    /// News of the store that it has not sent.
    news: VecDeque<(Generation, StoreNews)>,
    mistake: Option<Mistake>,
    /// The first violation of an invariant.
    wrong: Option<String>,
    random: Random,
}

#[derive(Debug)]
enum StoreWork {
    Open(Generation),
    Commit(Generation),
    Drop(Generation),
}

impl Saved {
    fn new(seed: u64, setup: &Setup<CheckpointsSimulator>) -> Self {
        let mut random = Random::new(seed);
        let degrees: Vec<u16> = (0..random.within(1..4)).map(|_| random.pick(&[1, 2])).collect();
        let schedule = Schedule::Every(Duration::from_secs(20));
        let checkpoint = CheckpointWatchSettings {
            schedule,
            first: None,
            next: Generation(1),
            restored: None,
            restart_count: 0,
            has_archive: false,
            proofs: ProofMode::Off,
            proven: None,
        };
        let mut manager = ReplicationManager::new(Settings { checkpoint: Some(checkpoint), ..settings(&degrees) });
        let world = manager.world().clone();
        for replica in world.replicas() {
            for message in [FromAgent::Hello, FromAgent::Ready(card(world.process(replica)))] {
                manager.handle(Duration::ZERO, Input::Agent(replica, message));
            }
        }
        while manager.poll_output().is_some() {}
        let count = world.process_count() as usize;
        Self {
            manager,
            now: Duration::ZERO,
            trace: setup.trace,
            processes: vec![At::Runs; count],
            generation: 0,
            committed: 0,
            orders: Links::default(),
            sources: Vec::new(),
            of_checkpoint: vec![0; count],
            asked: VecDeque::new(),
            news: VecDeque::new(),
            mistake: setup.mistake,
            wrong: None,
            random,
        }
    }

    /// The states of those sources that live.
    fn live(&self) -> impl Iterator<Item = &At> {
        self.sources.iter().map(|source| &self.processes[*source]).filter(|at| **at != At::Gone)
    }

    /// Passes an input to the replication manager, and checks the outputs.
    fn input(&mut self, input: Input) {
        self.say(|| format!("in   {input:?}"));
        self.manager.handle(self.now, input);
        while let Some(output) = self.manager.poll_output() {
            self.say(|| format!("out  {output:?}"));
            match output {
                Output::OpenCheckpoint(generation) => {
                    assert!(generation.0 > self.generation, "numbers grow");
                    self.generation = generation.0;
                    let world = self.manager.world();
                    let sources = self.manager.checkpoint_sources().iter();
                    self.sources = sources.map(|source| world.process(*source).0 as usize).collect();
                    self.asked.push_back(StoreWork::Open(generation));
                }
                Output::Send(ToDaemon::Checkpoint { order, .. }) => {
                    if matches!(order, CheckpointOrder::Rest | CheckpointOrder::Copy | CheckpointOrder::GoOn) {
                        let (manager, view) = (&self.manager, self.manager.view());
                        let decides = |source: &ReplicaId| view.leader(source.rank) == Some(*source);
                        assert!(manager.checkpoint_sources().iter().all(decides), "one does not know what was done");
                    }
                    match order {
                        CheckpointOrder::Rest => {
                            assert!(self.live().all(|at| *at == At::Quiet), "{:?}", self.processes)
                        }
                        CheckpointOrder::Copy => {
                            assert!(self.live().all(|at| *at == At::Stopped), "{:?}", self.processes)
                        }
                        CheckpointOrder::GoOn => {
                            assert!(self.live().all(|at| *at == At::Copied), "{:?}", self.processes)
                        }
                        _ => {}
                    }
                    self.order(&order);
                }
                Output::CommitCheckpoint(taken) => {
                    assert!(self.live().all(|at| matches!(at, At::Runs)), "all are saved: {:?}", self.processes);
                    assert!(taken.positions.iter().flatten().count() > 0);
                    self.asked.push_back(StoreWork::Commit(taken.generation));
                }
                Output::DropCheckpoint(generation) if self.mistake == Some(Mistake::DropsAtOnce) => {
                    self.news.push_back((generation, StoreNews::Dropped));
                }
                Output::DropCheckpoint(generation) => self.asked.push_back(StoreWork::Drop(generation)),
                Output::Restart { generation, .. } => self.check_return(generation),
                _ => {}
            }
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(|| format!("{:>8.2} {}", self.now.as_secs_f64(), what()));
    }

    fn check_return(&mut self, generation: Generation) {
        if generation.0 != self.committed || !self.asked.is_empty() || !self.news.is_empty() {
            let (committed, asked, news) = (self.committed, &self.asked, &self.news);
            self.wrong = Some(format!("back to {generation} of {committed}: {asked:?}, {news:?}"));
        }
    }

    /// Lets the store carry out an order, which may fail, or send its news.
    fn store_step(&mut self) {
        if self.random.chance(50)
            && let Some((generation, news)) = self.news.pop_front()
        {
            if news == StoreNews::Opened && self.manager.checkpoint_under_way() == Some(generation) {
                let (building, compression) = Default::default();
                self.order(&CheckpointOrder::Begin {
                    sources: Vec::new(),
                    directory: "/".into(),
                    own_beside: None,
                    building,
                    compression,
                    sealed_key: None,
                });
            }
            return self.input(Input::Store { generation, news });
        }
        let Some(work) = self.asked.pop_front() else { return };
        let refuses = self.random.one_in(8);
        let news = match work {
            StoreWork::Open(_) if refuses => StoreNews::Failed(StoreFailure::NoPlace("full".into())),
            StoreWork::Open(_) => StoreNews::Opened,
            StoreWork::Commit(_) if refuses => StoreNews::Failed(StoreFailure::NotKept("full".into())),
            StoreWork::Commit(generation) => {
                self.committed = generation.0;
                StoreNews::Committed
            }
            StoreWork::Drop(_) => StoreNews::Dropped,
        };
        let (StoreWork::Open(generation) | StoreWork::Commit(generation) | StoreWork::Drop(generation)) = work;
        self.news.push_back((generation, news));
    }

    fn order(&mut self, order: &CheckpointOrder) {
        let generation = self.generation;
        self.sources.iter().for_each(|source| self.orders.send(*source, (generation, order.clone())));
    }

    fn step(&mut self) {
        if self.random.one_in(10) {
            return self.store_step();
        }
        let at = self.random.below(self.processes.len());
        let replica = self.manager.world().replica(ProcessIndex(at as u32));
        if self.processes[at] == At::Gone {
            return;
        }
        let generation = Generation(self.of_checkpoint[at]);
        let said = |step| Some(Input::Checkpoint { generation, replica, step });
        if self.random.one_in(400) {
            self.processes[at] = At::Gone;
            self.input(Input::Exited(replica, Exit::Signal(9)));
            return self.input(Input::Drained(replica));
        }
        let is_ordered = self.orders.under_way(at).next().is_some() && self.random.chance(50);
        if let Some((of_checkpoint, order)) = is_ordered.then(|| self.orders.deliver(at)).flatten() {
            self.processes[at] = match (order, self.processes[at]) {
                (CheckpointOrder::Begin { .. }, At::Runs) => {
                    self.of_checkpoint[at] = of_checkpoint;
                    At::Saving
                }
                (CheckpointOrder::Round, At::Ready) => At::Saving,
                (CheckpointOrder::Stop, At::Ready) => At::Held,
                (CheckpointOrder::Rest, At::Quiet) => At::Quiet,
                (CheckpointOrder::Copy, At::Stopped) => At::Stopped,
                (CheckpointOrder::GoOn, At::Copied) => At::Writing,
                (CheckpointOrder::Abandon, _) => At::Runs,
                (order, at) => panic!("{order:?} to one that is {at:?}"),
            };
            return;
        }
        let is_told = |order: &CheckpointOrder| !self.orders.under_way(at).any(|(_, other)| other == order);
        let (next, input) = match self.processes[at] {
            At::Saving => (At::Ready, said(CheckpointStep::Ready)),
            At::Held => (At::Quiet, Some(Input::Agent(replica, FromAgent::Quiet))),
            // A process knows that all are quiet, or that copies are to be made, only if the replication manager has
            // said so.
            At::Quiet if self.stage() == "stopping" && is_told(&CheckpointOrder::Rest) => {
                (At::Stopped, said(CheckpointStep::Stopped(Position::default())))
            }
            At::Stopped if self.stage() == "taking" && is_told(&CheckpointOrder::Copy) => {
                (At::Copied, said(CheckpointStep::Copied))
            }
            At::Writing => (At::Runs, said(CheckpointStep::Saved(Cost::default(), Vec::new()))),
            other => (other, None),
        };
        self.processes[at] = next;
        if let Some(input) = input {
            self.input(input);
        }
    }

    fn stage(&self) -> String {
        let attempt = self.manager.machines.checkpoint.as_ref().and_then(|checkpoint| checkpoint.stage());
        attempt.unwrap_or_default()
    }
}

impl Saved {
    fn play(&mut self) {
        for _ in 0..1_500 {
            if self.random.one_in(40) {
                self.now += Duration::from_millis(self.random.within(0..12_000));
                self.input(Input::Tick);
            }
            self.step();
        }
    }
}

/// The simulator of checkpoints.
pub enum CheckpointsSimulator {}

impl Simulator for CheckpointsSimulator {
    const NAME: &'static str = "checkpoints";
    const ABOUT: &'static str = "Checkpoints of a job, whose processes and store answer in any order";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = Summary;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<Summary, Violation> {
        let mut world = Saved::new(seed, setup);
        world.play();
        world.wrong.take().map_or(Ok(()), |wrong| Err(Violation::from(wrong)))?;
        // From here no process is lost: stopped processes go on, and all orders arrive.
        for at in 0..world.processes.len() {
            while let Some((_, order)) = world.orders.deliver(at) {
                if order == CheckpointOrder::Abandon {
                    world.processes[at] = At::Runs;
                }
            }
        }
        let is_open = world.manager.checkpoint_under_way().is_some();
        let stands = |at: &At| matches!(at, At::Held | At::Quiet | At::Stopped | At::Copied);
        let is_over = world.manager.course.is_ending();
        if !is_open && !is_over && world.live().any(stands) {
            return Err(format!("one stays stopped: {:?}", world.processes).into());
        }
        Ok(Summary { committed: world.committed })
    }
}

/// The newest checkpoint that was kept in a run.
pub struct Summary {
    committed: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checkpoint {} is the newest that was kept", self.committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::{Named, sweep};

    #[test]
    fn a_store_that_is_not_waited_for_is_found() {
        sweep::finds::<CheckpointsSimulator>(Mistake::ALL, 0..2_000, &Setup::default());
    }

    #[test]
    fn whatever_is_lost_no_image_is_torn_and_nobody_stays_stopped() {
        let runs = sweep::right::<CheckpointsSimulator>(0..1_000, &Setup::default());
        let committed: u64 = runs.iter().map(|run| run.committed).sum();
        assert!(committed > 500, "checkpoints are taken: {committed}");
    }
}
