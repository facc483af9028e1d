//! Queues of the links: frames that wait, and payloads that go in fragments.

use super::*;

/// A payload under way, of which `next..end` has not been given to the link.
pub(super) struct Push {
    payload: Arc<Payload>,
    rendezvous_buffer: u64,
    next: usize,
    end: usize,
    id: OutgoingId,
    /// True if it is to be reported as finished when it has gone.
    then: bool,
}

impl Links {
    /// Sends `payload` to a rendezvous buffer of `to`, in fragments. With `then`, its end is reported by
    /// [`Links::next_finished`].
    pub fn push(
        &mut self,
        to: ProcessIndex,
        payload: Arc<Payload>,
        rendezvous_buffer: u64,
        id: OutgoingId,
        then: bool,
    ) {
        let end = payload.len();
        self.peers[to.0 as usize].pushes.push_back(Push { payload, rendezvous_buffer, next: 0, end, id, then });
        self.mark_busy(to);
    }

    /// Cancels the rest of a payload's pushes: nobody needs it any more.
    pub fn cancel_pushes(&mut self, id: OutgoingId, payload: &Payload) {
        for to in &self.busy {
            let peer = &mut self.peers[to.0 as usize];
            peer.pushes.retain(|push| push.id != id);
            if let Route::Open(outlet) = &mut peer.route {
                outlet.detach(payload.bytes());
            }
        }
    }

    /// Number of processes to which something waits to go.
    pub fn busy_count(&self) -> usize {
        self.busy.len()
    }

    /// Returns true if anything waits to go.
    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Sends waiting frames and fragments as far as possible. Returns true if anything moved.
    pub fn pump(&mut self) -> bool {
        let mut progressed = false;
        let mut at = 0;
        while at < self.busy.len() {
            let to = self.busy[at];
            progressed |= self.pump_peer(to);
            let idle = self.is_drained(to);
            let peer = &mut self.peers[to.0 as usize];
            if idle && peer.backlog.is_empty() && peer.pushes.is_empty() {
                peer.busy = false;
                self.busy.swap_remove(at);
                self.share(to);
            } else {
                at += 1;
            }
        }
        progressed
    }

    fn pump_peer(&mut self, to: ProcessIndex) -> bool {
        let mut progressed = false;
        let peer = &mut self.peers[to.0 as usize];
        if let Route::Open(outlet) = &mut peer.route {
            outlet.flush();
            if outlet.is_broken() {
                self.route_broke(to);
            }
        }
        while let Some(waiting) = self.peers[to.0 as usize].backlog.pop_front() {
            if !self.transmit(to, &waiting.header, waiting.digest, waiting.body.bytes()) {
                self.peers[to.0 as usize].backlog.push_front(waiting);
                return progressed;
            }
            progressed = true;
            self.finished.extend(waiting.then);
        }
        while let Some(mut push) = self.peers[to.0 as usize].pushes.pop_front() {
            let was_given = push.next == push.end;
            let has_left = was_given || self.push_fragment(to, &mut push);
            // A last fragment that waits in the link is no progress: a process that waits for it may sleep.
            progressed |= has_left && !was_given;
            // The last fragment may wait in the link, which then refers to the application's memory.
            if push.next == push.end && self.is_drained(to) {
                self.finished.extend(push.then.then_some(push.id));
                progressed = true;
                continue;
            }
            let is_stuck = !has_left || push.next == push.end;
            self.peers[to.0 as usize].pushes.push_front(push);
            if is_stuck {
                return progressed;
            }
        }
        progressed
    }

    fn is_drained(&self, to: ProcessIndex) -> bool {
        match &self.peers[to.0 as usize].route {
            Route::Open(outlet) => outlet.is_idle(),
            _ => true,
        }
    }

    fn push_fragment(&mut self, to: ProcessIndex, push: &mut Push) -> bool {
        let fragment = Fragment { rendezvous_buffer: push.rendezvous_buffer, offset: push.next as u64 }.to_bytes();
        let header = Header::new(FrameKind::Data, 0);
        let peer = &mut self.peers[to.0 as usize];
        match &mut peer.route {
            Route::Ring(producer) => {
                let count = (push.end - push.next).min(shm::FRAME_BYTES_MAX - HEADER_BYTES - Fragment::BYTES);
                let bytes = &push.payload.bytes()[push.next..push.next + count];
                let fill = |place: *mut u8| {
                    // SAFETY: - the ring gives BYTES + count writable bytes at place, outside of any other buffer.
                    unsafe { std::ptr::copy_nonoverlapping(fragment.as_ptr(), place, Fragment::BYTES) };
                    // SAFETY: - the ring gives BYTES + count writable bytes at place, and these lie behind the first
                    //           BYTES.
                    unsafe { copying::copy(bytes.as_ptr(), place.add(Fragment::BYTES), count) };
                };
                let Some(poke) = producer.send(&header, None, Fragment::BYTES + count, fill) else {
                    if producer.is_broken() {
                        self.give_up_ring(to);
                        push.next = push.end;
                        return true;
                    }
                    return false;
                };
                push.next += count;
                if poke {
                    self.ring_wake_socket(to);
                }
                true
            }
            Route::Open(outlet) => {
                if !outlet.is_idle() {
                    return false;
                }
                let count = (push.end - push.next).min(outlet.data_bytes_max());
                let header = Header::of_size(FrameKind::Data, Fragment::BYTES + count);
                let mut head = [0; HEADER_BYTES + Fragment::BYTES];
                head[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
                head[HEADER_BYTES..].copy_from_slice(&fragment);
                let payload: Arc<dyn Source> = push.payload.clone();
                outlet.send_shared(&head, &payload, push.next, push.next + count);
                push.next += count;
                true
            }
            Route::Gone => {
                push.next = push.end;
                true
            }
            Route::Opening { .. } => false,
            Route::Unopened => {
                self.open(to);
                self.push_fragment(to, push)
            }
        }
    }

    /// Takes an outgoing message that has gone as a whole; `None` when there are no more.
    pub fn next_finished(&mut self) -> Option<OutgoingId> {
        self.finished.pop()
    }
}
