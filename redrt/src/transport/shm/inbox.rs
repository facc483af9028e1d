//! Where a process looks for frames: the rings that it polls, and those that are announced to it.

use super::{Consumer, Segment, wake};
use redrt_sync::seen;
use redrt_types::ProcessIndex;
use std::sync::atomic::{self, Ordering};

/// The receiving side of one process: finds the rings that have something.
pub struct Inbox {
    segment: Segment,
    me: ProcessIndex,
    consumers: Vec<Option<Box<Consumer>>>,
    /// Rings polled without being told, the longest there first.
    polled: Vec<ProcessIndex>,
    /// Rings that were polled, and still say so: that is taken back for all at once.
    leaving: Vec<ProcessIndex>,
    /// Where the round over `polled` goes on, so that a busy ring does not starve another.
    cursor: usize,
    /// Rings that were announced and are not drained yet.
    told: Vec<ProcessIndex>,
    turn: u32,
    /// Producers that must be woken through their wake socket.
    wakes: Vec<ProcessIndex>,
}

/// Most rings polled without being told: looking at each costs a cache hit.
pub(super) const POLLED_MAX: usize = 8;

/// As many rings stop to say that they are polled at once: the barrier that it takes may cost 20 microseconds.
const LEAVING_MAX: usize = 32;

impl Inbox {
    /// The inbox of process `me` for what `sender_count` processes send.
    pub fn new(segment: Segment, me: ProcessIndex, sender_count: u32) -> Self {
        let consumers = (0..segment.slot_count.min(sender_count)).map(|_| None).collect();
        let (polled, leaving, told, wakes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { segment, me, consumers, polled, leaving, cursor: 0, told, turn: 0, wakes }
    }

    /// The sender of a ring that has a record at its front, if any has.
    pub fn next_sender(&mut self) -> Option<ProcessIndex> {
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(16)
            && let Some(process) = self.next_told().or_else(|| self.next_leaving())
        {
            return Some(process);
        }
        for _ in 0..self.polled.len() {
            self.cursor = if self.cursor + 1 < self.polled.len() { self.cursor + 1 } else { 0 };
            let process = self.polled[self.cursor];
            if self.has_record(process) {
                return Some(process);
            }
        }
        self.next_told().or_else(|| self.next_leaving())
    }

    fn next_told(&mut self) -> Option<ProcessIndex> {
        if self.told.is_empty() {
            self.collect_announcements();
        }
        while let Some(process) = self.told.last().copied() {
            if self.has_record(process) {
                return Some(process);
            }
            self.told.pop();
            self.adopt(process);
        }
        None
    }

    fn next_leaving(&mut self) -> Option<ProcessIndex> {
        for place in 0..self.leaving.len() {
            let process = self.leaving[place];
            if self.has_record(process) {
                return Some(process);
            }
        }
        None
    }

    fn collect_announcements(&mut self) {
        let slot = self.segment.slot(self.me);
        if slot.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        slot.pending.store(0, Ordering::SeqCst);
        atomic::fence(Ordering::SeqCst);
        let words = (self.segment.slot_count as usize).div_ceil(64);
        for (number, word) in slot.bits[..words].iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let sender = ProcessIndex((number * 64) as u32 + bits.trailing_zeros());
                if (sender.0 as usize) < self.consumers.len() && sender != self.me {
                    self.told.push(sender);
                }
                bits &= bits - 1;
            }
        }
    }

    /// Whether the ring has a record; an empty one gives a waiting producer its room.
    fn has_record(&mut self, process: ProcessIndex) -> bool {
        let consumer = self.consumer(process);
        if consumer.has_record() {
            return true;
        }
        if consumer.is_starved() {
            self.relieve(process);
        }
        false
    }

    fn relieve(&mut self, process: ProcessIndex) {
        if self.consumer(process).relieve() && wake(&self.segment.slot(process).sleep) {
            self.wakes.push(process);
        }
    }

    /// A ring that has just been drained after an announcement is polled from now on, in place of the oldest. What came
    /// in before the flag was set is seen by the next look at `polled`, or was announced.
    fn adopt(&mut self, process: ProcessIndex) {
        if self.polled.contains(&process) {
            return;
        }
        self.leaving.retain(|leaving| *leaving != process);
        if self.polled.len() == POLLED_MAX {
            let oldest = self.polled.remove(0);
            self.leaving.push(oldest);
            if self.leaving.len() == LEAVING_MAX {
                self.leave();
            }
        }
        self.polled.push(process);
        self.consumer(process).set_polled(true);
        atomic::fence(Ordering::SeqCst);
    }

    /// Rings that are not polled any more say so. What has come in by then is taken as if it had been announced.
    fn leave(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        for process in &leaving {
            self.consumer(*process).set_polled(false);
        }
        seen::before_last_look(redrt_sync::fence::is_registered());
        for process in leaving {
            self.relieve(process);
            if self.consumer(process).has_record() {
                self.told.insert(0, process);
            }
        }
    }

    /// The ring from `sender`.
    #[inline]
    pub fn consumer(&mut self, sender: ProcessIndex) -> &mut Consumer {
        let (segment, me) = (self.segment, self.me);
        self.consumers[sender.0 as usize].get_or_insert_with(|| Box::new(Consumer::new(segment, sender, me)))
    }

    /// By sender, bytes of its ring that records have taken and given back so far.
    pub fn consumed_bytes(&self) -> impl Iterator<Item = (ProcessIndex, u64)> + '_ {
        let opened = self.consumers.iter().enumerate();
        opened.filter_map(|(number, consumer)| Some((ProcessIndex(number as u32), consumer.as_ref()?.consumed_bytes())))
    }

    /// Takes from `sender` again, from the begin of a ring that nobody has used.
    pub fn reopen(&mut self, sender: ProcessIndex) {
        let polled = self.polled.contains(&sender) || self.leaving.contains(&sender);
        let consumer = Consumer::new(self.segment, sender, self.me);
        consumer.set_polled(polled);
        atomic::fence(Ordering::SeqCst);
        self.consumers[sender.0 as usize] = Some(Box::new(consumer));
        if !self.told.contains(&sender) {
            self.told.push(sender);
        }
    }

    /// Takes nothing more from `sender`.
    pub fn close(&mut self, sender: ProcessIndex) {
        self.consumer(sender).close();
    }

    /// The look that must follow when the process has said that it sleeps: gives all waiting producers their room, and
    /// says whether a record has come in.
    pub fn look_before_sleep(&mut self) -> bool {
        for number in 0..self.consumers.len() {
            if self.consumers[number].as_ref().is_some_and(|consumer| consumer.is_starved()) {
                self.relieve(ProcessIndex(number as u32));
            }
        }
        self.next_sender().is_some()
    }

    /// The next producer that must be woken through its wake socket.
    pub fn next_wake(&mut self) -> Option<ProcessIndex> {
        self.wakes.pop()
    }
}
