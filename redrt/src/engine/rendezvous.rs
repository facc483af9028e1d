//! Large payloads: the receiver reads them out of the sender's memory where it may, else it grants a landing and the
//! sender pushes fragments.

use super::Engine;
use super::link::OutgoingId;
use super::receive::{Data, Message};
use super::request::Operation;
use crate::transport::frame::{Grant, Header, Kind, Rendezvous};
use crate::transport::{LandingId, direct};
use redrt_types::ProcessIndex;

impl Engine {
    /// Fetches the payload of a matched message from its sender.
    pub(super) fn pull(&mut self, key: usize) {
        let Data::Remote(from, rendezvous) = &self.messages[key].data else {
            unreachable!("only remote payloads are pulled")
        };
        let (from, rendezvous) = (*from, *rendezvous);
        let length = rendezvous.length as usize;
        let receive = self.messages[key].receive.expect("the message was matched");
        let Operation::Receive { target, .. } = &self.requests.get(receive).operation else {
            unreachable!("only receives are matched")
        };
        let mut staged = None;
        let start = match target.contiguous(rendezvous.length) {
            Some(start) => start,
            None => staged.insert(vec![0u8; length].into_boxed_slice()).as_mut_ptr(),
        };
        if length == 0 || self.read_directly(from, &rendezvous, start) {
            self.messages[key].data = Data::Landing(staged);
            self.say_done(from, rendezvous.offer);
            self.payload_in_place(key);
            return;
        }
        // SAFETY: - start is the receive's buffer, lent until it completes, or `staged`, which the message keeps; both
        //           outlive the landing, which is removed when the payload is complete.
        let landing = unsafe { self.landings.insert(start, length, key) };
        self.messages[key].data = Data::Landing(staged);
        let grant = Grant { offer: rendezvous.offer, landing: landing.0, length: rendezvous.length };
        self.links.send(from, Header::new(Kind::Grant, 0), None, &grant.to_bytes());
    }

    fn read_directly(&mut self, from: ProcessIndex, rendezvous: &Rendezvous, start: *mut u8) -> bool {
        if self.direct_refused || rendezvous.address == 0 {
            return false;
        }
        let Some(pid) = self.links.local_pid(from) else { return false };
        // SAFETY: - start is valid for rendezvous.length bytes of writes: `pull` chose it so.
        match unsafe { direct::read(pid, rendezvous.address, start, rendezvous.length as usize) } {
            Ok(()) => true,
            Err(error) => {
                // Not permitted here, or in another process-id namespace: do not try again.
                self.direct_refused |= error.raw_os_error() != Some(libc::ESRCH);
                false
            }
        }
    }

    fn say_done(&mut self, to: ProcessIndex, offer: u64) {
        let mut header = Header::new(Kind::Done, 0);
        header.sequence = offer as u32;
        header.source = (offer >> 32) as u32;
        self.links.send(to, header, None, &[]);
    }

    /// Bytes of a landing have arrived.
    pub(super) fn landed(&mut self, landing: LandingId, count: usize) {
        if let Some(key) = self.landings.advance(landing, count) {
            self.payload_in_place(key);
        }
    }

    /// The whole payload of a matched message is in its buffer, or staged.
    fn payload_in_place(&mut self, key: usize) {
        let message: Message = self.messages.remove(key);
        let receive = message.receive.expect("the message was matched");
        match &message.data {
            Data::Landing(Some(bytes)) => self.place(receive, bytes, &message),
            _ => self.complete_receive(receive, message.length, &message),
        }
    }

    /// The receiver of an offer wants its bytes.
    pub(super) fn granted(&mut self, from: ProcessIndex, grant: Grant) {
        let id = OutgoingId(grant.offer);
        if let Some(outgoing) = self.outgoing.get(&id) {
            let payload = outgoing.payload.clone();
            self.links.push(from, payload, grant.landing, grant.length, Some(id));
        }
    }
}
