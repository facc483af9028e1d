//! The replication manager, driven by tables of steps and by proptest.

mod arbitration;
mod checkpoints;
mod determinism;
mod endings;
mod health;
mod moves;
mod planes;
mod proof;
mod recovery;
mod refusals;
mod simulation;

use super::simulation::{card, settings};
use super::*;
use redrt_types::{ReplicaId, View, ViewNumber, VirtualRank, World};
use redrt_wire::card::Card;
use redrt_wire::clone::{CloneOrder, CloneStep, Cost, Position};
use redrt_wire::control::{FromAgent, OnSdc, Passive};
use redrt_wire::event::{Action, Event, Statistics};
use redrt_wire::no_image::{NoImage, ReportedFailure};
use redrt_wire::scrub::Scrub;
use spare_pool::{JobId, Request};
use spare_pool::{PlaceNews, Places};

/// A replication manager, with its outputs in words.
struct StepTable {
    manager: ReplicationManager,
    now: Duration,
    places: Places,
    /// Names of the hosts, by number.
    hosts: Vec<String>,
}

impl StepTable {
    fn new(degrees: &[u16]) -> Self {
        Self::with(settings(degrees))
    }

    fn with(settings: Settings) -> Self {
        let places = Places::new(1, None, Request::new(JobId(1)));
        Self { manager: ReplicationManager::new(settings), now: Duration::ZERO, places, hosts: Vec::new() }
    }

    fn card(&self, replica: ReplicaId) -> Card {
        card(self.manager.world().process(replica))
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
            "user" => vec![Input::Signalled { number: 7, signal: number() }],
            "stand" | "go" => vec![Input::Suspended(words[0] == "stand")],
            "clone" => self.clone_step(false, words[1], words[2].parse().unwrap()),
            "first" => self.clone_step(true, words[1], words[2].parse().unwrap()),
            "host" => {
                let (name, number) = (words[1].to_owned(), number() as u64);
                let world = self.manager.world().clone();
                let replicas = world.replicas().filter(|replica| u64::from(replica.index.0) == number).collect();
                vec![Input::DaemonLost { host: name, why: String::new(), replicas }]
            }
            replica => self.replica_step(replica.parse().unwrap(), words[1], number),
        };
        for input in inputs {
            if let Input::DaemonLost { host, .. } = &input {
                self.places.remove(host, self.now);
            }
            self.manager.handle(self.now, input);
        }
        self.places.work(self.now);
        self.said().join(", ")
    }

    /// The outputs, until the pool has no more news either.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            while let Some(output) = self.manager.poll_output() {
                said.extend(words_for(&output));
                if let Output::Place(order) = output {
                    self.places.obey(order, self.now);
                }
            }
            let Some(news) = self.places.poll_news() else { return said };
            let host = match &news {
                PlaceNews::Granted { spare, .. } => {
                    self.hosts.iter().position(|name| *name == spare.name).map(|host| host as u32)
                }
                _ => None,
            };
            self.manager.handle(self.now, Input::Place { news, host });
        }
    }

    /// Makes a request. Returns its error, if any, and the outputs.
    fn request(&mut self, request: ChangeRequest, room: Option<u32>) -> String {
        match self.manager.request(self.now, request, room) {
            Ok(()) => self.said().join(", "),
            Err(error) => error.to_string(),
        }
    }

    /// A host reports a step of the only clone, or of the latest one. With several clones it means the first.
    fn clone_step(&self, is_first: bool, verb: &str, host: u32) -> Vec<Input> {
        let mut attempts = self.manager.attempts();
        let attempt = if is_first { attempts.next() } else { attempts.last() };
        let (id, newcomer) = attempt.expect("a clone is under way");
        let step = match verb {
            "listening" => CloneStep::Listening(([127, 0, 0, 1], 9).into()),
            "ready" => CloneStep::Ready,
            "stopped" => CloneStep::Stopped(Position { output_bytes: 7, ..Position::default() }),
            "running" => CloneStep::Running { pid: 3 },
            "sent" => CloneStep::Sent(Cost { stopped_ns: 5, ..Cost::default() }),
            "failed" | "refused" => CloneStep::Failed(NoImage::Helper(ReportedFailure {
                sentence: format!("no copy of {}", newcomer.source),
                is_lasting: verb == "refused",
            })),
            "short" => CloneStep::Failed(NoImage::NotEnoughMemory { needed_bytes: 9, free_bytes: 8 }),
            "killed" => CloneStep::Failed(NoImage::CopyEnded(Exit::OutOfMemory)),
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
            "out-of-memory" => gone(Exit::OutOfMemory),
            "resident" => {
                let statistics = Statistics { resident_bytes: number() as u64, ..Statistics::default() };
                vec![Input::Agent(replica, FromAgent::Answer { wave: 0, passive: None, waits: false, statistics })]
            }
            "passive" | "stray" => {
                let passive = Passive {
                    view: ViewNumber(0),
                    sent_bytes: 0,
                    received_bytes: 0,
                    places: 0,
                    waits_for: vec![verb.to_owned()],
                    awaits_leader: false,
                };
                vec![Input::Agent(
                    replica,
                    FromAgent::Answer {
                        wave: number() as u64,
                        passive: Some(passive),
                        waits: true,
                        statistics: Statistics::default(),
                    },
                )]
            }
            "busy" => vec![Input::Agent(
                replica,
                FromAgent::Answer {
                    wave: number() as u64,
                    passive: None,
                    waits: false,
                    statistics: Statistics::default(),
                },
            )],
            "shares" => vec![Input::Agent(replica, FromAgent::Shares(vec![]))],
            "shares-with-0" => vec![Input::Agent(replica, FromAgent::Shares(vec![VirtualRank(0), replica.rank]))],
            "abort" => vec![Input::Agent(replica, FromAgent::Abort { code: number(), message: String::new() })],
            "pinned" => {
                let newcomer = self.manager.attempts().next().expect("a clone is under way").1.replica;
                vec![Input::Agent(replica, FromAgent::Pinned(vec![newcomer]))]
            }
            "card" => vec![Input::Agent(replica, FromAgent::Ready(self.card(replica)))],
            "in-step" => vec![Input::Agent(replica, FromAgent::InStep)],
            other => panic!("no such step: {other}"),
        }
    }
}

fn finalizing(view: u64) -> FromAgent {
    FromAgent::Finalizing {
        view: ViewNumber(view),
        statistics: Statistics::default(),
        coverage: Vec::new(),
        profile: None,
    }
}

fn words_for(output: &Output) -> Option<String> {
    Some(match output {
        Output::Send(ToDaemon::Cards(cards)) => format!("{} cards", cards.len()),
        Output::Send(ToDaemon::View(view)) => format!("view {}", view.number.0),
        Output::Send(ToDaemon::Release) => "release".into(),
        Output::Send(ToDaemon::Ask { .. }) => "ask".into(),
        Output::Send(ToDaemon::KillAll) => "kill all".into(),
        Output::Send(ToDaemon::Signal(signal)) => format!("signal {signal}"),
        Output::Send(ToDaemon::Deliver { signal, .. }) => format!("deliver {signal}"),
        Output::Send(ToDaemon::Suspend(stands_still)) => (if *stands_still { "suspend" } else { "go on" }).into(),
        Output::SendTo(host, ToDaemon::Clone { order, .. }) => {
            let order = match order {
                CloneOrder::Receive { newcomer, memory_bytes: 0 } => {
                    format!("receive {} from {}", newcomer.replica, newcomer.source)
                }
                CloneOrder::Receive { newcomer, memory_bytes } => {
                    format!("receive {} from {} with {memory_bytes}", newcomer.replica, newcomer.source)
                }
                CloneOrder::Send { .. } => "send".into(),
                CloneOrder::Cut => "cut".into(),
                CloneOrder::Meet { cards, .. } => format!("meet {}", cards.len()),
                CloneOrder::Abandon => "abandon".into(),
            };
            format!("host {host}: {order}")
        }
        Output::Kinship(rank, kinship) => {
            let image_group = |image_group: &redrt_types::ImageGroup| {
                let members: Vec<_> = image_group.members.iter().map(|index| index.0.to_string()).collect();
                members.join(" ")
            };
            let image_groups: Vec<_> = kinship.image_groups().iter().map(image_group).collect();
            format!("kin in rank {}: {}", rank.0, image_groups.join(", "))
        }
        Output::StreamJoined { replica, source, offset, .. } => format!("stream {replica} from {source} at {offset}"),
        Output::Report(Report::Recovered(recovered)) => match recovered.cost {
            Some(_) => format!("recovered {}", recovered.replica),
            None => format!("recovered {} at unknown cost", recovered.replica),
        },
        Output::Report(Report::CloneFailed { replica, why, .. }) if why.is_want_of_memory() => {
            format!("{replica} waits for memory")
        }
        Output::Report(Report::CloneFailed { replica, why: CloneFailure::SharesMemory, .. }) => {
            format!("{replica} stays empty")
        }
        Output::Report(Report::PlaneLost { replica, others }) => format!("{} go with {replica}", others.len()),
        Output::Report(Report::NoSpare { replica, .. }) => format!("no spare for {replica}"),
        Output::Report(Report::Left { replica }) => format!("{replica} has left"),
        Output::Report(Report::Stays { replica, .. }) => format!("{replica} stays"),
        Output::Report(Report::HostFree { host }) => format!("{host} is free"),
        Output::Report(Report::Strike { replica, count, limit }) => format!("strike {count} of {limit} for {replica}"),
        Output::Report(Report::SlowHost(slow)) => {
            format!("the host of {} is {:.1} times slower", slow.replica, slow.factor)
        }
        Output::Report(Report::CopyUnproven { replica, why, .. }) => format!("{replica} unproven: {why:?}"),
        Output::Send(ToDaemon::Scrub(Scrub::Where { round })) => format!("where {round}"),
        Output::Send(ToDaemon::Scrub(Scrub::Orders { orders, .. })) => format!("compare at {}", orders[0].collective),
        Output::Report(Report::OneLineage(rank)) => format!("rank {} is of one lineage", rank.0),
        Output::Report(Report::HostBad { last, is_drained, .. }) => {
            format!("the host of {last} is bad and {}", if *is_drained { "drained" } else { "stays" })
        }
        Output::Send(ToDaemon::Pins(pins)) => {
            let names = |places: &[ReplicaId]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
            let awaited = if pins.awaited.is_empty() { "none".into() } else { names(&pins.awaited) };
            let ready = if pins.ready.is_empty() { String::new() } else { format!(" ready {}", names(&pins.ready)) };
            format!("pins {awaited}{ready}")
        }
        Output::Report(Report::CopyHeld { replica, source }) => format!("{replica} of {source} is held"),
        Output::Report(Report::NotHeld { rank, .. }) => format!("nothing held of {rank}"),
        Output::Report(Report::Arbitrated(arbitration)) => match arbitration.culprit {
            Some(culprit) => format!("{culprit} is wrong"),
            None => format!("rank {} is open", arbitration.rank),
        },
        Output::Send(ToDaemon::Kill(replica)) => format!("kill {replica}"),
        Output::Expel { host, by } => format!("expel {host}, not heard by {by}"),
        Output::StreamLost(replica) => format!("stream {replica} lost"),
        Output::Report(Report::Ending(_)) => "ending".into(),
        Output::Report(Report::Lost(loss)) => format!("lost {}", loss.replica),
        Output::Finish(code) => format!("finish {code}"),
        Output::Send(other) | Output::SendTo(_, other) => format!("{other:?}"),
        Output::Report(_)
        | Output::Place(_)
        | Output::Vacated(_)
        | Output::HostFree(_)
        | Output::StreamEnded { .. }
        | Output::Moved { .. }
        | Output::Progress { .. }
        | Output::OpenCheckpoint(_)
        | Output::CommitCheckpoint(_)
        | Output::DropCheckpoint(_)
        | Output::ProveCheckpoint { .. }
        | Output::Restart { .. } => return None,
    })
}

fn check(degrees: &[u16], steps: &[(&str, &str)]) {
    check_table(StepTable::new(degrees), steps);
}

fn check_table(mut table: StepTable, steps: &[(&str, &str)]) {
    for (number, (step, expected)) in steps.iter().enumerate() {
        assert_eq!(table.step(step), *expected, "step {number} ({step}) of {steps:?}");
    }
}

/// Two planes on hosts a and b, which have met. Host c has two places for copies. Each rank has one place more than
/// replicas.
fn recovering(degrees: &[u16]) -> StepTable {
    recovering_with(degrees, settings(degrees))
}

fn recovering_with(degrees: &[u16], settings: Settings) -> StepTable {
    let world = World::new(degrees.iter().map(|degree| degree + 1).collect());
    let view = View::with_degrees(&world, degrees);
    let mut table = StepTable::with(Settings { world: world.clone(), view: view.clone(), ..settings });
    table.hosts = ["a", "b", "c"].map(str::to_owned).to_vec();
    table.places.add("c", 2, Duration::ZERO);
    let host_of = world.replicas().map(|replica| u32::from(replica.index.0 % 2)).collect();
    table.manager.recover_with(Recovery::new(table.hosts.clone(), degrees.to_vec(), host_of, 4));
    for replica in world.replicas().filter(|replica| view.is_live(*replica)) {
        table.step(&format!("{replica} ready"));
    }
    table
}
