use super::*;
use proptest::prelude::*;
use redrt_wire::clone::{CloneOrder, Position};

use redrt_types::ReplicaIndex;
use std::collections::BTreeSet;

fn settings(degrees: &[u16]) -> Settings {
    Settings {
        world: World::new(degrees.to_vec()),
        timeout: None,
        death_time_max: Duration::from_secs(2),
        abort_on_mismatch: false,
        timed_kills: Vec::new(),
        random_kills: None,
    }
}

/// A coordinator and what came out of it, in words.
struct Table {
    coordinator: Coordinator,
    now: Duration,
}

impl Table {
    fn new(degrees: &[u16]) -> Self {
        Self { coordinator: Coordinator::new(settings(degrees)), now: Duration::ZERO }
    }

    fn card(&self, replica: ReplicaId) -> Card {
        Card { process: self.coordinator.world().process(replica), host_number: 0, pid: 1, data: None }
    }

    /// One step such as `0.1 ready`, `0.1 exit 3`, `0.1 signal 9`, `wait 5`, `interrupt 2`.
    fn step(&mut self, step: &str) -> String {
        let words: Vec<_> = step.split(' ').collect();
        let number = || words.last().unwrap().parse::<i32>().unwrap();
        let inputs = match words[0] {
            "wait" => {
                self.now += Duration::from_secs(number() as u64);
                vec![Input::Tick]
            }
            "interrupt" => vec![Input::Interrupted(number())],
            "clone" => self.clone_step(words[1], words[2].parse().unwrap()),
            "host" => {
                let (name, number) = (words[1].to_owned(), number() as u64);
                let world = self.coordinator.world().clone();
                let replicas = world.replicas().filter(|replica| u64::from(replica.index.0) == number).collect();
                vec![Input::DaemonLost { host: name, why: String::new(), replicas }]
            }
            replica => self.replica_step(replica.parse().unwrap(), words[1], number),
        };
        for input in inputs {
            self.coordinator.handle(self.now, input);
        }
        std::iter::from_fn(|| self.coordinator.poll_output())
            .filter_map(|output| words_for(&output))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// A host says something of the only clone, or the last one begun.
    fn clone_step(&self, verb: &str, host: u32) -> Vec<Input> {
        let (id, newcomer) = self.coordinator.attempts().last().expect("a clone is under way");
        let step = match verb {
            "listening" => CloneStep::Listening(([127, 0, 0, 1], 9).into()),
            "ready" => CloneStep::Ready,
            "stopped" => CloneStep::Stopped(Position { output_bytes: 7, ..Position::default() }),
            "running" => CloneStep::Running { pid: 3 },
            "failed" => CloneStep::Failed { what: format!("no copy of {}", newcomer.source) },
            other => panic!("no such step: {other}"),
        };
        vec![Input::Clone { host, id, step }]
    }

    fn replica_step(&self, replica: ReplicaId, verb: &str, number: impl Fn() -> i32) -> Vec<Input> {
        let gone = |exit| vec![Input::Exited(replica, exit), Input::Drained(replica)];
        match verb {
            "hello" => vec![Input::Agent(replica, FromAgent::Hello)],
            "ready" => vec![
                Input::Agent(replica, FromAgent::Hello),
                Input::Agent(replica, FromAgent::Ready(self.card(replica))),
            ],
            "finalizing" => vec![Input::Agent(replica, finalizing(number() as u64))],
            "exit" => gone(Exit::Status(number())),
            "signal" => gone(Exit::Signal(number())),
            "passive" | "stray" => {
                let passive =
                    Passive { view: ViewNumber(0), sent_bytes: 0, received_bytes: 0, waits_for: vec![verb.to_owned()] };
                vec![Input::Agent(
                    replica,
                    FromAgent::Answer {
                        wave: number() as u64,
                        passive: Some(passive),
                        statistics: Statistics::default(),
                    },
                )]
            }
            "busy" => vec![Input::Agent(
                replica,
                FromAgent::Answer { wave: number() as u64, passive: None, statistics: Statistics::default() },
            )],
            "abort" => vec![Input::Agent(replica, FromAgent::Abort { code: number(), message: String::new() })],
            "pinned" => {
                let newcomer = self.coordinator.attempts().next().expect("a clone is under way").1.replica;
                vec![Input::Agent(replica, FromAgent::Pinned(newcomer))]
            }
            "card" => vec![Input::Agent(replica, FromAgent::Ready(self.card(replica)))],
            "in-step" => vec![Input::Agent(replica, FromAgent::InStep)],
            other => panic!("no such step: {other}"),
        }
    }
}

fn finalizing(view: u64) -> FromAgent {
    FromAgent::Finalizing { view: ViewNumber(view), statistics: Statistics::default() }
}

fn words_for(output: &Output) -> Option<String> {
    Some(match output {
        Output::Send(ToDaemon::Cards(cards)) => format!("{} cards", cards.len()),
        Output::Send(ToDaemon::View(view)) => format!("view {}", view.number.0),
        Output::Send(ToDaemon::Release) => "release".into(),
        Output::Send(ToDaemon::Ask { .. }) => "ask".into(),
        Output::Send(ToDaemon::KillAll) => "kill all".into(),
        Output::Send(ToDaemon::Signal(signal)) => format!("signal {signal}"),
        Output::Send(other) => format!("{other:?}"),
        Output::SendTo(host, ToDaemon::Clone { order, .. }) => {
            let order = match order {
                CloneOrder::Receive(newcomer) => format!("receive {} from {}", newcomer.replica, newcomer.source),
                CloneOrder::Send { .. } => "send".into(),
                CloneOrder::Cut => "cut".into(),
                CloneOrder::Meet { cards, .. } => format!("meet {}", cards.len()),
                CloneOrder::Abandon => "abandon".into(),
            };
            format!("host {host}: {order}")
        }
        Output::StreamJoined { replica, source, offset } => format!("stream {replica} from {source} at {offset}"),
        Output::Report(Report::Recovered(recovered)) => format!("recovered {}", recovered.replica),
        Output::Report(Report::NoSpare { replica }) => format!("no spare for {replica}"),
        Output::StreamLost(replica) => format!("stream {replica} lost"),
        Output::Report(Report::Ending(_)) => "ending".into(),
        Output::Report(Report::Lost(loss)) => format!("lost {}", loss.replica),
        Output::Finish(code) => format!("finish {code}"),
        Output::SendTo(_, other) => format!("{other:?}"),
        Output::Report(_) | Output::StreamEnded { .. } | Output::Moved { .. } | Output::Progress { .. } => return None,
    })
}

fn check(degrees: &[u16], steps: &[(&str, &str)]) {
    check_table(Table::new(degrees), steps);
}

fn check_table(mut table: Table, steps: &[(&str, &str)]) {
    for (number, (step, expected)) in steps.iter().enumerate() {
        assert_eq!(table.step(step), *expected, "step {number} ({step}) of {steps:?}");
    }
}

#[test]
fn a_good_job_meets_twice_and_finishes() {
    check(
        &[2],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", "2 cards"),
            ("0.0 finalizing 0", ""),
            ("0.1 finalizing 0", "release"),
            ("0.1 exit 0", ""),
            ("0.0 exit 0", "finish 0"),
        ],
    );
}

#[test]
fn a_loss_makes_a_view_and_takes_back_finalizing() {
    check(
        &[2, 1],
        &[
            ("0.0 ready", ""),
            ("1.0 ready", ""),
            ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1, 2 cards"),
            ("0.0 finalizing 0", ""),
            ("1.0 finalizing 0", ""),
            ("1.0 finalizing 1", ""),
            ("0.0 finalizing 1", "release"),
            ("0.0 exit 0", ""),
            ("1.0 exit 0", "finish 0"),
        ],
    );
}

#[test]
fn a_loss_after_finalizing_completes_the_barrier_only_in_the_new_view() {
    check(
        &[2],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", "2 cards"),
            ("0.0 finalizing 0", ""),
            ("0.1 signal 11", "stream 0.1 lost, lost 0.1, view 1"),
            ("0.0 finalizing 1", "release"),
        ],
    );
}

#[test]
fn exit_before_finalize_ends_the_job_with_that_status() {
    check(
        &[2, 2],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", ""),
            ("0.0 exit 3", "stream 0.0 lost, lost 0.0, view 1"),
            ("0.1 exit 3", "stream 0.1 lost, ending"),
            ("wait 1", "kill all"),
            ("1.0 signal 9", ""),
            ("1.1 signal 9", "finish 3"),
        ],
    );
}

#[test]
fn leaving_silently_before_finalize_is_no_success() {
    check(
        &[1, 1],
        &[
            ("0.0 ready", ""),
            ("0.0 exit 0", "stream 0.0 lost, ending"),
            ("wait 1", "kill all"),
            ("1.0 signal 9", "finish 1"),
        ],
    );
}

#[test]
fn programs_without_mpi_just_exit() {
    check(&[2, 1], &[("0.0 exit 0", ""), ("1.0 exit 0", ""), ("0.1 exit 0", "finish 0")]);
    check(&[1, 1], &[("1.0 exit 4", "stream 1.0 lost, ending"), ("0.0 exit 7", "finish 7")]);
    check(
        &[1, 1],
        &[("1.0 signal 11", "stream 1.0 lost, ending"), ("wait 1", "kill all"), ("0.0 signal 9", "finish 139")],
    );
}

#[test]
fn a_rank_that_misses_init_does_not_hang_the_others() {
    check(
        &[1, 1],
        &[("0.0 exit 0", ""), ("1.0 hello", "ending"), ("wait 1", "kill all"), ("1.0 signal 9", "finish 1")],
    );
    check(
        &[1, 1],
        &[("1.0 hello", ""), ("0.0 exit 0", "ending"), ("wait 1", "kill all"), ("1.0 signal 9", "finish 1")],
    );
}

#[test]
fn a_job_in_which_nobody_can_go_on_is_ended() {
    check(
        &[1, 1],
        &[
            ("0.0 ready", ""),
            ("1.0 ready", "2 cards"),
            ("wait 1", ""),
            ("wait 1", "ask"),
            ("0.0 busy 1", ""),
            ("1.0 passive 1", ""),
            ("wait 2", "ask"),
            ("0.0 passive 2", ""),
            ("1.0 passive 2", "ask"),
            ("0.0 passive 3", ""),
            ("1.0 passive 3", "ending"),
            ("wait 1", "kill all"),
            ("0.0 signal 9", ""),
            ("1.0 signal 9", "finish 1"),
        ],
    );
}

#[test]
fn a_stray_is_retired_where_two_siblings_agree() {
    check(
        &[3],
        &[
            ("0.0 ready", ""),
            ("0.1 ready", ""),
            ("0.2 ready", "3 cards"),
            ("wait 2", "ask"),
            ("0.0 passive 1", ""),
            ("0.1 stray 1", ""),
            ("0.2 passive 1", "ask"),
            ("0.0 passive 2", ""),
            ("0.1 stray 2", ""),
            ("0.2 passive 2", "Kill(ReplicaId { rank: VirtualRank(0), index: ReplicaIndex(1) })"),
            ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1"),
        ],
    );
}

#[test]
fn a_second_init_does_not_hang() {
    check(
        &[1],
        &[
            ("0.0 ready", "1 cards"),
            ("0.0 finalizing 0", "release"),
            ("0.0 hello", "ending"),
            ("wait 1", "kill all"),
            ("0.0 signal 9", "finish 1"),
        ],
    );
}

#[test]
fn abort_signals_and_timeout_decide_the_exit_code() {
    check(&[1, 1], &[("0.0 abort 7", "ending"), ("1.0 signal 9", ""), ("0.0 exit 0", "finish 7")]);
    check(&[1], &[("interrupt 2", "ending, signal 15"), ("0.0 exit 0", "finish 130")]);
    check(
        &[1],
        &[
            ("interrupt 15", "ending, signal 15"),
            ("wait 4", ""),
            ("wait 2", "kill all"),
            ("0.0 signal 9", "finish 143"),
        ],
    );
    check(&[1], &[("interrupt 2", "ending, signal 15"), ("interrupt 2", "kill all"), ("0.0 signal 9", "finish 130")]);
    let mut table = Table::new(&[1]);
    table.coordinator.settings.timeout = Some(Duration::from_secs(3));
    assert_eq!(table.step("wait 2"), "");
    assert_eq!(table.step("wait 1"), "ending, signal 15");
    assert_eq!(table.step("0.0 signal 15"), "finish 124");
}

#[test]
fn processes_that_cannot_be_killed_do_not_keep_the_job() {
    check(&[1], &[("0.0 abort 7", "ending"), ("wait 1", "kill all"), ("wait 1", ""), ("wait 2", "finish 7")]);
}

#[test]
fn status_after_finalize_counts() {
    check(
        &[1, 1],
        &[
            ("0.0 ready", ""),
            ("1.0 ready", "2 cards"),
            ("0.0 finalizing 0", ""),
            ("1.0 finalizing 0", "release"),
            ("1.0 exit 5", ""),
            ("0.0 exit 0", "finish 5"),
        ],
    );
}

#[test]
fn a_kill_after_release_is_made_good_by_a_sibling() {
    let together =
        [("0.0 ready", ""), ("0.1 ready", "2 cards"), ("0.0 finalizing 0", ""), ("0.1 finalizing 0", "release")];
    let killed = [("0.1 signal 9", "stream 0.1 lost, lost 0.1"), ("0.0 exit 0", "finish 0")];
    check(&[2], &[&together[..], &killed[..]].concat());
    let crashed = [("0.1 signal 11", "stream 0.1 lost, lost 0.1"), ("0.0 signal 11", "finish 139")];
    check(&[2], &[&together[..], &crashed[..]].concat());
}

#[test]
fn a_lost_daemon_loses_its_spheres() {
    let mut table = Table::new(&[2]);
    table.step("0.0 ready");
    let replicas = vec![ReplicaId::new(0, 0), ReplicaId::new(0, 1)];
    table
        .coordinator
        .handle(table.now, Input::DaemonLost { why: "it does not answer".into(), host: "h".into(), replicas });
    let outputs: Vec<_> = std::iter::from_fn(|| table.coordinator.poll_output()).collect();
    assert!(outputs.iter().any(|output| matches!(output, Output::Finish(code) if *code != 0)), "{outputs:?}");
}

/// The processes of a job, each a script of its own, driven in any order.
struct Simulation {
    coordinator: Coordinator,
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
        let coordinator = Coordinator::new(settings(degrees));
        let count = coordinator.world().process_count() as usize;
        Self {
            coordinator,
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
        self.coordinator.handle(self.now, input);
        while let Some(output) = self.coordinator.poll_output() {
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
        self.coordinator.world().replica(redrt_types::ProcessIndex(process as u32))
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

    /// The next thing this process does of itself.
    fn go_on(&mut self, process: usize) {
        let replica = self.replica(process);
        match self.stages[process] {
            Stage::Started => {
                self.stages[process] = Stage::Ready;
                let card =
                    Card { process: self.coordinator.world().process(replica), host_number: 0, pid: 1, data: None };
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
    /// Whoever dies whenever: the job ends, and well if and only if no rank lost all its replicas.
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
    fn random_kills_leave_a_survivor(seed in any::<u64>(), degrees in proptest::collection::vec(1u16..4, 1..4)) {
        let mut settings = settings(&degrees);
        settings.random_kills = Some(RandomKills { mean_time: Duration::from_secs(1), seed });
        let mut simulation = Simulation::new(&degrees);
        simulation.coordinator = Coordinator::new(settings);
        for _ in 0..20 {
            simulation.now = simulation.coordinator.next_deadline().expect("kills go on");
            simulation.coordinator.handle(simulation.now, Input::Tick);
            let mut victims = Vec::new();
            while let Some(output) = simulation.coordinator.poll_output() {
                if let Output::Send(ToDaemon::Kill(replica)) = output {
                    victims.push(simulation.coordinator.world().process(replica).0 as usize);
                }
            }
            victims.into_iter().for_each(|victim| simulation.die(victim));
            prop_assert_eq!(simulation.finished, None);
            prop_assert!(simulation.coordinator.ending.is_none());
        }
    }
}

/// What the coordinator does when a process refuses a frame: the messages that follow.
fn after_refusals(degrees: &[u16], refusals: &[(&str, Option<&str>)]) -> String {
    let mut table = Table::new(degrees);
    let all: Vec<_> = table.coordinator.world().replicas().collect();
    for replica in &all {
        table.step(&format!("{replica} ready"));
    }
    let mut said = Vec::new();
    for (by, peer) in refusals {
        let peer = peer.map(|peer| peer.parse().unwrap());
        let refused = FromAgent::Refused { peer, what: "sent rubbish".into() };
        table.coordinator.handle(table.now, Input::Agent(by.parse().unwrap(), refused));
        said.extend(std::iter::from_fn(|| table.coordinator.poll_output()).filter_map(|output| match output {
            Output::Report(report @ (Report::Retired { .. } | Report::Ending(_))) => {
                Some(report.line(&|_| "h".into()).expect("it has a line").1)
            }
            _ => None,
        }));
    }
    said.join("\n")
}

#[test]
fn whoever_sends_rubbish_goes_if_its_rank_can_do_without_it() {
    let said = after_refusals(&[2, 2], &[("0.0", Some("1.1"))]);
    assert!(said.starts_with("retiring replica 1.1 on h: it sent what no sound process sends: replica 0.0"), "{said}");
    // The last of its rank: the other goes instead.
    let said = after_refusals(&[2, 1], &[("0.0", Some("1.0"))]);
    assert!(said.starts_with("retiring replica 0.0 "), "{said}");
    // Nobody can go.
    let said = after_refusals(&[1, 1], &[("0.0", Some("1.0"))]);
    assert!(
        said.contains("replica 0.0 refused a frame: replica 1.0 sent rubbish") && said.contains("ending"),
        "{said}"
    );
    // Who sent it is unknown.
    assert!(after_refusals(&[2, 2], &[("0.1", None)]).starts_with("retiring replica 0.1 "));
    // One that refuses two is likelier to be wrong than both.
    let said = after_refusals(&[3, 2, 2], &[("0.0", Some("1.1")), ("0.0", Some("2.1"))]);
    assert!(said.contains("retiring replica 1.1 ") && said.contains("retiring replica 0.0 "), "{said}");
    // Two that refuse the same are heard once.
    assert_eq!(after_refusals(&[2, 2], &[("0.0", Some("1.1")), ("0.1", Some("1.1"))]).lines().count(), 1);
}

#[test]
fn a_process_that_speaks_of_strangers_is_not_believed() {
    for message in [
        FromAgent::Suspect(ReplicaId::new(7, 0)),
        FromAgent::Refused { peer: Some(ReplicaId::new(0, 9)), what: String::new() },
        FromAgent::Ready(Card { process: redrt_types::ProcessIndex(3), host_number: 0, pid: 1, data: None }),
        FromAgent::Event(Event::Injected { replica: ReplicaId::new(9, 9), fault: String::new() }),
    ] {
        let mut table = Table::new(&[2, 2]);
        table.coordinator.handle(table.now, Input::Agent(ReplicaId::new(0, 1), FromAgent::Hello));
        table.coordinator.handle(table.now, Input::Agent(ReplicaId::new(0, 1), message));
        let outputs: Vec<_> = std::iter::from_fn(|| table.coordinator.poll_output()).collect();
        let is_kill = |output: &Output| matches!(output, Output::Send(ToDaemon::Kill(replica)) if *replica == ReplicaId::new(0, 1));
        assert!(outputs.iter().any(is_kill), "{outputs:?}");
    }
}

proptest! {
    /// Agents say anything in any order: the coordinator goes on, and ends when all processes have.
    #[test]
    fn anything_agents_say_is_heeded_or_refused(
        degrees in proptest::collection::vec(1u16..4, 1..4),
        said in proptest::collection::vec((any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 1..40), 0u8..6), 0..40),
    ) {
        let mut coordinator = Coordinator::new(settings(&degrees));
        let all: Vec<_> = coordinator.world().replicas().collect();
        let mut finished = false;
        let mut now = Duration::ZERO;
        for (who, bytes, kind) in said {
            let replica = all[who.index(all.len())];
            now += Duration::from_millis(1);
            // Any bytes in the shape of a message: variant first.
            let mut frame = (bytes.len() as u32 + 3).to_le_bytes().to_vec();
            frame.extend(redrt_wire::frame::WIRE_VERSION.to_le_bytes());
            frame.push(kind);
            frame.extend(&bytes);
            let mut reader = redrt_wire::frame::FrameReader::default();
            reader.push(&frame);
            if let Ok(Some(message)) = reader.next::<FromAgent>() {
                coordinator.handle(now, Input::Agent(replica, message));
            }
            while let Some(output) = coordinator.poll_output() {
                if let Output::Report(report) = output {
                    let _ = report.record(&|_| "h".into());
                    let _ = report.line(&|_| "h".into());
                }
            }
        }
        for replica in all {
            coordinator.handle(now, Input::Exited(replica, Exit::Status(0)));
            coordinator.handle(now, Input::Drained(replica));
        }
        while let Some(output) = coordinator.poll_output() {
            finished |= matches!(output, Output::Finish(_));
        }
        prop_assert!(finished);
    }
}

#[test]
fn of_two_living_processes_with_a_broken_connection_one_goes() {
    let suspects = |table: &mut Table, by: &str, suspect: &str| {
        let message = FromAgent::Suspect(suspect.parse().unwrap());
        table.coordinator.handle(table.now, Input::Agent(by.parse().unwrap(), message));
        while table.coordinator.poll_output().is_some() {}
    };
    let met = |degrees: &[u16]| {
        let mut table = Table::new(degrees);
        for replica in table.coordinator.world().replicas().collect::<Vec<_>>() {
            table.step(&format!("{replica} ready"));
        }
        table
    };
    // The suspect goes, if its rank has another.
    let mut table = met(&[2, 2]);
    suspects(&mut table, "0.0", "1.1");
    assert!(!table.step("wait 1").contains("Kill"));
    assert!(table.step("wait 2").contains("Kill(ReplicaId { rank: VirtualRank(1), index: ReplicaIndex(1) })"));
    // Else the one that says so.
    let mut table = met(&[2, 1]);
    suspects(&mut table, "0.1", "1.0");
    assert!(table.step("wait 2").contains("Kill(ReplicaId { rank: VirtualRank(0), index: ReplicaIndex(1) })"));
    // Else the job ends.
    let mut table = met(&[1, 1]);
    suspects(&mut table, "0.0", "1.0");
    // All wait for what was lost: that is no deadlock of the program.
    assert_eq!(table.step("0.0 passive 1") + &table.step("1.0 passive 1") + &table.step("1.0 passive 2"), "");
    assert!(table.step("wait 2").starts_with("ending"));
    // One that has died meanwhile was why.
    let mut table = met(&[2, 2]);
    suspects(&mut table, "0.0", "1.1");
    table.step("1.1 signal 9");
    assert!(!table.step("wait 2").contains("Kill"));
}

/// Two planes on hosts a and b, which meet; host c has two places for copies.
fn recovering(degrees: &[u16]) -> Table {
    let mut table = Table::new(degrees);
    let world = table.coordinator.world().clone();
    let room = |name: &str, spare_places| HostRoom { name: name.into(), spare_places };
    let hosts = vec![room("a", 0), room("b", 0), room("c", 2)];
    let host_of = world.replicas().map(|replica| u32::from(replica.index.0 % 2)).collect();
    table.coordinator.recover_with(Recovery::new(1, hosts, host_of, 4));
    for replica in world.replicas() {
        table.step(&format!("{replica} ready"));
    }
    table
}

const CLONED: [(&str, &str); 10] = [
    ("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 1, host 2: receive 0.1 from 0.0"),
    ("clone listening 2", "host 0: send"),
    ("clone ready 0", "Pin(ReplicaId { rank: VirtualRank(0), index: ReplicaIndex(1) })"),
    ("0.0 pinned", ""),
    ("1.0 pinned", ""),
    ("1.1 pinned", "host 0: cut"),
    ("clone stopped 0", ""),
    ("0.1 card", ""),
    ("clone running 2", "host 2: meet 4, stream 0.1 from 0.0 at 7, 1 cards, view 2"),
    ("0.1 in-step", "Unpin(ReplicaId { rank: VirtualRank(0), index: ReplicaIndex(1) }), recovered 0.1"),
];

#[test]
fn a_lost_replica_is_replaced_and_its_copy_finalizes_with_the_others() {
    let rest = [
        ("0.0 finalizing 2", ""),
        ("0.1 finalizing 2", ""),
        ("1.0 finalizing 2", ""),
        ("1.1 finalizing 2", "release"),
        ("0.0 exit 0", ""),
        ("0.1 exit 0", ""),
        ("1.0 exit 0", ""),
        ("1.1 exit 0", "finish 0"),
    ];
    check_table(recovering(&[2, 2]), &[&CLONED[..], &rest[..]].concat());
}

#[test]
fn a_copy_that_is_lost_is_replaced_like_any_other() {
    let again = [("0.1 signal 9", "stream 0.1 lost, lost 0.1, view 3, host 1: receive 0.1 from 0.0")];
    check_table(recovering(&[2, 2]), &[&CLONED[..], &again[..]].concat());
}

#[test]
fn a_clone_whose_source_is_lost_is_given_up() {
    let mut table = recovering(&[3, 1]);
    for step in ["0.1 signal 9", "clone listening 2", "clone ready 0"] {
        table.step(step);
    }
    let words = table.step("0.2 signal 9");
    assert_eq!(
        words,
        "stream 0.2 lost, lost 0.2, view 2, Unpin(ReplicaId { rank: VirtualRank(0), index: ReplicaIndex(1) }), \
         host 0: abandon, host 2: abandon, host 1: receive 0.2 from 0.0"
    );
}

#[test]
fn a_failed_clone_is_tried_again_after_a_rest() {
    let mut table = recovering(&[2, 1]);
    table.step("0.1 signal 9");
    assert_eq!(table.step("clone failed 2"), "host 0: abandon, host 2: abandon");
    assert_eq!(table.step("wait 0"), "");
    assert_eq!(table.step("wait 5"), "host 1: receive 0.1 from 0.0, ask");
}

#[test]
fn a_partner_that_dies_is_not_waited_for() {
    let mut table = recovering(&[2, 2]);
    for step in ["0.1 signal 9", "clone listening 2", "clone ready 0", "0.0 pinned", "1.0 pinned"] {
        table.step(step);
    }
    let words = table.step("1.1 signal 9");
    assert!(words.starts_with("stream 1.1 lost, lost 1.1, view 2, host 0: cut"), "{words}");
}

#[test]
fn without_a_spare_the_job_goes_on() {
    let mut table = Table::new(&[2]);
    let room = |name: &str| HostRoom { name: name.into(), spare_places: 0 };
    table.coordinator.recover_with(Recovery::new(1, vec![room("a"), room("b")], vec![0, 1], 4));
    table.step("0.0 ready");
    table.step("0.1 ready");
    assert_eq!(table.step("host b 1"), "stream 0.1 lost, lost 0.1, view 1, no spare for 0.1");
    assert_eq!(table.step("0.0 finalizing 1"), "release");
    assert_eq!(table.step("0.0 exit 0"), "finish 0");
}

#[test]
fn clones_under_way_are_given_up_when_all_finalize() {
    let mut table = recovering(&[2]);
    for step in ["0.1 signal 9", "clone listening 2"] {
        table.step(step);
    }
    assert_eq!(table.step("0.0 finalizing 1"), "host 0: abandon, host 2: abandon, release");
    assert_eq!(table.step("0.0 exit 0"), "finish 0");
}

#[test]
fn a_connection_that_broke_with_the_dead_is_not_held_against_the_copy() {
    let suspect = |table: &mut Table, by: &str, replica: &str| {
        let input = Input::Agent(by.parse().unwrap(), FromAgent::Suspect(replica.parse().unwrap()));
        table.coordinator.handle(table.now, input);
    };
    let mut table = recovering(&[2, 2]);
    suspect(&mut table, "1.0", "0.1");
    for (step, expected) in CLONED {
        assert_eq!(table.step(step), expected);
        if step == "clone listening 2" {
            suspect(&mut table, "1.1", "0.1");
        }
    }
    assert_eq!(table.step("wait 5"), "ask");
}
