//! Whole jobs whose processes act in any order.

use super::*;
use proptest::prelude::*;
use redrt_types::ReplicaIndex;
use std::collections::BTreeSet;

/// The processes of a job, each with a script of its own, driven in any order.
struct Simulation {
    manager: ReplicationManager,
    now: Duration,
    stages: Vec<Stage>,
    view: u64,
    said: Vec<Option<u64>>,
    cards: bool,
    released: bool,
    finished: Option<i32>,
    killed: BTreeSet<ReplicaId>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Started,
    Ready,
    Dead,
}

impl Simulation {
    fn new(degrees: &[u16]) -> Self {
        let manager = ReplicationManager::new(settings(degrees));
        let count = manager.world().process_count() as usize;
        Self {
            manager,
            now: Duration::ZERO,
            stages: vec![Stage::Started; count],
            view: 0,
            said: vec![None; count],
            cards: false,
            released: false,
            finished: None,
            killed: BTreeSet::new(),
        }
    }

    fn give(&mut self, input: Input) {
        self.manager.handle(self.now, input);
        while let Some(output) = self.manager.poll_output() {
            assert_eq!(self.finished, None, "nothing comes after the end: {output:?}");
            match output {
                Output::Send(ToDaemon::View(view)) => self.take_view(&view),
                Output::Send(ToDaemon::Cards(_)) => {
                    assert!(!self.cards);
                    self.cards = true;
                }
                Output::Send(ToDaemon::Release) => self.check_release(),
                Output::Send(ToDaemon::KillAll) => {
                    let alive = self.alive();
                    alive.into_iter().for_each(|process| self.die(process));
                }
                Output::Finish(code) => self.finished = Some(code),
                _ => {}
            }
        }
    }

    fn take_view(&mut self, view: &View) {
        assert_eq!(view.number.0, self.view + 1);
        self.view = view.number.0;
        for rank in 0..view.rank_count() {
            assert!(view.live(VirtualRank(rank)).next().is_some(), "a view without rank {rank}");
        }
    }

    fn check_release(&mut self) {
        assert!(self.cards && !self.released);
        self.released = true;
        for process in self.alive() {
            assert_eq!(self.said[process], Some(self.view), "released while {process} was not ready to leave");
        }
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.stages.len()).filter(|process| self.stages[*process] != Stage::Dead).collect()
    }

    fn replica(&self, process: usize) -> ReplicaId {
        self.manager.world().replica(redrt_types::ProcessIndex(process as u32))
    }

    fn die(&mut self, process: usize) {
        if self.stages[process] == Stage::Dead {
            return;
        }
        self.stages[process] = Stage::Dead;
        let replica = self.replica(process);
        self.give(Input::Exited(replica, Exit::Signal(9)));
        self.give(Input::Drained(replica));
    }

    /// The next action of this process.
    fn go_on(&mut self, process: usize) {
        let replica = self.replica(process);
        match self.stages[process] {
            Stage::Started => {
                self.stages[process] = Stage::Ready;
                let card = card(self.manager.world().process(replica));
                self.give(Input::Agent(replica, FromAgent::Hello));
                self.give(Input::Agent(replica, FromAgent::Ready(card)));
            }
            Stage::Ready if self.released => {
                self.stages[process] = Stage::Dead;
                self.give(Input::Exited(replica, Exit::Status(0)));
                self.give(Input::Drained(replica));
            }
            Stage::Ready if self.cards && self.said[process] != Some(self.view) => {
                self.said[process] = Some(self.view);
                self.give(Input::Agent(replica, finalizing(self.view)));
            }
            Stage::Ready | Stage::Dead => {}
        }
    }

    fn finish(&mut self) -> i32 {
        for _ in 0..1000 {
            self.now += Duration::from_secs(1);
            self.give(Input::Tick);
            if let Some(code) = self.finished {
                return code;
            }
            self.alive().into_iter().for_each(|process| self.go_on(process));
        }
        panic!("the job does not end");
    }
}

proptest! {
    /// Any processes die at any time. The job ends, and ends well if and only if no rank lost all its replicas.
    #[test]
    fn every_job_ends_rightly(
        degrees in proptest::collection::vec(1u16..4, 1..4),
        steps in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..60),
    ) {
        let mut simulation = Simulation::new(&degrees);
        for (who, what) in steps {
            let process = who.index(simulation.stages.len());
            if what > 0 {
                simulation.go_on(process);
            } else if simulation.stages[process] != Stage::Dead {
                simulation.killed.insert(simulation.replica(process));
                simulation.die(process);
            }
            simulation.now += Duration::from_millis(1);
        }
        let code = simulation.finish();
        let killed = |rank: usize, index: u16| simulation.killed.contains(&ReplicaId { rank: VirtualRank(rank as u32), index: ReplicaIndex(index) });
        let all_lost = |rank: usize| (0..degrees[rank]).all(|index| killed(rank, index));
        let failed = (0..degrees.len()).any(all_lost);
        prop_assert_eq!(code != 0, failed, "exit code {} with {:?} killed of {:?}", code, simulation.killed, degrees);
    }

    /// Random kills never take the last replica of a rank.
    #[test]
    fn random_kills_leave_a_survivor_who_will_not_end_itself(
        seed in any::<u64>(), degrees in proptest::collection::vec(1u16..4, 1..4)
    ) {
        let mut settings = settings(&degrees);
        settings.send_kills = settings.world.replicas().filter(|replica| replica.index.0 == 0).collect();
        settings.random_kills = Some(RandomKills { mean_time: Duration::from_secs(1), seed, count: None });
        let mut simulation = Simulation::new(&degrees);
        simulation.manager = ReplicationManager::new(settings);
        for _ in 0..20 {
            simulation.now = simulation.manager.next_deadline().expect("kills go on");
            simulation.manager.handle(simulation.now, Input::Tick);
            let mut victims = Vec::new();
            while let Some(output) = simulation.manager.poll_output() {
                if let Output::Send(ToDaemon::Kill(replica)) = output {
                    victims.push(simulation.manager.world().process(replica).0 as usize);
                }
            }
            victims.into_iter().for_each(|victim| simulation.die(victim));
            prop_assert_eq!(simulation.finished, None);
            prop_assert!(!simulation.manager.course.is_ending());
            for rank in (0..degrees.len()).filter(|rank| degrees[*rank] > 1).map(|rank| VirtualRank(rank as u32)) {
                prop_assert!(simulation.manager.view().live(rank).any(|replica| replica.index.0 != 0));
            }
        }
    }
}
