//! Large payloads. The receiver reads them from the sender's memory where it may; else it grants a landing and the
//! sender pushes fragments.

use super::Engine;
use super::message::{Data, Pull};
use super::outgoing::{Outgoing, OutgoingId};
use super::refusal::Fault;
use super::replication::Whole;
use super::request::Operation;
use redrt_transport::frame::{Grant, Header, Kind, Rendezvous};
use redrt_transport::memory::Scratch;
use redrt_transport::{LandingId, direct};
use redrt_types::{Digest, ProcessIndex};
use sdc_detect::DigestStream;
use std::io;

/// Longer payloads are copied and hashed, or copied and spread, in pieces of this size, which stay in the cache.
const PIECE_BYTES: usize = 256 << 10;

impl Engine {
    /// Fetches the payload of a matched message from its sender.
    pub(super) fn pull(&mut self, key: usize) {
        let Data::Remote(from, rendezvous) = &self.messages[key].data else {
            unreachable!("only remote payloads are pulled")
        };
        let (from, rendezvous) = (*from, *rendezvous);
        let length = rendezvous.length as usize;
        let in_buffer = match self.messages[key].receive {
            Some(receive) => match &self.requests.get(receive).operation {
                Operation::Receive { target, .. } => target.contiguous(rendezvous.length),
                _ => unreachable!("only receives are matched"),
            },
            None => None,
        };
        if in_buffer.is_none() && self.spread_directly(key, from, &rendezvous) {
            return;
        }
        let mut staged = None;
        let start = match in_buffer {
            Some(start) => start,
            None => {
                // A length stated by a corrupt peer must not end this process. Pages are touched only as bytes come.
                let Some(staging) = Scratch::try_spare(length) else {
                    return self.faults.push((from, Fault::Memory(rendezvous.length)));
                };
                staged.insert(staging).region().start()
            }
        };
        let read = if length == 0 { Some(None) } else { self.read_directly(key, from, &rendezvous, start) };
        if let Some(hashed) = read {
            self.messages[key].data = Data::Landing(staged);
            if !self.is_replicated() {
                self.say_done(from, rendezvous.offer);
            }
            self.payload_in_place(key, from, start, hashed);
            return;
        }
        // SAFETY: - start is the receive's buffer, lent until it completes, or `staged`, which the message keeps; both
        // outlive the landing, which is removed when the payload is complete or given up.
        let landing = unsafe { self.landings.insert(start, length, key, from) };
        self.messages[key].data = Data::Landing(staged);
        self.messages[key].pull = Some(Box::new(Pull { landing, from, start: start as usize }));
        let grant = Grant { offer: rendezvous.offer, landing: landing.0, length: rendezvous.length };
        self.links.send(from, Header::new(Kind::Grant, 0), None, &grant.to_bytes());
    }

    /// Reads the payload from its sender's memory and spreads it over the receive's buffer piece by piece. Not with
    /// replication: there the whole payload may be needed as evidence. Returns false if it was not possible.
    fn spread_directly(&mut self, key: usize, from: ProcessIndex, rendezvous: &Rendezvous) -> bool {
        let Some(pid) = self.readable_pid(from, rendezvous) else { return false };
        let Some(receive) = self.messages[key].receive.filter(|_| !self.is_replicated()) else { return false };
        let Operation::Receive { target, .. } = &self.requests.get(receive).operation else {
            unreachable!("only receives are matched")
        };
        let length = rendezvous.length.min(target.capacity) as usize;
        let mut piece = Scratch::spare(length.min(PIECE_BYTES));
        for offset in (0..length).step_by(PIECE_BYTES) {
            let part = piece.region().part(0, PIECE_BYTES.min(length - offset));
            let address = rendezvous.address.wrapping_add(offset as u64);
            // SAFETY: - a part of our own memory, which nobody else knows.
            if let Err(error) = unsafe { direct::read(pid, address, part.start(), part.len()) } {
                self.note_refusal(&error);
                return false;
            }
            // SAFETY: - the application lent the buffer until the receive completes, and it has not.
            part.with_bytes(|bytes| unsafe { target.place_at(offset as u64, bytes) });
        }
        self.say_done(from, rendezvous.offer);
        let message = self.messages.remove(key);
        self.complete_receive(receive, length as u64, message.source, message.tag, message.length);
        true
    }

    /// Process id for reading a payload directly; `None` where that is not possible.
    fn readable_pid(&self, from: ProcessIndex, rendezvous: &Rendezvous) -> Option<i32> {
        if self.direct_refused || rendezvous.address == 0 { None } else { self.links.local_pid(from) }
    }

    fn note_refusal(&mut self, error: &io::Error) {
        // Reading is not permitted here, or across process-id namespaces: do not try again. Other errors, such as a
        // wrong address, do not count: the sender can push without the address.
        let is_refusal = |code| matches!(code, libc::EPERM | libc::EACCES | libc::ENOSYS);
        self.direct_refused |= error.raw_os_error().is_some_and(is_refusal);
    }

    /// Reads the payload of a message from its sender's memory to `start`; `None` where that is not possible. Also
    /// returns its digest, if hashed on the way.
    fn read_directly(
        &mut self,
        key: usize,
        from: ProcessIndex,
        rendezvous: &Rendezvous,
        start: *mut u8,
    ) -> Option<Option<Digest>> {
        let pid = self.readable_pid(from, rendezvous)?;
        let length = rendezvous.length as usize;
        let read = match &self.replication {
            Some(replication) if length > 4 * PIECE_BYTES => {
                let hashing = replication.digest_stream(self.messages[key].tag, rendezvous.length);
                read_and_hash(pid, rendezvous.address, start, length, hashing)
            }
            // SAFETY: - start is valid for rendezvous.length bytes of writes: `pull` chose it so.
            _ => unsafe { direct::read(pid, rendezvous.address, start, length) }.map(|()| None),
        };
        match read {
            Ok(hashed) => Some(hashed),
            Err(error) => {
                self.note_refusal(&error);
                None
            }
        }
    }

    fn say_done(&mut self, to: ProcessIndex, offer: u64) {
        let mut header = Header::new(Kind::Done, 0);
        header.sequence = offer as u32;
        header.source = (offer >> 32) as u32;
        self.links.send(to, header, None, &[]);
    }

    /// Takes in that bytes of a landing have arrived.
    pub(super) fn landed(&mut self, landing: LandingId, count: usize) {
        if let Some(key) = self.landings.advance(landing, count) {
            let pull = self.messages[key].pull.take().expect("it has a landing");
            self.payload_in_place(key, pull.from, pull.start as *mut u8, None);
        }
    }

    /// Takes in that the whole payload of a message is at `start`, in the receive's buffer or staged. `hashed` is its
    /// digest, if known.
    fn payload_in_place(&mut self, key: usize, from: ProcessIndex, start: *mut u8, hashed: Option<Digest>) {
        let message = &mut self.messages[key];
        let Some(id) = message.id else {
            let message = self.messages.remove(key);
            let receive = message.receive.expect("the message was matched");
            return match &message.data {
                Data::Landing(Some(bytes)) => self.place(receive, bytes.bytes(), &message),
                _ => self.complete_receive(receive, message.length, message.source, message.tag, message.length),
            };
        };
        let tag = message.tag;
        if message.is_shadow {
            let message = self.messages.remove(key);
            let Data::Landing(Some(bytes)) = &message.data else { unreachable!("a shadow is staged") };
            return self.shadow_complete(id, &Whole { from, tag, bytes: bytes.bytes(), hashed });
        }
        let receive = message.receive.expect("the message was matched");
        match std::mem::replace(&mut message.data, Data::Placed) {
            Data::Landing(Some(bytes)) => {
                self.copy_to(receive, bytes.bytes());
                self.payload_complete(id, key, &Whole { from, tag, bytes: bytes.bytes(), hashed });
            }
            _ => {
                let length = message.length as usize;
                // SAFETY: - the payload's bytes, just written to the receive's buffer, which is lent until it
                // completes.
                let bytes = if length == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(start, length) } };
                self.payload_complete(id, key, &Whole { from, tag, bytes, hashed });
            }
        }
        // The sender waits for the acknowledgement.
        self.flush();
    }

    /// The offer of this number, if it was made to that process.
    fn offered_to(&mut self, from: ProcessIndex, id: OutgoingId) -> Result<&mut Outgoing, Fault> {
        let rank = self.rank_of(from);
        let outgoing = self.outgoing.get_mut(id).filter(|outgoing| outgoing.to == Some(rank) && !outgoing.eager);
        outgoing.ok_or(Fault::Offer(id.0))
    }

    /// Pushes the payload of an offer to its receiver, which grants a landing.
    pub(super) fn granted(&mut self, from: ProcessIndex, grant: Grant) -> Result<(), Fault> {
        let id = OutgoingId(grant.offer);
        let is_replicated = self.is_replicated();
        if is_replicated && !self.is_live(self.world.replica(from)) {
            // Its death may have ended the need for this payload, and nothing is kept for it.
            return Ok(());
        }
        let outgoing = self.offered_to(from, id)?;
        let length = outgoing.payload.len() as u64;
        if grant.length != length {
            return Err(Fault::GrantLength { wanted: grant.length, length });
        }
        // With replication the payload goes to several replicas, and may have to go again; it stays until all have
        // acknowledged it.
        if outgoing.granted && !is_replicated {
            return Err(Fault::Offer(id.0));
        }
        outgoing.granted = true;
        let payload = outgoing.payload.share();
        self.links.push(from, payload, grant.landing, id, !is_replicated);
        Ok(())
    }

    /// Takes in that the receiver of an offer has read its bytes.
    pub(super) fn payload_read(&mut self, from: ProcessIndex, id: OutgoingId) -> Result<(), Fault> {
        if self.is_replicated() {
            return Err(Fault::Misplaced(Kind::Done));
        }
        if self.offered_to(from, id)?.granted {
            return Err(Fault::Offer(id.0));
        }
        self.outgoing_gone(id);
        Ok(())
    }
}

/// Reads `length` bytes at `address` of process `pid` to `to`, piece by piece, and hashes each while it is in the
/// cache.
fn read_and_hash(
    pid: i32,
    address: u64,
    to: *mut u8,
    length: usize,
    mut hashing: DigestStream,
) -> io::Result<Option<Digest>> {
    for offset in (0..length).step_by(PIECE_BYTES) {
        let (piece, count) = (to.wrapping_add(offset), PIECE_BYTES.min(length - offset));
        // SAFETY: - within the memory that `pull` chose to be valid for `length` bytes of writes.
        unsafe { direct::read(pid, address.wrapping_add(offset as u64), piece, count)? };
        // SAFETY: - count bytes were just written there.
        hashing.update(unsafe { std::slice::from_raw_parts(piece, count) });
    }
    Ok(Some(hashing.finish()))
}
