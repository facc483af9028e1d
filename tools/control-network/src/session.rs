//! A host's stream of messages to or from the coordinator, which outlives its connections. Pure.
//!
//! Sent messages, received messages and the other end's acknowledgements enter; messages to send again leave.
//! `redrt_wire::tree` describes how both ends resynchronize.

use std::collections::VecDeque;
use std::rc::Rc;

/// Number of messages after which an acknowledgement is due.
const UNTOLD_COUNT_MAX: u64 = 32;
/// Bytes after which an acknowledgement is due: output keeps much in the sender's log.
const UNTOLD_BYTES_MAX: usize = 256 << 10;

/// One end of the stream.
#[derive(Debug, Default)]
pub struct Session {
    /// Messages that the other end has not acknowledged.
    log: VecDeque<Rc<[u8]>>,
    log_bytes: usize,
    /// Number of the log's first message.
    first: u64,
    received: u64,
    untold_count: u64,
    untold_bytes: usize,
}

impl Session {
    /// Restores an end that has received `received` messages. `log`: messages that the other end may not have,
    /// beginning with number `first`.
    #[must_use]
    pub fn restored(received: u64, first: u64, log: Vec<Rc<[u8]>>) -> Self {
        let log_bytes = log.iter().map(|body| body.len()).sum();
        Self { log: log.into(), log_bytes, first, received, ..Self::default() }
    }

    /// Messages that the other end has not acknowledged.
    pub fn log(&self) -> impl Iterator<Item = &[u8]> {
        self.log.iter().map(|body| &**body)
    }

    /// Keeps a message that is being sent.
    pub fn keep(&mut self, body: Rc<[u8]>) {
        self.log_bytes += body.len();
        self.log.push_back(body);
    }

    /// Bytes that the other end has not acknowledged.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        self.log_bytes
    }

    /// Number of messages sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// Number of the first message that the other end has not acknowledged.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number of messages received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Counts a received message. `Some(count)` if an acknowledgement is due.
    pub fn count(&mut self, bytes: usize) -> Option<u64> {
        self.received += 1;
        self.untold_count += 1;
        self.untold_bytes += bytes;
        (self.untold_count >= UNTOLD_COUNT_MAX || self.untold_bytes >= UNTOLD_BYTES_MAX).then(|| self.acknowledge())
    }

    /// The count that the other end does not know yet. Must be called at intervals, so that the other end's log
    /// empties.
    pub fn untold(&mut self) -> Option<u64> {
        (self.untold_count > 0).then(|| self.acknowledge())
    }

    fn acknowledge(&mut self) -> u64 {
        (self.untold_count, self.untold_bytes) = (0, 0);
        self.received
    }

    /// Handles the acknowledgement of `count` messages. An impossible count is ignored: it comes from an old message.
    pub fn taken(&mut self, count: u64) {
        let known = count.saturating_sub(self.first).min(self.log.len() as u64);
        for body in self.log.drain(..known as usize) {
            self.log_bytes -= body.len();
        }
        self.first += known;
    }

    /// Messages that the other end lacks if it has `count`.
    pub fn missing(&mut self, count: u64) -> impl Iterator<Item = Rc<[u8]>> + '_ {
        self.taken(count);
        self.log.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every message arrives once and in order, however often the connection breaks and whatever it loses.
        #[test]
        fn nothing_is_lost_or_repeated(steps in proptest::collection::vec(0u8..4, 1..200)) {
            let (mut sender, mut receiver) = (Session::default(), Session::default());
            let mut way: VecDeque<Rc<[u8]>> = VecDeque::new();
            let (mut sent, mut got) = (0u64, Vec::new());
            let take = |way: &mut VecDeque<Rc<[u8]>>, receiver: &mut Session, sender: &mut Session, got: &mut Vec<u64>| {
                let Some(body) = way.pop_front() else { return };
                got.push(u64::from_le_bytes(body[..].try_into().unwrap()));
                if let Some(count) = receiver.count(100 << 10) {
                    sender.taken(count);
                }
            };
            for step in steps {
                match step {
                    0 | 1 => {
                        let body: Rc<[u8]> = sent.to_le_bytes().to_vec().into();
                        sent += 1;
                        sender.keep(body.clone());
                        way.push_back(body);
                    }
                    2 => take(&mut way, &mut receiver, &mut sender, &mut got),
                    _ => {
                        way.clear();
                        way.extend(sender.missing(receiver.received()));
                    }
                }
            }
            while !way.is_empty() {
                take(&mut way, &mut receiver, &mut sender, &mut got);
            }
            prop_assert_eq!(got, (0..sent).collect::<Vec<_>>());
            sender.taken(receiver.received());
            prop_assert_eq!(sender.log_bytes(), 0);
        }
    }
}
