//! Updates by messages. Each process sends bursts to the others, and in between receives messages as long as tests find
//! some. Its path depends on the messages that have come and on the clock's readings.

use super::mpi::{self, mpi};
use super::{Member, same};
use redrt::exports::*;
use redrt_abi::handle::RequestHandle;
use redrt_abi::{MPI_ANY_SOURCE, MPI_ANY_TAG, Status};
use std::ffi::c_int;

const UPDATE: c_int = 1;
const FINISHED: c_int = 2;

/// A process that sends and takes updates.
struct Exchange<'a> {
    member: &'a mut Member,
    operation: u64,
    /// Receives from any source, each with its buffer.
    receives: Vec<RequestHandle>,
    places: Vec<Vec<u64>>,
    /// Number of messages that are still to come from each rank.
    missing: Vec<u64>,
    /// True if it takes all messages that have come at once, false if one after the other.
    takes_some: bool,
}

/// Sends bursts of numbered updates, all from one buffer.
pub fn exchanged(member: &mut Member) {
    for _ in 0..1 + member.common.below(3) {
        let (operation, rounds) = (member.common.number(), 1 + member.common.below(6) as u64);
        let (length, count) = (1 + member.length(), 1 + member.common.below(3));
        let mut missing = vec![rounds + 1; member.size];
        missing[member.rank] = 0;
        let (places, takes_some) = (vec![vec![0; length]; count], member.common.below(2) == 0);
        let mut exchange = Exchange { member, operation, receives: Vec::new(), places, missing, takes_some };
        (0..count).for_each(|at| exchange.post(at));
        exchange.run(rounds, length);
        mpi!(call_barrier(member.comm));
    }
}

impl Exchange<'_> {
    fn post(&mut self, at: usize) {
        let receive = mpi::ireceive(self.member.comm, &mut self.places[at], MPI_ANY_SOURCE, MPI_ANY_TAG);
        if at == self.receives.len() { self.receives.push(receive) } else { self.receives[at] = receive }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.member.rank, self.member.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    fn is_open(&self) -> bool {
        self.missing.iter().any(|missing| *missing > 0)
    }

    fn run(&mut self, rounds: u64, length: usize) {
        let mut buffer = vec![0; length];
        let (comm, rank) = (self.member.comm, self.member.rank);
        for other in self.others() {
            let (mut sent, mut number) = (RequestHandle::NULL, 0);
            while number < rounds {
                while self.is_open() && self.take_what_is_there() {}
                // Readings alone, and a path that depends on their result.
                let shown = mpi::clock();
                self.member.output.push(shown);
                if shown.is_multiple_of(3) {
                    self.member.output.push(mpi::clock());
                } else if mpi::test(&mut sent).is_some() {
                    buffer.copy_from_slice(&Member::words(self.operation ^ number, rank, length));
                    buffer[0] = number;
                    // The clock decides how much of the buffer is sent.
                    let part = length - shown as usize % length;
                    sent = mpi::isend(comm, &buffer[..part], other, UPDATE);
                    number += 1;
                }
            }
            // The send may complete only when the other process receives, which may be in this loop as well.
            while mpi::test(&mut sent).is_none() {
                while self.is_open() && self.take_what_is_there() {}
            }
        }
        let mut done: Vec<_> = self.others().map(|other| mpi::isend(comm, &[], other, FINISHED)).collect();
        while self.is_open() {
            if self.takes_some {
                self.take_several(mpi::wait_some);
            } else {
                let (at, status) = mpi::wait_any(&mut self.receives);
                self.take(at, status);
            }
        }
        mpi::wait_all(&mut done);
        for receive in &mut self.receives {
            // Every process has received all other processes' last messages.
            assert!(mpi::cancel(receive), "nobody has sent this");
        }
    }

    fn take_several(&mut self, look: fn(&mut [RequestHandle]) -> Vec<(usize, Status)>) -> bool {
        let found = look(&mut self.receives);
        found.iter().for_each(|(at, status)| self.take(*at, *status));
        !found.is_empty()
    }

    fn take_what_is_there(&mut self) -> bool {
        if self.takes_some {
            return self.take_several(mpi::test_some);
        }
        let found = mpi::test_any(&mut self.receives);
        if let Some((at, status)) = found {
            self.take(at, status);
        }
        found.is_some()
    }

    /// Checks a message that has come. With several receives, it may not be the next one of its source.
    fn take(&mut self, at: usize, status: Status) {
        let (source, length) = (status.source as usize, status.byte_count() as usize / 8);
        self.missing[source] = self.missing[source].checked_sub(1).expect("it has sent its last");
        if status.tag == UPDATE {
            let words = &self.places[at][..length];
            let mut expected = Member::words(self.operation ^ words[0], source, length);
            expected[0] = words[0];
            same(words, &expected, "an update");
            self.member.output.push(words[0]);
        } else {
            assert_eq!((status.tag, length), (FINISHED, 0));
        }
        self.member.output.extend([source as u64, length as u64]);
        self.post(at);
    }
}
