//! Standard input on its way to every replica of rank 0, at the speed of the slowest.

use super::child::{Child, Kind};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::{HashMap, VecDeque};

/// Bytes that not every reader has taken yet.
#[derive(Default)]
pub struct Input {
    pending: VecDeque<u8>,
    ended: bool,
    /// By child number: how many of the pending bytes it has taken.
    taken_bytes: HashMap<usize, usize>,
}

impl Input {
    /// Child `number` is to get all the input.
    pub fn add_reader(&mut self, number: usize) {
        self.taken_bytes.insert(number, 0);
    }

    /// Child `number` is waited for no more.
    pub fn remove_reader(&mut self, number: usize) {
        self.taken_bytes.remove(&number);
    }

    /// More input.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
    }

    /// No more input.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Writes what the readers take; returns how many bytes all of them have taken since the last call.
    pub fn feed(&mut self, children: &mut [Child], epoll: &Epoll) -> u64 {
        let pending = self.pending.make_contiguous();
        let mut finished = Vec::new();
        for (number, taken) in &mut self.taken_bytes {
            let child = &mut children[*number];
            let Some(fd) = &child.input else { continue };
            let mut broken = false;
            while *taken < pending.len() {
                match nix::unistd::write(fd, &pending[*taken..]) {
                    Ok(count) => *taken += count,
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => break,
                    Err(_) => {
                        broken = true;
                        break;
                    }
                }
            }
            let waits = *taken < pending.len();
            if broken || (self.ended && !waits) {
                let _ = epoll.delete(fd);
                child.input = None;
                finished.push(*number);
            } else {
                let flags = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
                let _ = epoll.modify(fd, &mut EpollEvent::new(flags, Kind::Input.token(*number)));
            }
        }
        for number in finished {
            self.taken_bytes.remove(&number);
        }
        let taken_by_all = self.taken_bytes.values().copied().min().unwrap_or(self.pending.len());
        self.pending.drain(..taken_by_all);
        self.taken_bytes.values_mut().for_each(|taken| *taken -= taken_by_all);
        taken_by_all as u64
    }
}
