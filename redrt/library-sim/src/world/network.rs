//! The simulated network: connections that keep their order, with delays, little room, and ends that are lost.

use super::{Event, World, actor};
use redrt_transport::RendezvousBuffers;
use redrt_transport::frame::{FrameKind, Header};
use redrt_transport::network::{
    self, Connecting, Inlet, Name, Network, Opening, Outlet, Received, Source, whole_frame,
};
use redrt_types::ProcessIndex;
use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Number of a connection.
pub type LinkId = usize;

/// Name of the network in addresses.
pub const NAME: &str = "simulated";

/// The least size that a network may offer.
const FRAME_BYTES_MAX: usize = network::FRAME_BYTES_LEAST;
/// Small, so that long payloads go in many fragments.
const DATA_BYTES_MAX: usize = 1000;

enum Frame {
    Copied(Vec<u8>),
    /// Still in the sender's memory.
    Lent {
        head: Vec<u8>,
        payload: Arc<dyn Source>,
        start: usize,
        end: usize,
    },
}

/// One direction of a connection between two processes.
pub struct Link {
    pub name: Name,
    /// The process at the other end, as this job numbers it.
    pub to: ProcessIndex,
    /// Frames that have not left the sender.
    given: VecDeque<Frame>,
    /// Frames in flight, in the order of their arrival.
    travels: VecDeque<Vec<u8>>,
    arrived: VecDeque<Vec<u8>>,
    /// Time at which the last frame in flight arrives.
    last_ns: u64,
    /// Limit on the bytes in flight and not taken yet.
    room_bytes: usize,
    /// True if no further frame leaves the sender.
    is_cut: bool,
    /// True if no further frame comes after those in `arrived`.
    is_closed: bool,
    /// True if the sender has learned that the link is lost.
    is_broken: bool,
}

impl Link {
    /// The sender of a connection, and the receiver.
    pub fn ends(&self) -> [ProcessIndex; 2] {
        [self.name.from, self.to]
    }

    /// Ends the link, and drops all its frames.
    pub fn end(&mut self) {
        self.given.clear();
        self.travels.clear();
        self.arrived.clear();
        (self.is_cut, self.is_closed, self.is_broken) = (true, true, true);
    }

    /// True if frames have arrived that the receiver has not taken.
    pub fn has_brought(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// True if neither end has lost the link.
    pub fn is_open(&self) -> bool {
        !self.is_cut && !self.is_closed && !self.is_broken
    }
}

impl World {
    /// The next frame leaves its sender. Returns the sender, which may give another one.
    pub fn leaves(&mut self, id: LinkId) -> Option<ProcessIndex> {
        let at_ns = self.soon();
        if self.are_parted(self.links[id].ends()) {
            return None;
        }
        let link = &mut self.links[id];
        let underway: usize = link.travels.iter().chain(&link.arrived).map(Vec::len).sum();
        if !link.is_open() || underway >= link.room_bytes {
            return None;
        }
        let frame = match link.given.pop_front()? {
            Frame::Copied(bytes) => bytes,
            Frame::Lent { head, payload, start, end } => [&head, &payload.bytes()[start..end]].concat(),
        };
        link.travels.push_back(frame);
        link.last_ns = link.last_ns.max(at_ns);
        let (from, at_ns) = (link.name.from, link.last_ns);
        self.plan(at_ns, Event::Arrives(id));
        Some(from)
    }

    /// The next frame arrives. Returns the receiver.
    pub fn arrives(&mut self, id: LinkId) -> Option<ProcessIndex> {
        if self.are_parted(self.links[id].ends()) {
            return None;
        }
        let link = &mut self.links[id];
        let frame = link.travels.pop_front()?;
        let said = self.trace.is_read().then(|| described(link, &frame));
        link.arrived.push_back(frame);
        let to = link.to;
        self.say(|| said.unwrap_or_default());
        Some(to)
    }

    /// Breaks a link, with a part of the frames in flight. Both ends learn of it later.
    pub fn breaks(&mut self, id: LinkId) {
        let keeps = self.random.below(self.links[id].travels.len() + 1);
        let link = &mut self.links[id];
        // Frames may be in memory that is unmapped with its process.
        link.given.clear();
        link.travels.truncate(keeps);
        link.is_cut = true;
        let last_ns = link.last_ns;
        let at_ns = self.soon().max(last_ns);
        self.plan(at_ns, Event::Closes(id));
    }

    /// Both ends learn that the link is lost. Returns them.
    pub fn closes(&mut self, id: LinkId) -> [ProcessIndex; 2] {
        let link = &mut self.links[id];
        (link.is_closed, link.is_broken) = (true, true);
        link.given.clear();
        link.ends()
    }

    fn give(&mut self, id: LinkId, frame: Frame) {
        if self.links[id].is_cut || !self.hears(self.links[id].name.from) {
            return;
        }
        self.links[id].given.push_back(frame);
        let at_ns = if self.random.chance(70) { self.now_ns } else { self.soon() };
        self.plan(at_ns, Event::Leaves(id));
    }
}

fn described(link: &Link, frame: &[u8]) -> String {
    let Some(header) = frame.first_chunk().map(Header::from_bytes) else { return "rubbish".to_owned() };
    let kind = FrameKind::from_u8(header.kind);
    let (from, to, length) = (link.name.from.0, link.to.0, frame.len());
    format!(
        "process {from} -> {to}, epoch {}: {kind:?} of {length} bytes, context {:#x}, sequence {}, tag {}",
        link.name.epoch, header.context, header.sequence, header.tag
    )
}

/// The network of simulated processes. The address of a process is its number.
pub struct Simulated;

fn with<T>(act: impl FnOnce(&mut World) -> T) -> T {
    actor::count_poll();
    super::with_current(act).expect("it is used in a simulation")
}

impl Network for Simulated {
    fn name(&self) -> &'static str {
        NAME
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn connect(&self, opening: Opening) -> Connecting {
        let Ok(number) = opening.address.parse() else { return Connecting::Refused };
        with(|world| {
            if world.are_parted([opening.name.from, ProcessIndex(number)]) {
                let at_ns = world.soon();
                world.plan(at_ns, Event::Unanswered(opening.name.from, opening.to, opening.wanted));
                return Connecting::Underway;
            }
            let room_bytes = world.random.pick(&[16 << 10, 64 << 10, 1 << 20]);
            let id = world.links.len();
            let (given, travels, arrived) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
            world.links.push(Link {
                name: opening.name,
                to: ProcessIndex(number),
                given,
                travels,
                arrived,
                last_ns: 0,
                room_bytes,
                is_cut: false,
                is_closed: false,
                is_broken: false,
            });
            let at_ns = world.soon();
            world.plan(at_ns, Event::Opened(id));
            Connecting::Open(Box::new(Sending { id, sent_bytes: 0 }))
        })
    }
}

struct Sending {
    id: LinkId,
    sent_bytes: u64,
}

impl Outlet for Sending {
    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn data_bytes_max(&self) -> usize {
        DATA_BYTES_MAX
    }

    fn send(&mut self, parts: &[&[u8]]) {
        let frame = parts.concat();
        self.sent_bytes += frame.len() as u64;
        with(|world| world.give(self.id, Frame::Copied(frame)));
    }

    fn send_shared(&mut self, head: &[u8], payload: &Arc<dyn Source>, start: usize, end: usize) {
        self.sent_bytes += (head.len() + end - start) as u64;
        let frame = Frame::Lent { head: head.to_vec(), payload: payload.clone(), start, end };
        with(|world| world.give(self.id, frame));
    }

    fn flush(&mut self) {}

    fn is_idle(&self) -> bool {
        with(|world| {
            let link = &world.links[self.id];
            link.is_broken || link.given.is_empty()
        })
    }

    fn has_arrived(&self) -> bool {
        with(|world| {
            let link = &world.links[self.id];
            link.is_broken || link.given.is_empty() && link.travels.is_empty()
        })
    }

    fn is_broken(&self) -> bool {
        with(|world| world.links[self.id].is_broken)
    }

    fn poll_loss(&mut self) -> bool {
        self.is_broken()
    }

    fn unanswered(&self) -> u32 {
        let is_unanswered = with(|world| {
            let link = &world.links[self.id];
            world.are_parted(link.ends()) && !(link.given.is_empty() && link.travels.is_empty())
        });
        if is_unanswered { u32::MAX } else { 0 }
    }

    fn disconnect(&self) {
        with(|world| world.breaks(self.id));
    }

    fn detach(&mut self, payload: &[u8]) {
        with(|world| {
            for frame in &mut world.links[self.id].given {
                if let Frame::Lent { head, payload: lent, start, end } = frame
                    && lent.bytes().as_ptr() == payload.as_ptr()
                {
                    *frame = Frame::Copied([&*head, &lent.bytes()[*start..*end]].concat());
                }
            }
        });
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn waits_on(&self) -> Option<RawFd> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}

/// The receiving end of a link.
pub struct Receiving {
    id: LinkId,
    frame: Vec<u8>,
    taken_bytes: u64,
}

impl Receiving {
    /// The receiving end of the link with this number.
    pub fn new(id: LinkId) -> Self {
        Self { id, frame: Vec::new(), taken_bytes: 0 }
    }
}

impl Inlet for Receiving {
    fn next(&mut self, from: ProcessIndex, rendezvous_buffers: &mut RendezvousBuffers) -> Received {
        let taken = with(|world| {
            let link = &mut world.links[self.id];
            let frame = link.arrived.pop_front();
            if frame.is_some() && !link.given.is_empty() {
                // There is room again.
                world.plan(world.now_ns, Event::Leaves(self.id));
            }
            frame.ok_or(world.links[self.id].is_closed)
        });
        match taken {
            Ok(frame) => {
                self.taken_bytes += frame.len() as u64;
                self.frame = frame;
                whole_frame(from, &self.frame, rendezvous_buffers)
            }
            Err(true) => Received::Closed,
            Err(false) => Received::Nothing,
        }
    }

    fn has_bytes(&self) -> bool {
        with(|world| !world.links[self.id].arrived.is_empty())
    }

    fn waits_on(&self) -> Option<RawFd> {
        None
    }

    fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    fn disconnect(&self) {
        with(|world| world.breaks(self.id));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
