//! Rings of places in which one process follows another, and connections that two processes share.

use super::*;
use redrt_transport::RendezvousBuffers;
use redrt_transport::network::Received;
use redrt_transport::tcp::handshake;
use redrt_transport::tcp::{Connection, Tcp};
use redrt_types::ReplicaId;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};

const HERE: u32 = 1;
const ELSEWHERE: u32 = 2;

fn identity(me: u32, segment: Option<Segment>, secret: Secret) -> Identity {
    let networks: Arc<[Arc<dyn Network>]> = Arc::new([Arc::new(Tcp::default())]);
    Identity { job: 1, me: ProcessIndex(me), incarnation: Incarnation(0), host_number: HERE, secret, segment, networks }
}

/// Links of a process of this host.
fn links(segment: Segment, me: u32) -> Links {
    let mut links = Links::new(identity(me, Some(segment), Secret::new([5; 32])), 2);
    links.set_card(card(1 - me, HERE));
    links
}

fn card(process: u32, host_number: u32) -> Card {
    Card {
        process: ProcessIndex(process),
        host_number,
        host: format!("n{host_number}"),
        pid: 1,
        endpoints: Vec::new(),
        early_threads: Vec::new(),
    }
}

/// The successor, on another host, has the dead process's place.
#[test]
fn frames_of_a_dead_process_are_not_its_successors() {
    let file = tempfile::tempfile().expect("the temporary directory can be written");
    file.set_len(Segment::bytes(2) as u64).expect("it can grow");
    let segment = Segment::map(file.as_raw_fd(), 2).expect("it can be mapped");
    let (mut survivor, mut dead) = (links(segment, 0), links(segment, 1));
    let process = ProcessIndex(1);
    let speak = |links: &mut Links| links.send(ProcessIndex(0), Header::new(FrameKind::Eager, 0), None, b"x");
    let heard = |links: &mut Links| links.inbox().expect("there is one").next_sender();
    speak(&mut dead);
    assert_eq!(heard(&mut survivor), Some(process));
    survivor.close(process, Incarnation(0));
    survivor.set_card(card(1, ELSEWHERE));
    survivor.join(process, Incarnation(1));
    assert_eq!(heard(&mut survivor), None);
    // The next process is on this host again, and has emptied its rings.
    survivor.close(process, Incarnation(1));
    segment.clear(file.as_raw_fd(), process).expect("a hole can be made");
    survivor.set_card(card(1, HERE));
    survivor.join(process, Incarnation(2));
    assert_eq!(heard(&mut survivor), None);
    speak(&mut links(segment, 1));
    assert_eq!(heard(&mut survivor), Some(process));
}

#[test]
fn a_copy_takes_no_frame_of_a_process_that_its_view_lacks() {
    let segment = Segment::fresh(2);
    let (world, process) = (World::new(vec![1, 1]), ProcessIndex(1));
    let mut copy = links(segment, 0);
    copy.set_members(&world, &View::initial(&world).without(&[ReplicaId::new(1, 0)]));
    let heard = |links: &mut Links| links.inbox().expect("there is one").next_sender();
    // The view that has both reaches the other process first.
    let mut other = links(segment, 1);
    other.send(ProcessIndex(0), Header::new(FrameKind::Eager, 0), None, b"x");
    assert_eq!(heard(&mut copy), None);
    copy.join(process, Incarnation(1));
    assert_eq!(heard(&mut copy), Some(process));
}

/// The successor has the place of a dead process.
#[test]
fn a_connection_with_a_successor_begins_anew() {
    let (mut links, process) = (links(Segment::fresh(2), 0), ProcessIndex(1));
    links.close(process, Incarnation(0));
    assert!(!links.begin_epoch(process, 1), "it is dead");
    links.join(process, Incarnation(1));
    // The route broke here, or was given up for the sake of the other's connection.
    links.peers[1].route = Route::Gone;
    assert!(links.begin_epoch(process, 1));
}

/// Links of a process whose only partner is reached at this listener.
fn links_over_tcp(me: u32, secret: &Secret, partner: &TcpListener) -> Links {
    let mut links = Links::new(identity(me, None, secret.clone()), 2);
    let address = partner.local_addr().expect("it listens");
    let endpoint = Endpoint { network: Tcp::NAME.into(), address: address.to_string() };
    links.set_card(Card { endpoints: vec![endpoint], ..card(1 - me, ELSEWHERE) });
    links.peers[1 - me as usize].live = Some(Incarnation(0));
    links
}

/// Two processes, and the listener of each.
struct Two {
    secret: Secret,
    listeners: [TcpListener; 2],
    links: [Links; 2],
}

impl Two {
    fn new(is_sealing: bool) -> Self {
        let secret = Secret::new([4; 32]).sealing(is_sealing);
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
        let links = [0, 1].map(|me: u32| links_over_tcp(me, &secret, &listeners[1 - me as usize]));
        Self { secret, listeners, links }
    }

    /// Lets `to` accept the next connection.
    fn admitting(&self, to: usize) -> JoinHandle<Incoming> {
        let (listener, secret) = (self.listeners[to].try_clone().expect("a descriptor"), self.secret.clone());
        thread::spawn(move || {
            handshake::admit(Connection::await_next(&listener), &secret).expect("it knows the secret")
        })
    }

    fn send(&mut self, from: usize, tag: i32) {
        let mut header = Header::new(FrameKind::Eager, 0);
        header.tag = tag;
        self.links[from].send(ProcessIndex(1 - from as u32), header, None, &[]);
    }

    /// Sends the first message, which opens a connection.
    fn open(&mut self, from: usize, tag: i32) -> Incoming {
        let admitting = self.admitting(1 - from);
        self.send(from, tag);
        admitting.join().expect("it is admitted")
    }

    /// Waits for a message.
    fn handle(&mut self, at: usize) -> i32 {
        loop {
            self.links.iter_mut().for_each(|links| _ = links.pump());
            if let Some(tag) = self.poll(at) {
                return tag;
            }
        }
    }

    /// The tag of a message that has come, if any.
    fn poll(&mut self, at: usize) -> Option<i32> {
        let number = self.links[at].next_receiver()?;
        match self.links[at].receivers()[number].next(&mut RendezvousBuffers::default()) {
            Received::Frame(_, FrameKind::Moved, ..) => {
                assert!(self.links[at].moved(number), "it may have moved");
                None
            }
            Received::Frame(header, ..) => Some(header.tag),
            Received::Nothing => None,
            _ => panic!("something else came"),
        }
    }

    fn are_shared(&self) -> bool {
        self.links.iter().enumerate().all(|(me, links)| {
            let is_shared = matches!(&links.peers[1 - me].route, Route::Open(outlet) if outlet.is_shared());
            is_shared && links.receivers.len() == 1
        })
    }
}

#[test]
fn two_that_have_opened_a_connection_each_share_one() {
    for is_sealing in [false, true] {
        let mut two = Two::new(is_sealing);
        let at_1 = two.open(0, 10);
        let at_0 = two.open(1, 20);
        assert!(!two.links[0].take_receiver(at_0) && !two.links[1].take_receiver(at_1));
        two.send(1, 21);
        assert_eq!([two.handle(1), two.handle(0), two.handle(0)], [10, 20, 21]);
        assert!(two.are_shared());
        for tag in 30..40 {
            two.send(0, tag);
            two.send(1, -tag);
            assert_eq!([two.handle(0), two.handle(1)], [-tag, tag]);
        }
        let traffic = two.links.each_ref().map(Links::traffic);
        assert_eq!((traffic[0].0, traffic[0].1), (traffic[1].1, traffic[1].0));
        // A lost connection is noticed where it is read from.
        let [mut survivor, dead] = two.links;
        drop(dead);
        survivor.poll_senders();
        assert_eq!(survivor.next_event(true), None);
        while !matches!(survivor.receivers()[0].next(&mut RendezvousBuffers::default()), Received::Closed) {}
    }
}

/// It moves before its peer knows of the peer's own connection.
#[test]
fn a_process_that_moves_early_is_followed() {
    let mut two = Two::new(false);
    let at_0 = two.open(1, 20);
    two.links[0].take_receiver(at_0);
    // The connection is open, but the thread that opened it has not reported it yet.
    let wanted = Arc::new(AtomicBool::new(true));
    two.links[0].peers[1].route = Route::Opening { wanted: wanted.clone(), frame_bytes_max: 0 };
    let admitting = two.admitting(1);
    let (to, from) = (ProcessIndex(1), ProcessIndex(0));
    let name = Name { job: 1, from, incarnation: Incarnation(0), to, epoch: 0 };
    let address = two.listeners[1].local_addr().expect("it listens");
    let sender = handshake::open(address, &two.secret, name).expect("it is opened");
    two.links[1].take_receiver(admitting.join().expect("it is admitted"));
    two.send(1, 21);
    assert_eq!(two.handle(0), 20);
    while !two.links[0].receivers.is_empty() {
        assert_eq!(two.poll(0), None, "it comes over the connection that is not known");
    }
    two.links[0].opened(Opened { to, wanted, result: Ok(Box::new(sender)) });
    assert_eq!(two.handle(0), 21);
    assert!(two.are_shared());
}

#[test]
fn one_that_cannot_have_moved_is_not_followed() {
    // In the first case the wrong process moves; in the second there is no connection to move to.
    for (from, has_opened) in [(0, true), (1, false)] {
        let mut two = Two::new(false);
        let receiver = two.open(from, 1);
        let at = 1 - from;
        if has_opened {
            drop(two.open(at, 2));
        }
        two.links[at].take_receiver(receiver);
        assert!(!two.links[at].moved(0), "{from}");
    }
}
