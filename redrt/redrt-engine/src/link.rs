//! Links to the other processes: the transport to each, and the frames that wait to go.

mod foreign;
mod pump;
mod reset;
mod sharing;
#[cfg(test)]
mod tests;

pub use reset::{Admission, Admitted, Broken, LinkEvent};

use super::outgoing::OutgoingId;
use super::payload::Payload;
use redrt_process::simulation;
use redrt_transport::copying;
use redrt_transport::frame::{self, DIGEST_BYTES, Fragment, FrameKind, HEADER_BYTES, Header};
use redrt_transport::network::{Connecting, Incoming, Name, Network, Opened, Opening, Outlet, Source, is_of_silence};
use redrt_transport::shm::{self, Inbox, Producer, Segment};
use redrt_types::{Incarnation, ProcessIndex, View, VirtualRank, World};
use redrt_wire::card::{Card, Endpoint};
use redrt_wire::secret::Secret;
use sharing::Followed;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::debug;

/// The body of a frame that could not go at once.
pub enum Body {
    /// Bytes of the frame's own.
    Copied(Vec<u8>),
    /// A payload that others hold too.
    Shared(Arc<Payload>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(payload) => payload.bytes(),
        }
    }
}

struct Waiting {
    header: Header,
    digest: Option<u128>,
    body: Body,
    then: Option<OutgoingId>,
}

enum Route {
    /// Nothing was sent yet.
    Unopened,
    /// A ring in the memory of this host.
    Ring(Producer),
    /// Another thread connects, as long as `wanted` is set. Frames wait.
    Opening { wanted: Arc<AtomicBool>, frame_bytes_max: usize },
    /// A connection over a network.
    Open(Box<dyn Outlet>),
    /// The process is dead, or the link broke: frames are dropped.
    Gone,
}

struct Peer {
    card: Option<Card>,
    route: Route,
    backlog: VecDeque<Waiting>,
    pushes: VecDeque<pump::Push>,
    busy: bool,
    /// This incarnation and those before it are dead: their links are refused.
    fenced: Option<Incarnation>,
    /// Counts restarts of the connection; see the module `reset`.
    epoch: u32,
    /// True once the other end has opened a link in this epoch.
    is_confirmed: bool,
    /// Epochs in a row that ended unconfirmed.
    attempts: u32,
    /// The incarnation in the view. Links of a later one wait until the view has it.
    live: Option<Incarnation>,
    /// Set while the other end has moved to the connection that this process opens, and that one is not open yet.
    followed: Option<Followed>,
}

impl Peer {
    fn new() -> Self {
        Self {
            card: None,
            route: Route::Unopened,
            backlog: VecDeque::new(),
            pushes: VecDeque::new(),
            busy: false,
            fenced: None,
            epoch: 0,
            is_confirmed: false,
            attempts: 0,
            live: None,
            followed: None,
        }
    }
}

/// Identity of this process, and its means to reach others.
pub struct Identity {
    /// Random identity of the job.
    pub job: u64,
    /// Dense number of this process in the job.
    pub me: ProcessIndex,
    /// Incarnation of this process.
    pub incarnation: Incarnation,
    /// Number of its host.
    pub host_number: u32,
    /// The secret of the job's links.
    pub secret: Secret,
    /// Shared memory of the host; `None` when it may not be used.
    pub segment: Option<Segment>,
    /// Networks over which others may be reached.
    pub networks: Arc<[Arc<dyn Network>]>,
}

/// All links of a process.
pub struct Links {
    identity: Identity,
    /// Processes of the job, followed by those of other jobs: see `foreign`.
    peers: Vec<Peer>,
    own_count: u32,
    inbox: Option<Inbox>,
    receivers: Vec<Incoming>,
    /// Links of processes that the view does not have yet.
    early: Vec<Incoming>,
    cursor: usize,
    busy: Vec<ProcessIndex>,
    finished: Vec<OutgoingId>,
    broken: Vec<Broken>,
    /// Processes whose word in a ring is impossible.
    scribbled: Vec<ProcessIndex>,
}

impl Links {
    /// Makes links to `count` processes, none opened yet.
    pub fn new(identity: Identity, count: u32) -> Self {
        let inbox = identity.segment.map(|segment| Inbox::new(segment, identity.me, count));
        let peers = (0..count).map(|_| Peer::new()).collect();
        let (busy, finished, broken) = (Vec::new(), Vec::new(), Vec::new());
        let scribbled = Vec::new();
        Self {
            identity,
            peers,
            own_count: count,
            inbox,
            receivers: Vec::new(),
            early: Vec::new(),
            cursor: 0,
            busy,
            finished,
            broken,
            scribbled,
        }
    }

    /// Takes in the members of the first view. From other processes nothing is taken until they join: then their rings
    /// are read from the begin, and records read earlier might have been overwritten.
    pub fn set_members(&mut self, world: &World, view: &View) {
        for replica in world.replicas() {
            let process = world.process(replica);
            let live = view.member(replica).map(|member| member.incarnation);
            self.peers[process.0 as usize].live = live;
            if let Some(inbox) = self.inbox.as_mut().filter(|_| live.is_none()) {
                inbox.close(process);
            }
        }
    }

    /// Takes in the new process of a place: frames to it open new links, and frames that it has sent are taken.
    pub fn join(&mut self, process: ProcessIndex, incarnation: Incarnation) {
        let peer = &mut self.peers[process.0 as usize];
        peer.route = Route::Unopened;
        peer.live = Some(incarnation);
        (peer.epoch, peer.is_confirmed, peer.attempts) = (0, false, 0);
        // Broken links are those of its predecessor.
        self.broken.retain(|broken| broken.process() != process);
        // A copy on this host empties its rings. The ring of a copy elsewhere holds remains of its predecessors.
        let is_here = peer.card.as_ref().is_some_and(|card| card.host_number == self.identity.host_number);
        if let Some(inbox) = self.inbox.as_mut().filter(|_| is_here) {
            inbox.reopen(process);
        }
        self.take_early(process, incarnation);
    }

    /// Takes in how a process can be reached.
    pub fn set_card(&mut self, card: Card) {
        let process = card.process;
        self.peers[process.0 as usize].card = Some(card);
    }

    /// Host name of a live process; `None` when unknown.
    fn host_of(&self, process: ProcessIndex) -> Option<&str> {
        let peer = self.peers.get(process.0 as usize)?;
        let is_live = peer.live.is_some() || process == self.identity.me;
        peer.card.as_ref().filter(|card| is_live && !card.host.is_empty()).map(|card| &*card.host)
    }

    /// The hosts of a rank's replicas; none for a rank of another job.
    pub fn hosts_of(&self, world: &World, rank: VirtualRank) -> Vec<String> {
        let sphere = (rank.0 < world.rank_count()).then(|| world.sphere(rank)).into_iter().flatten();
        let hosts = sphere.filter_map(|replica| self.host_of(world.process(replica)));
        let mut hosts: Vec<_> = hosts.map(str::to_owned).collect();
        hosts.dedup();
        hosts
    }

    /// Process id of a process of this host whose memory may be read directly; `None` for others.
    pub fn local_pid(&self, process: ProcessIndex) -> Option<i32> {
        let card = self.peers[process.0 as usize].card.as_ref()?;
        (card.host_number == self.identity.host_number && self.uses_shm(card)).then_some(card.pid)
    }

    /// Shared memory of this host; `None` when it may not be used.
    pub fn segment(&self) -> Option<Segment> {
        self.identity.segment
    }

    fn uses_shm(&self, card: &Card) -> bool {
        self.identity.segment.is_some() && card.host_number == self.identity.host_number
    }

    /// Longest payload in bytes that goes to `process` in one eager frame.
    #[inline(always)]
    pub fn eager_bytes_max(&self, process: ProcessIndex) -> usize {
        let peer = &self.peers[process.0 as usize];
        if let Route::Ring(_) = peer.route {
            return shm::FRAME_BYTES_MAX - HEADER_BYTES - DIGEST_BYTES;
        }
        self.eager_bytes_max_over(peer)
    }

    #[cold]
    fn eager_bytes_max_over(&self, peer: &Peer) -> usize {
        let frame_bytes_max = match &peer.route {
            Route::Open(outlet) => outlet.frame_bytes_max(),
            Route::Opening { frame_bytes_max, .. } => *frame_bytes_max,
            Route::Unopened => self.way_to(peer).map_or(shm::FRAME_BYTES_MAX, |(network, _)| network.frame_bytes_max()),
            Route::Ring(_) | Route::Gone => shm::FRAME_BYTES_MAX,
        };
        frame_bytes_max - HEADER_BYTES - DIGEST_BYTES
    }

    /// Network and address of a process; `None` where it is reached through memory, or not at all.
    fn way_to<'a>(&'a self, peer: &'a Peer) -> Option<(&'a Arc<dyn Network>, &'a str)> {
        let card = peer.card.as_ref().filter(|card| !self.uses_shm(card))?;
        let way = |endpoint: &'a Endpoint| {
            let network = self.identity.networks.iter().find(|network| network.name() == endpoint.network)?;
            Some((network, &*endpoint.address))
        };
        card.endpoints.iter().find_map(way)
    }

    fn open(&mut self, to: ProcessIndex) {
        let peer = &self.peers[to.0 as usize];
        let Some(card) = &peer.card else { panic!("process {} has no card", to.0) };
        let identity = &self.identity;
        let route = match identity.segment {
            Some(segment) if self.uses_shm(card) => Route::Ring(Producer::new(segment, identity.me, to)),
            _ => self.connect(to),
        };
        if matches!(route, Route::Gone) {
            self.broken.push(Broken::Refused(to));
        }
        self.peers[to.0 as usize].route = route;
    }

    fn connect(&self, to: ProcessIndex) -> Route {
        let peer = &self.peers[to.0 as usize];
        let Some((network, address)) = self.way_to(peer) else { return Route::Gone };
        let Identity { job, ref secret, me, incarnation, .. } = self.identity;
        let wanted = Arc::new(AtomicBool::new(true));
        let contact = self.contact(to);
        let (named, secret) = contact.as_ref().map_or((to, secret), |contact| (contact.process, &contact.secret));
        let name = Name { job, from: me, incarnation, to: named, epoch: peer.epoch };
        let (address, secret, has_failed) = (address.to_owned(), secret.clone(), peer.attempts > 0);
        match network.connect(Opening { to, name, address, secret, wanted: wanted.clone(), has_failed }) {
            Connecting::Open(outlet) => Route::Open(outlet),
            Connecting::Underway => Route::Opening { wanted, frame_bytes_max: network.frame_bytes_max() },
            Connecting::Refused => Route::Gone,
        }
    }

    /// Takes over a link that another thread has opened, or failed to open.
    pub fn opened(&mut self, opened: Opened) {
        let to = opened.to;
        let peer = &mut self.peers[to.0 as usize];
        // The trap: this may be the outcome of an earlier request, for a process that has died and was replaced
        // meanwhile.
        let is_this = |wanted: &Arc<AtomicBool>| Arc::ptr_eq(wanted, &opened.wanted);
        if !matches!(&peer.route, Route::Opening { wanted, .. } if is_this(wanted)) {
            return;
        }
        peer.route = match opened.result {
            Ok(outlet) => {
                debug!(target: "engine", process = to.0, "a link that was dialled is open");
                Route::Open(outlet)
            }
            Err(error) => {
                debug!(target: "engine", process = to.0, %error, "a link cannot be opened");
                self.broken.push(if is_of_silence(&error) { Broken::Silent(to) } else { Broken::Refused(to) });
                Route::Gone
            }
        };
        self.follow(to);
        self.share(to);
    }

    /// Sends a frame if none waits before it and the link takes it. Returns false if the frame has to wait.
    #[inline(always)]
    pub fn try_send(&mut self, to: ProcessIndex, header: &Header, digest: Option<u128>, body: &[u8]) -> bool {
        !self.peers[to.0 as usize].busy && self.transmit(to, header, digest, body)
    }

    /// Passes the header in words, which are still in registers when it was just written ([`super::payload`]).
    #[inline(always)]
    fn transmit(&mut self, to: ProcessIndex, header: &Header, digest: Option<u128>, body: &[u8]) -> bool {
        let [first, context, position, origin] = header.words();
        let (has_digest, digest) = (digest.is_some(), digest.unwrap_or(0));
        let (low, high) = (digest as u64, (digest >> 64) as u64);
        self.transmit_words(to, first, context, position, origin, has_digest, low, high, body)
    }

    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn transmit_words(
        &mut self,
        to: ProcessIndex,
        first: u64,
        context: u64,
        position: u64,
        origin: u64,
        has_digest: bool,
        low: u64,
        high: u64,
        body: &[u8],
    ) -> bool {
        simulation::step(false);
        let digest = has_digest.then_some((low, high));
        let Route::Ring(producer) = &mut self.peers[to.0 as usize].route else {
            return self.transmit_elsewhere(to, [first, context, position, origin], digest, body);
        };
        let fill = |place: *mut u8| {
            // SAFETY: - the ring gives body.len() writable bytes at place, outside of any other buffer.
            unsafe { copying::copy(body.as_ptr(), place, body.len()) }
        };
        match producer.send_words(first, context, position, origin, digest, body.len(), fill) {
            None if producer.is_broken() => {
                self.give_up_ring(to);
                true
            }
            None => false,
            Some(false) => true,
            Some(true) => {
                self.ring_wake_socket(to);
                true
            }
        }
    }

    /// Sends where there is no ring, or not yet.
    #[inline(never)]
    fn transmit_elsewhere(
        &mut self,
        to: ProcessIndex,
        words: [u64; 4],
        digest: Option<(u64, u64)>,
        body: &[u8],
    ) -> bool {
        let [first, context, position, origin] = words;
        match &mut self.peers[to.0 as usize].route {
            Route::Open(outlet) => {
                if !outlet.is_idle() {
                    return false;
                }
                let digest_bytes = digest.map(|(low, high)| [low.to_le_bytes(), high.to_le_bytes()]);
                let digest_part = digest_bytes.as_ref().map_or(&[][..], |halves| halves.as_flattened());
                let size = HEADER_BYTES + digest_part.len() + body.len();
                let head = frame::head_bytes([frame::with_size(first, size as u32), context, position, origin]);
                outlet.send(&[&head, digest_part, body]);
                if outlet.is_broken() {
                    self.route_broke(to);
                } else if !outlet.is_idle() {
                    self.mark_busy(to);
                }
                true
            }
            Route::Gone => true,
            Route::Opening { .. } => false,
            Route::Unopened | Route::Ring(_) => {
                if matches!(self.peers[to.0 as usize].route, Route::Unopened) {
                    self.open(to);
                }
                let (low, high) = digest.unwrap_or_default();
                self.transmit_words(to, first, context, position, origin, digest.is_some(), low, high, body)
            }
        }
    }

    fn give_up_ring(&mut self, to: ProcessIndex) {
        self.peers[to.0 as usize].route = Route::Gone;
        self.scribbled.push(to);
    }

    fn mark_busy(&mut self, to: ProcessIndex) {
        let peer = &mut self.peers[to.0 as usize];
        if !peer.busy {
            peer.busy = true;
            self.busy.push(to);
        }
    }

    /// Queues a frame behind those that wait. `then` is reported by [`Links::next_finished`] once the frame has gone.
    pub fn queue(
        &mut self,
        to: ProcessIndex,
        header: Header,
        digest: Option<u128>,
        body: Body,
        then: Option<OutgoingId>,
    ) {
        self.peers[to.0 as usize].backlog.push_back(Waiting { header, digest, body, then });
        self.mark_busy(to);
    }

    /// Sends a frame now, or queues a copy.
    #[inline(always)]
    pub fn send(&mut self, to: ProcessIndex, header: Header, digest: Option<u128>, body: &[u8]) {
        if !self.try_send(to, &header, digest, body) {
            self.queue_copy(to, header, digest, body);
        }
    }

    #[cold]
    fn queue_copy(&mut self, to: ProcessIndex, header: Header, digest: Option<u128>, body: &[u8]) {
        self.queue(to, header, digest, Body::Copied(body.to_vec()), None);
    }

    /// Bytes given to the links that are open, and bytes taken from them, whole frames included.
    pub fn traffic(&self) -> (u64, u64) {
        let sent = self.peers.iter().map(|peer| match &peer.route {
            Route::Ring(producer) => producer.produced_bytes(),
            Route::Open(outlet) => outlet.sent_bytes(),
            Route::Unopened | Route::Opening { .. } | Route::Gone => 0,
        });
        let is_gone = |process: ProcessIndex| matches!(self.peers[process.0 as usize].route, Route::Gone);
        let over_shm = self.inbox.iter().flat_map(Inbox::consumed_bytes);
        let over_networks = self.receivers.iter().map(|receiver| (receiver.name.from, receiver.taken_bytes()));
        let received = over_shm.chain(over_networks).filter(|(process, _)| !is_gone(*process));
        (sent.sum(), received.map(|(_, bytes)| bytes).sum())
    }

    /// Takes a process whose word in a ring is impossible; `None` when there are no more.
    pub fn next_scribbled(&mut self) -> Option<ProcessIndex> {
        self.scribbled.pop()
    }

    /// Fences a dead incarnation: nothing more is sent to it or taken from it.
    pub fn close(&mut self, process: ProcessIndex, incarnation: Incarnation) {
        let peer = &mut self.peers[process.0 as usize];
        peer.fenced = Some(incarnation);
        peer.live = None;
        if let Route::Opening { wanted, .. } = &peer.route {
            wanted.store(false, Ordering::Relaxed);
        }
        peer.route = Route::Gone;
        (peer.epoch, peer.is_confirmed, peer.attempts) = (0, false, 0);
        let is_own = process.0 < self.own_count;
        if let Some(inbox) = self.inbox.as_mut().filter(|_| is_own) {
            inbox.close(process);
        }
        peer.backlog.clear();
        peer.pushes.clear();
        peer.followed = None;
        self.receivers.retain(|receiver| receiver.name.from != process);
        self.cursor = 0;
    }

    /// Runs in a copy, whose links these are not: tells the threads that open some to stop.
    pub fn disown(self) {
        for peer in self.peers {
            if let Route::Opening { wanted, .. } = peer.route {
                wanted.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Makes all frames wait until the next [`Links::pump`].
    pub fn suspend(&mut self) {
        for process in 0..self.peers.len() as u32 {
            self.mark_busy(ProcessIndex(process));
        }
    }

    /// Sends bytes that connections over networks have buffered. Returns true if all of them have reached the other
    /// hosts.
    pub fn flush_networks(&mut self) -> bool {
        let mut has_arrived = true;
        for peer in &mut self.peers {
            if let Route::Open(outlet) = &mut peer.route {
                outlet.flush();
                has_arrived &= outlet.has_arrived();
            }
        }
        has_arrived
    }

    /// Returns true if there are connections over networks.
    pub fn uses_networks(&self) -> bool {
        !self.receivers.is_empty() || self.peers.iter().any(|peer| matches!(peer.route, Route::Open(_)))
    }

    /// Goes on from an image, as all others do: rings are as they were. Connections over networks, on which nothing is
    /// under way, are opened anew.
    pub fn become_restored(&mut self, identity: Identity) {
        self.identity = identity;
        for peer in &mut self.peers {
            match std::mem::replace(&mut peer.route, Route::Unopened) {
                Route::Opening { wanted, .. } => wanted.store(false, Ordering::Relaxed),
                route @ (Route::Ring(_) | Route::Gone) => peer.route = route,
                Route::Open(_) | Route::Unopened => {}
            }
            peer.card = None;
            peer.followed = None;
            (peer.epoch, peer.is_confirmed, peer.attempts) = (0, false, 0);
        }
        self.receivers.clear();
        self.early.clear();
        self.cursor = 0;
    }

    /// Returns true if nothing is taken from the process any more.
    #[cfg(test)]
    pub fn is_closed(&self, process: ProcessIndex) -> bool {
        self.peers[process.0 as usize].fenced.is_some()
    }

    /// Takes in that a process's link broke. Frames under way are lost, unless the process has left in peace.
    pub fn lost_receiver(&mut self, receiver: &Incoming) {
        self.broken.push(Broken::Lost { process: receiver.name.from, epoch: receiver.name.epoch });
    }

    /// The shared-memory inbox; `None` where shared memory is not used.
    pub fn inbox(&mut self) -> Option<&mut Inbox> {
        self.inbox.as_mut()
    }

    /// Connections that others have opened.
    pub fn receivers(&mut self) -> &mut Vec<Incoming> {
        &mut self.receivers
    }

    /// The next receiver, in turn, so that none is starved.
    pub fn next_receiver(&mut self) -> Option<usize> {
        if self.receivers.is_empty() {
            return None;
        }
        self.cursor = if self.cursor + 1 < self.receivers.len() { self.cursor + 1 } else { 0 };
        Some(self.cursor)
    }

    /// Descriptors to wait on, with the events. An idle one-way connection is watched for a close by the other end; a
    /// shared one shows its close where it is read.
    pub fn descriptors(&self) -> impl Iterator<Item = (i32, i16)> + '_ {
        let reading = self.receivers.iter().filter_map(|receiver| Some((receiver.inlet().waits_on()?, libc::POLLIN)));
        let writing = self.peers.iter().filter_map(|peer| match &peer.route {
            Route::Open(outlet) if peer.busy => Some((outlet.waits_on()?, libc::POLLOUT | libc::POLLRDHUP)),
            Route::Open(outlet) if !outlet.is_shared() => Some((outlet.waits_on()?, libc::POLLRDHUP)),
            _ => None,
        });
        reading.chain(writing)
    }

    /// Wakes processes that sleep in poll and whose ring was just relieved.
    pub fn wake_relieved(&mut self) {
        while let Some(process) = self.inbox.as_mut().and_then(Inbox::next_wake) {
            self.ring_wake_socket(process);
        }
    }

    fn ring_wake_socket(&self, to: ProcessIndex) {
        if let Some(card) = &self.peers[to.0 as usize].card {
            super::doorbell::poke(card.process);
        }
    }
}
