//! Engines of two ranks over a network that is not the library's own: point-to-point messages of all kinds.

pub mod alone;
mod followers;
mod unix;

use super::link::{Identity, Links};
use super::outgoing::OutgoingId;
use super::payload::{Payload, Target};
use super::replication::Replication;
use super::request::RequestId;
use super::send::{SendArguments, Sent};
use super::{Engine, Setup};
use alone::Alone;
use redrt_transport::network::Network;
use redrt_types::{Incarnation, ProcessIndex, ReplicaId, View, VirtualRank, World};
use redrt_wire::card::{Card, Endpoint};
use redrt_wire::control::{Options, Transport};
use redrt_wire::secret::Secret;
use sdc_detect::Element;
use std::ops::RangeFrom;
use std::sync::Arc;
use unix::{Listener, Unix};

/// The protocol of a replica, with common settings.
pub fn replication(world: &World, me: ReplicaId, seed: u64) -> Replication {
    let replica = quiesce::Replica::new(quiesce::Config {
        me,
        world: world.clone(),
        view: View::initial(world),
        protocol: quiesce::Protocol::Hash,
        verification: quiesce::Verification::Strict,
    });
    let options = Options { transport: Transport::Shm, seed, ..Options::default() };
    Replication::new(replica, &options, world.degree(me.rank) > 1)
}

/// Variants of sending and receiving.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Sends are synchronous.
    is_synchronous: bool,
    /// Receives are posted only once the first message has come.
    is_unexpected: bool,
    /// Receives take any source and tag.
    takes_any: bool,
}

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self {
            is_synchronous: bits & 1 != 0,
            is_unexpected: bits & 2 != 0,
            takes_any: bits & 4 != 0,
        })
    }
}

struct Job {
    engines: Vec<Engine>,
    listeners: Vec<Listener>,
    _directory: tempfile::TempDir,
}

impl Job {
    /// Makes a job of two ranks of this degree.
    fn new(degree: u16) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let world = World::uniform(2, degree);
        let address = |process: ProcessIndex| directory.path().join(process.0.to_string());
        let processes: Vec<_> = (0..world.process_count()).map(ProcessIndex).collect();
        let bind = |process: &ProcessIndex| Listener::bind(&address(*process)).expect("the path is free");
        let listeners = processes.iter().map(bind).collect();
        let card = |process: ProcessIndex| Card {
            process,
            host_number: process.0,
            host: String::new(),
            pid: 0,
            endpoints: vec![Endpoint { network: "unix".into(), address: address(process).display().to_string() }],
            early_threads: Vec::new(),
        };
        let engine = |me: ReplicaId| {
            let process = world.process(me);
            let networks: Arc<[Arc<dyn Network>]> = Arc::new([Arc::new(Unix)]);
            let identity = Identity {
                job: 1,
                me: process,
                incarnation: Incarnation(0),
                host_number: process.0,
                secret: Secret::new([0; 32]),
                segment: None,
                networks,
            };
            let mut links = Links::new(identity, world.process_count());
            processes.iter().for_each(|process| links.set_card(card(*process)));
            links.set_members(&world, &View::initial(&world));
            let replication = world.is_replicated().then(|| Box::new(replication(&world, me, 0)));
            let (shares_core, injection, traces, traffic) = (false, None, None, None);
            Engine::new(Setup {
                runtime: &Alone,
                me,
                world: world.clone(),
                links,
                shares_core,
                replication,
                injection,
                traces,
                traffic,
            })
        };
        let engines = world.replicas().map(engine).collect();
        Self { engines, listeners, _directory: directory }
    }

    fn of_rank(&self, rank: u32) -> Vec<usize> {
        (0..self.engines.len()).filter(|at| self.engines[*at].me.rank == VirtualRank(rank)).collect()
    }

    fn progress(&mut self) {
        self.progress_of(0..);
    }

    fn progress_of(&mut self, which: RangeFrom<usize>) {
        for (engine, listener) in self.engines.iter_mut().zip(&self.listeners).skip(which.start) {
            while let Some(incoming) = listener.accept() {
                engine.add_receiver(incoming);
            }
            engine.progress(1);
            engine.flush();
        }
    }

    fn receive(&mut self, places: &mut [Vec<Vec<u8>>], way: Way, requests: &mut Vec<(usize, RequestId)>) {
        let (source, tag) = if way.takes_any { (None, None) } else { (Some(0), Some(3)) };
        for (at, buffers) in self.of_rank(1).into_iter().zip(places) {
            for buffer in buffers {
                let target = Target { start: buffer.as_mut_ptr(), capacity: buffer.len() as u64, scatter: None };
                requests.push((at, self.engines[at].post(7, source, tag, target)));
            }
        }
    }

    /// Sends from rank 0 to rank 1, in each of their replicas, and waits until all messages have come.
    fn exchange(&mut self, lengths: &[usize], way: Way) {
        let word = |number: usize, at: usize| (number * 31 + at * 7) as u8;
        let contents: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(n, length)| (0..*length).map(|at| word(n, at)).collect()).collect();
        let mut requests: Vec<(usize, RequestId)> = Vec::new();
        let mut places: Vec<Vec<Vec<u8>>> =
            self.of_rank(1).iter().map(|_| contents.iter().map(|all| vec![0; all.len()]).collect()).collect();
        if !way.is_unexpected {
            self.receive(&mut places, way, &mut requests);
        }
        for at in self.of_rank(0) {
            for bytes in &contents {
                let arguments = SendArguments {
                    context: 7,
                    source: 0,
                    to: VirtualRank(1),
                    tag: 3,
                    payload: Payload::Owned(bytes.clone().into()),
                    element: Element::U8,
                    synchronous: way.is_synchronous,
                };
                if let sent @ Sent::Pending(OutgoingId(_)) = self.engines[at].send(arguments) {
                    requests.push((at, self.engines[at].send_request(sent)));
                }
            }
        }
        if way.is_unexpected {
            // Waits until the first message has come everywhere, with no receive posted for it.
            let waits = |engine: &Engine| engine.me.rank == VirtualRank(1) && engine.links.traffic().1 == 0;
            while self.engines.iter().any(waits) {
                self.progress();
            }
            self.receive(&mut places, way, &mut requests);
        }
        while !requests.iter().all(|(at, request)| self.engines[*at].requests.is_complete(*request)) {
            self.progress();
        }
        assert!(places.iter().all(|buffers| *buffers == contents));
    }
}

#[test]
fn messages_of_all_kinds_arrive_in_order_over_unix_sockets() {
    for degree in 1..=3 {
        for way in Way::all() {
            let mut job = Job::new(degree);
            job.exchange(&[0, 1, 8, 1000, 8 << 10, 9 << 10, 100_000, 3, 1 << 20, 17], way);
            let traffic = job.engines.iter().map(|engine| engine.links.traffic());
            let (sent, received) = traffic.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert!(sent >= received && received > 1 << 20, "{way:?}: {sent} bytes were sent, {received} taken");
        }
    }
}
