//! Control messages that are damaged under way, and strangers that answer a handshake with arbitrary bytes.

use crate::auth;
use crate::card::{Card, Endpoint};
use crate::checkpoint::{
    Building, CheckpointOrder, CheckpointStep, Compression, Generation, Image, Objects, PartOrder, PartStep, Place,
    Restore, Step, UndoPlace,
};
use crate::clone::{CloneId, CloneOrder, CloneStep, Cost, Newcomer, Pins, Position, Progress};
use crate::control::{
    CopyPlace, Determinism, Files, FromAgent, OnSdc, Options, Passive, Protocol, SharedMemory, Threads, ToAgent,
    Transport, Verification, Welcome, WelcomeError,
};
use crate::daemon::{Abi, Application, FromDaemon, HostName, Launch, Sign, ToDaemon, Watch};
use crate::dynamic::{self, NameAnswer, NameRequest, Origin, Request};
use crate::event::{Action, Coverage, Event, Excerpt, Finding, Mismatch, Statistics, Vote};
use crate::exit::Exit;
use crate::fault::ProcessFault;
use crate::frame::{FrameReader, decode_body, encode, encode_body};
use crate::lack::Lack;
use crate::no_image::{NoImage, ReportedFailure};
use crate::object::ObjectEntry;
use crate::profile::{CallKind, CallTime, ProcessProfile, SentTo};
use crate::scrub::{Answer, Order, Scrub, Stretch};
use crate::secret::Secret;
use crate::trace::{Frame, LockEvent, Sending, Trace, TracePoint};
use crate::tree::{Attach, Down, Question, Term, Up};
use proptest::prelude::*;
use redrt_types::{
    ContextId, Digest, Incarnation, ProcessIndex, ReplicaId, SeqNum, View, ViewNumber, VirtualRank, World,
};
use sdc_detect::Element;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

fn options() -> Options {
    Options {
        protocol: Protocol::Hash,
        verification: Verification::Strict,
        transport: Transport::Auto,
        determinism: Determinism::Full,
        files: Files::Once,
        threads: Threads::Order,
        on_sdc: OnSdc::Heal,
        seed: 7,
        sums_messages: true,
        scrubs: true,
        verifies_reads: false,
        verifies_clones: false,
        traces: false,
        checks_collectives: true,
        pedantic: true,
        profiles: true,
        is_saved: true,
    }
}

fn welcome() -> Welcome {
    let world = World::new(vec![2, 1, 3]);
    Welcome {
        job: 1,
        link_secret: Secret::new([5; 32]),
        me: ReplicaId::new(2, 1),
        incarnation: Incarnation(0),
        view: View::initial(&world).without(&[ReplicaId::new(0, 1)]),
        world,
        options: options(),
        host: "host".into(),
        host_number: 0,
        core_sharers: 6,
        shared_memory: Some(SharedMemory { fd: 201, slot_count: 6 }),
        windows: Some(204),
        neighborhood: VirtualRank(1),
        placed: ViewNumber(2),
        listen: ([127, 0, 0, 1], 0).into(),
        faults: vec![ProcessFault::Kill { send: 3 }],
        application: 0,
        origin: origin(),
    }
}

fn origin() -> Origin {
    Origin { tree: 4, parent_port: Some("port".into()), place_count: 8 }
}

fn spawned() -> dynamic::Command {
    dynamic::Command {
        program: "a.out".into(),
        arguments: vec!["-v".into()],
        rank_count: 2,
        directory: "/".into(),
        path: None,
        hosts: Some("h1,h2".into()),
        initial_errhandler: Some("mpi_errors_return".into()),
    }
}

fn launch() -> Launch {
    let Welcome { world, .. } = welcome();
    let view = View::initial(&world);
    let application = Application {
        program: "/bin/true".into(),
        arguments: vec!["true".into()],
        environment: vec![("A".into(), "B".into())],
        directory: "/".into(),
        abi: Abi::Mpich,
    };
    Launch {
        job: 1,
        placement: vec![0; world.process_count() as usize],
        world,
        view,
        options: options(),
        applications: vec![application],
        application_of_rank: vec![0; 3],
        faults: vec![(ReplicaId::new(0, 0), ProcessFault::FlipWire { send: 1, bit: 2 })],
        start_time_ns: 1,
        start_monotonic_ns: 2,
        host_name: "host".into(),
        cloneable: true,
        origin: origin(),
        allows_other_mpi: false,
        binding: crate::daemon::Binding::default(),
        slots: vec![(ReplicaId::new(0, 1), "0:0-2,1:*".parse().expect("they are cores"))],
        standard_input: true,
        restore: Some(Restore {
            generation: Generation(7),
            places: vec![Place { directory: "/store".into(), has_sources: true }; 2],
            has_logs_of_hosts: true,
            memories: vec!["/store/host-0.memory".into(); 2],
            parts: Vec::new(),
            objects: Some(Objects {
                sealed_access: vec![5; 40],
                wanted: vec![vec![ObjectEntry { key: "0.image".into(), path: "/x".into(), facts: None }]; 2],
            }),
            sealed_key: Some(vec![7; 100]),
            images: (0..6)
                .map(|process| (process == 0).then(|| Image { path: "/0.image".into(), position: position() }))
                .collect(),
        }),
    }
}

fn event() -> Event {
    let replica = ReplicaId::new(2, 1);
    Event::Mismatch(Box::new(Mismatch {
        receiver: ReplicaId::new(0, 0),
        sender: VirtualRank(2),
        supplier: replica,
        communicator: "MPI_COMM_WORLD".into(),
        context: ContextId(7),
        tag: -1,
        sequence: SeqNum(9),
        length_bytes: 8,
        payload: Digest(1),
        votes: vec![Vote { replica, digest: Digest(2), core: Some(1) }],
        element: Element::F64,
        excerpt: Some(Excerpt::Whole(vec![1; 8])),
        finding: Finding::ReplicaCorrupt,
        culprit: Some(replica),
        action: Action::Refetched,
        view: ViewNumber(2),
    }))
}

fn sending() -> Sending {
    Sending { to: VirtualRank(1), context: ContextId(2), sequence: SeqNum(3) }
}

fn pins() -> Pins {
    Pins { awaited: vec![ReplicaId::new(0, 1)], ready: vec![ReplicaId::new(2, 1); 2] }
}

fn position() -> Position {
    Position { output_bytes: 1 << 33, input: vec![7; 40], input_has_ended: true, lacks_script: true }
}

fn place() -> CopyPlace {
    CopyPlace {
        me: ReplicaId::new(2, 1),
        incarnation: Incarnation(1),
        host: "host".into(),
        host_number: 2,
        neighborhood: VirtualRank(1),
        placed: ViewNumber(2),
        core_sharers: 3,
        listen: ([127, 0, 0, 1], 0).into(),
        link_secret: Secret::new([6; 32]),
        is_restored: true,
        leads: true,
        undo: Some(UndoPlace::beside("/store/line-7".as_ref(), Generation(7), true)),
    }
}

fn passive() -> Passive {
    Passive {
        view: ViewNumber(3),
        sent_bytes: 1,
        received_bytes: 2,
        places: 3,
        waits_for: vec!["a message".into()],
        awaits_leader: true,
    }
}

/// All orders to daemons on a clone.
fn clone_orders(card: &Card) -> impl Iterator<Item = ToDaemon> {
    let newcomer =
        Newcomer { replica: ReplicaId::new(0, 1), incarnation: Incarnation(1), source: ReplicaId::new(0, 0) };
    let orders = [
        CloneOrder::Receive { newcomer, memory_bytes: 1 << 30 },
        CloneOrder::Send { newcomer, address: ([127, 0, 0, 1], 80).into() },
        CloneOrder::Cut,
        CloneOrder::Meet { cards: vec![card.clone(); 2], position: position() },
        CloneOrder::Abandon,
    ];
    orders.into_iter().map(|order| ToDaemon::Clone { id: CloneId(5), order })
}

/// All steps of daemons on a clone.
fn clone_steps() -> impl Iterator<Item = FromDaemon> {
    let steps = [
        CloneStep::Listening(([127, 0, 0, 1], 80).into()),
        CloneStep::Progress(Progress { round: 1, done_bytes: 2, total_bytes: 1 << 40, bytes_per_second: 3 }),
        CloneStep::Ready,
        CloneStep::Stopped(position()),
        CloneStep::Sent(Cost { round_count: 2, sent_bytes: 1 << 40, ..Cost::default() }),
        CloneStep::Running { pid: 7 },
        CloneStep::Failed(NoImage::Helper(ReportedFailure { sentence: "why".into(), is_lasting: true })),
        CloneStep::Failed(NoImage::CopyEnded(Exit::Signal(9))),
        CloneStep::Failed(NoImage::NotEnoughMemory { needed_bytes: 1 << 30, free_bytes: 1 << 20 }),
        CloneStep::Failed(NoImage::NotHere(ReplicaId::new(1, 0))),
    ];
    steps.into_iter().map(|step| FromDaemon::Clone { id: CloneId(5), step })
}

/// All orders to daemons on a checkpoint.
fn checkpoint_orders() -> impl Iterator<Item = ToDaemon> {
    let orders = [
        CheckpointOrder::Begin {
            sources: vec![ReplicaId::new(1, 0)],
            directory: "/store/line-7".into(),
            own_beside: Some(vec![Generation(6)]),
            building: Building::On(Generation(6)),
            compression: Compression::Lz4,
            sealed_key: Some(vec![7; 100]),
        },
        CheckpointOrder::Round,
        CheckpointOrder::Stop,
        CheckpointOrder::Rest,
        CheckpointOrder::Copy,
        CheckpointOrder::GoOn,
        CheckpointOrder::Abandon,
    ];
    orders.into_iter().map(|order| ToDaemon::Checkpoint { generation: Generation(7), order })
}

/// All orders to daemons on parts of checkpoints.
fn part_orders() -> impl Iterator<Item = ToDaemon> {
    let (directory, files) = (|| "/store/at-1/line-7".into(), || vec!["0.0.image".into(), "host-0.memory".into()]);
    let orders = [
        PartOrder::Keep { directory: directory(), own_beside: vec![Generation(6)], files: files() },
        PartOrder::Give { directory: directory(), files: files(), address: ([127, 0, 0, 1], 80).into() },
    ];
    orders.into_iter().map(|order| ToDaemon::Part { generation: Generation(7), source: 1, order })
}

fn part_steps() -> impl Iterator<Item = FromDaemon> {
    let steps = [
        PartStep::Listening(([127, 0, 0, 1], 80).into()),
        PartStep::Kept(1 << 40),
        PartStep::Failed(NoImage::NoHelper(ReportedFailure::passing("why"))),
    ];
    steps.into_iter().map(|step| FromDaemon::Part { generation: Generation(7), source: 1, step })
}

/// All steps of daemons on a checkpoint.
fn checkpoint_steps() -> impl Iterator<Item = FromDaemon> {
    let steps = [
        CheckpointStep::Progress(Progress { round: 1, done_bytes: 2, total_bytes: 1 << 40, bytes_per_second: 3 }),
        CheckpointStep::Ready,
        CheckpointStep::Stopped(position()),
        CheckpointStep::Copied,
        CheckpointStep::Saved(
            Cost { round_count: 2, sent_bytes: 1 << 40, ..Cost::default() },
            vec![Step { name: "cut: state".into(), ns: 7 }],
        ),
        CheckpointStep::Failed(NoImage::NoHelper(ReportedFailure::passing("why"))),
        CheckpointStep::Failed(NoImage::SourceEnded(ReplicaId::new(1, 0))),
    ];
    let replica = ReplicaId::new(1, 0);
    steps.into_iter().map(move |step| FromDaemon::Checkpoint { generation: Generation(7), replica, step })
}

fn scrub() -> Scrub {
    Scrub::Orders { round: 4, orders: vec![Order { collective: 9, from: 0, bytes_max: 1 << 30 }; 2] }
}

/// All messages, by direction.
fn messages() -> [Vec<Vec<u8>>; 6] {
    let card = || Card {
        process: ProcessIndex(3),
        host_number: 0,
        host: "host".into(),
        pid: 9,
        endpoints: vec![Endpoint { network: "tcp".into(), address: "127.0.0.1:80".into() }],
        early_threads: Vec::new(),
    };
    let replica = ReplicaId::new(1, 0);
    let refused = FromAgent::Refused { peer: Some(replica), what: "sent rubbish".into() };
    let frame = Frame { file: "/bin/true".into(), offset: 9 };
    let to_agent = [
        ToAgent::Welcome(Box::new(welcome())),
        ToAgent::Cards(vec![card(); 3]),
        ToAgent::View(welcome().view),
        ToAgent::Trace(TracePoint::Send(sending())),
        ToAgent::Place(Box::new(place())),
        ToAgent::Pins(pins()),
        ToAgent::Held(true),
        ToAgent::NoFlip,
        ToAgent::CheckpointGoes(place().undo),
        ToAgent::ChangesSince(UndoPlace::beside("/store/line-7".as_ref(), Generation(7), true)),
        ToAgent::Ask { wave: 4 },
        ToAgent::Scrub(scrub()),
        ToAgent::Dynamic(3, dynamic::Answer::NotSpawned("why".into())),
        ToAgent::Dynamic(3, dynamic::Answer::Name(NameAnswer::Port("port".into()))),
        ToAgent::Dynamic(3, dynamic::Answer::Checkpoint(true)),
    ];
    let from_agent = [
        FromAgent::Ready(card()),
        FromAgent::Finalizing {
            view: ViewNumber(3),
            statistics: Statistics::default(),
            coverage: vec![Coverage { communicator: "c".into(), messages: 1, bytes: 2 }],
            profile: Some(Box::new(ProcessProfile {
                calls: [CallTime { count: 3, time_ns: 1 << 40 }; CallKind::COUNT],
                sent: vec![SentTo { rank: 1, messages: 2, bytes: 3 }],
            })),
        },
        FromAgent::Abort { code: 3, message: "why".into() },
        FromAgent::Event(event()),
        FromAgent::Suspect { peer: replica, host_is_silent: true },
        FromAgent::Trace(
            TracePoint::Thread(1 << 50),
            Some(Trace {
                time_ns: 7,
                frames: vec![frame.clone()],
                thread: 1 << 50,
                thread_name: "worker".into(),
                lock_events: vec![LockEvent { number: 6, frames: vec![frame] }],
            }),
        ),
        FromAgent::Scrubbed {
            round: 4,
            answer: Answer::Pages {
                collective: 9,
                stretches: vec![Stretch { start: 4096, digests: vec![1, 0, 7], plain: vec![(2, 9)] }],
                next: 0,
            },
        },
        FromAgent::Dynamic(5, Request::Spawn { commands: vec![spawned(); 2], port: "port".into() }),
        FromAgent::Dynamic(6, Request::Name(NameRequest::Lookup { service: "name".into() })),
        FromAgent::Dynamic(7, Request::Checkpoint),
        FromAgent::Unable(Lack::Connection { errno: 24 }),
        FromAgent::Unable(Lack::Neighbor { rank: 1 }),
        FromAgent::Shares(vec![VirtualRank(0), VirtualRank(2)]),
        FromAgent::Pace { calls: 1 << 40 },
        FromAgent::Answer { wave: 4, passive: Some(passive()), waits: true, statistics: Statistics::default() },
        FromAgent::Pinned(vec![replica; 2]),
        FromAgent::Quiet,
        FromAgent::AwaitsFlip {
            asked: ProcessFault::FlipThread { send: 3, bit: 1 << 60 },
            send: 4,
            thread: 9,
            word: 1 << 40,
        },
        refused.clone(),
    ];
    let to_daemon = [
        ToDaemon::Launch(Box::new(launch())),
        ToDaemon::Cards(vec![card()]),
        ToDaemon::View(launch().view),
        ToDaemon::Input { bytes: vec![1; 30] },
        ToDaemon::HoldOutput { replica: Some(replica), held: true },
        ToDaemon::Kill(replica),
        ToDaemon::Trace(replica, TracePoint::Send(sending())),
        ToDaemon::Dynamic(replica, 3, dynamic::Answer::Name(NameAnswer::Taken)),
        ToDaemon::Scrub(scrub()),
        ToDaemon::Watch(Watch { ring: vec![(3, ([127, 0, 0, 1], 80).into()); 4], timeout_ms: 1000 }),
        ToDaemon::Pins(pins()),
        ToDaemon::Signal(15),
    ];
    let to_daemon: Vec<_> =
        to_daemon.into_iter().chain(clone_orders(&card())).chain(checkpoint_orders()).chain(part_orders()).collect();
    let from_daemon = [
        FromDaemon::HostFailed { host: 1, message: "no route".into() },
        FromDaemon::Observed { host: 1, sign: Sign::Silent },
        FromDaemon::Started { replica, pid: 4 },
        FromDaemon::Agent { replica, message: refused },
        FromDaemon::Output { replica, stream: crate::daemon::Stream::Error, bytes: vec![2; 40] },
        FromDaemon::Exited { replica, exit: Exit::Signal(9), found_at_ns: 1 << 60 },
        FromDaemon::Exited { replica, exit: Exit::OutOfMemory, found_at_ns: 1 << 60 },
        FromDaemon::Note("odd".into()),
    ];
    let from_daemon: Vec<_> =
        from_daemon.into_iter().chain(clone_steps()).chain(checkpoint_steps()).chain(part_steps()).collect();
    let attach = Attach {
        host: 3,
        attachment: 1,
        term: Term(2),
        received: 77,
        version: "0.1.0".into(),
        name: "h3".into(),
        cpu_count: 2,
        listen: ([127, 0, 0, 1], 80).into(),
    };
    let up = [
        Up::Attach(Box::new(attach)),
        Up::Message { host: 3, number: 9, body: encode_body(&from_daemon[0]) },
        Up::Taken { host: 3, count: 12 },
        Up::Beat,
        Up::Call { term: Term(1), address: ([127, 0, 0, 1], 81).into() },
        Up::Replaced { by: Term(u64::MAX) },
        Up::Ask(Question::Kill(replica)),
        Up::Ask(Question::Migrate { replica, to: Some("h4".into()) }),
        Up::Ask(Question::Degree { degree: 3, ranks: vec![(0, 3), (7, 7)] }),
        Up::Ask(Question::AddSpare { host: HostName { user: None, name: "h5".into() }, place_count: Some(4) }),
    ];
    let down = [
        Down::Message { to: Some(3), body: encode_body(&to_daemon[1]) },
        Down::Attached { host: 3, attachment: 1, term: Term(3), received: 8 },
        Down::Stop { host: 3, reason: "it does not answer".into() },
        Down::Beat { round: 1 << 40 },
    ];
    [
        to_agent.iter().map(encode).collect(),
        from_agent.iter().map(encode).collect(),
        to_daemon.iter().map(encode).collect(),
        from_daemon.iter().map(encode).collect(),
        up.iter().map(encode).collect(),
        down.iter().map(encode).collect(),
    ]
}

/// Reads all messages, up to an error.
fn read_all<T: DeserializeOwned>(bytes: &[u8], step: usize, mut follow: impl FnMut(T)) {
    let mut reader = FrameReader::default();
    for chunk in bytes.chunks(step) {
        reader.push(chunk);
        loop {
            match reader.next::<T>() {
                Ok(Some(message)) => follow(message),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().contains('\n'));
                    return;
                }
            }
        }
    }
}

/// Runs the first use of each message at its addressee.
fn follow(direction: usize, bytes: &[u8], step: usize) {
    match direction {
        0 => read_all(bytes, step, |message| match message {
            ToAgent::Welcome(welcome) if welcome.check().is_ok() => {
                let count = welcome.world.process_count();
                assert!(welcome.world.process(welcome.me).0 < count && welcome.view.is_live(welcome.me));
            }
            ToAgent::View(view) if view.fits(&self::welcome().world) => {
                let members: usize = (0..view.rank_count()).map(|rank| view.live(VirtualRank(rank)).count()).sum();
                assert!(members <= 6);
            }
            _ => {}
        }),
        1 => read_all(bytes, step, |_: FromAgent| {}),
        2 => read_all(bytes, step, |message| {
            if let ToDaemon::Launch(launch) = message
                && launch.check().is_ok()
            {
                for replica in launch.replicas_on(0) {
                    let application = launch.application_of_rank[replica.rank.0 as usize];
                    assert!(!launch.applications[application as usize].arguments.is_empty());
                }
            }
        }),
        3 => read_all(bytes, step, |message: FromDaemon| {
            let _ = message.replica();
        }),
        4 => read_all(bytes, step, |frame| {
            if let Up::Message { body, .. } = frame {
                let _ = decode_body::<FromDaemon>(&body);
            }
        }),
        _ => read_all(bytes, step, |frame| {
            if let Down::Message { body, .. } = frame {
                let _ = decode_body::<ToDaemon>(&body);
            }
        }),
    }
}

/// The far end of a handshake: it sends fixed bytes, and takes everything.
struct Stranger<'a>(&'a [u8]);

impl Read for Stranger<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Stranger<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

proptest! {
    /// Damaged messages are read as possible ones, or refused.
    #[test]
    fn damaged_messages_are_heeded_or_refused(
        direction in 0usize..6,
        which in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
        step in 1usize..200,
    ) {
        let messages = &messages()[direction];
        let mut bytes = messages[which.index(messages.len())].clone();
        for (place, value, is_flip) in damage {
            let place = place.index(bytes.len());
            let byte = &mut bytes[place];
            *byte = if is_flip { *byte ^ 1 << (value % 8) } else { value };
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        follow(direction, &bytes, step);
    }

    /// No bytes pass without the secret.
    #[test]
    fn strangers_are_refused(said in proptest::collection::vec(any::<u8>(), 0..200)) {
        for is_sealing in [false, true] {
            let secret = Secret::new([9; 32]).sealing(is_sealing);
            prop_assert!(auth::accept(&mut Stranger(&said), &secret, 24).is_err());
            prop_assert!(auth::connect(&mut Stranger(&said), &secret, b"name").is_err());
        }
    }

    #[test]
    fn any_text_is_a_secret_or_refused(text in "[0-9a-fA-F]{60,68}|.{0,70}") {
        if let Some(secret) = Secret::from_text(&text) {
            prop_assert_eq!(secret.to_text(), text.to_lowercase());
        }
    }
}

#[test]
fn neighbors_are_on_the_same_hosts_index_by_index() {
    let neighborhoods = |placement: &[u32], gone: &[ReplicaId]| {
        let world = World::new(vec![2, 2, 2]);
        let view = View::initial(&world).without(gone);
        let launch = Launch { placement: placement.to_vec(), view, world, ..launch() };
        [0, 1, 2].map(|rank| launch.neighborhood(VirtualRank(rank)).0)
    };
    assert_eq!(neighborhoods(&[0; 6], &[]), [0, 0, 0]);
    assert_eq!(neighborhoods(&[0, 1, 0, 1, 1, 0], &[]), [0, 0, 2], "the planes of rank 2 are the other way round");
    assert_eq!(neighborhoods(&[0, 1, 1, 2, 1, 2], &[]), [0, 1, 1]);
    let gone = ReplicaId::new(1, 1);
    assert_eq!(neighborhoods(&[0, 1, 0, 1, 0, 1], &[gone]), [0, 1, 0], "its plane would lack one");
}

#[test]
fn undamaged_messages_pass_their_checks() {
    assert_eq!((welcome().check(), launch().check()), (Ok(()), Ok(())));
    let strangers = Welcome { me: ReplicaId::new(0, 1), ..welcome() };
    assert_eq!(strangers.check(), Err(WelcomeError::Place));
    let small = Welcome { shared_memory: Some(SharedMemory { fd: 3, slot_count: 5 }), ..welcome() };
    assert_eq!(small.check(), Err(WelcomeError::Memory));
    let other = Welcome { view: View::initial(&World::new(vec![2, 2, 3])), ..welcome() };
    assert_eq!(other.check(), Err(WelcomeError::View));
    for wrong in [
        Launch { application_of_rank: vec![0; 2], ..launch() },
        Launch { application_of_rank: vec![0, 1, 0], ..launch() },
        Launch { placement: vec![0], ..launch() },
        Launch { applications: vec![Application { arguments: vec![], ..launch().applications.remove(0) }], ..launch() },
    ] {
        assert!(wrong.check().is_err());
    }
}
