//! Standard input for all replicas of rank 0, at the speed of the slowest.

use super::child::{Child, ChildEvent};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::{HashMap, VecDeque};

/// Bytes that some reader has not taken yet.
#[derive(Default)]
pub struct Input {
    pending: VecDeque<u8>,
    ended: bool,
    /// By child number: count of `pending` bytes that the child has taken.
    taken_bytes: HashMap<usize, usize>,
    /// By child number: bytes that a copy gets first, as its source had not read them.
    before: HashMap<usize, VecDeque<u8>>,
}

impl Input {
    /// Adds a reader, which gets all input.
    pub fn add_reader(&mut self, number: usize) {
        self.taken_bytes.insert(number, 0);
    }

    /// Adds a copy, which gets `before` and then all later input. `before` includes all bytes pending here.
    pub fn add_copy(&mut self, number: usize, before: Vec<u8>, has_ended: bool) {
        self.before.insert(number, before.into());
        self.taken_bytes.insert(number, self.pending.len());
        self.ended |= has_ended;
    }

    /// Bytes held here that child `number` has not taken.
    pub fn missing(&self, number: usize) -> Vec<u8> {
        let before = self.before.get(&number).into_iter().flatten();
        let taken = self.taken_bytes.get(&number).copied().unwrap_or(self.pending.len());
        before.chain(self.pending.range(taken..)).copied().collect()
    }

    /// True if no more input comes.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Removes a reader: the others do not wait for it any more.
    pub fn remove_reader(&mut self, number: usize) {
        self.taken_bytes.remove(&number);
        self.before.remove(&number);
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
    }

    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Writes as much as the readers take. Returns the number of bytes that all of them have taken since the last call.
    pub fn feed(&mut self, children: &mut [Child], epoll: &Epoll) -> u64 {
        let pending = self.pending.make_contiguous();
        let mut finished = Vec::new();
        for (number, taken) in &mut self.taken_bytes {
            let child = &mut children[*number];
            let Some(fd) = &child.input else { continue };
            let mut broken = false;
            let mut before = self.before.get_mut(number);
            loop {
                let (is_before, bytes) = match &mut before {
                    Some(before) if !before.is_empty() => (true, &*before.make_contiguous()),
                    _ => (false, &pending[*taken..]),
                };
                if bytes.is_empty() {
                    break;
                }
                match nix::unistd::write(fd, bytes) {
                    Ok(count) if is_before => drop(before.as_mut().map(|before| before.drain(..count))),
                    Ok(count) => *taken += count,
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => break,
                    Err(_) => {
                        broken = true;
                        break;
                    }
                }
            }
            let waits = before.is_some_and(|before| !before.is_empty()) || *taken < pending.len();
            if broken || (self.ended && !waits) {
                let _ = epoll.delete(fd);
                child.input = None;
                finished.push(*number);
            } else {
                let flags = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
                let _ = epoll.modify(fd, &mut EpollEvent::new(flags, ChildEvent::Input.token(*number)));
            }
        }
        for number in finished {
            self.taken_bytes.remove(&number);
            self.before.remove(&number);
        }
        let taken_by_all = self.taken_bytes.values().copied().min().unwrap_or(self.pending.len());
        self.pending.drain(..taken_by_all);
        self.taken_bytes.values_mut().for_each(|taken| *taken -= taken_by_all);
        taken_by_all as u64
    }
}
