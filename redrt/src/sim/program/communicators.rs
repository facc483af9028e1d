//! Communicators that come and go.

use super::mpi::{self, mpi};
use super::{Member, collectives, messages, same};
use crate::exports::*;
use crate::handle::CommHandle;
use quiesce::sim::random::Random;
use std::ffi::c_int;

/// Makes some, by duplication or by color, uses them and frees them, in any order.
pub fn made_and_freed(member: &mut Member) {
    let mut made = Vec::new();
    for _ in 0..1 + member.common.below(6) {
        let (way, seed) = (member.common.below(3), member.common.number());
        let colors = 1 + seed as usize % 3;
        let mut part = match way {
            0 => duplicate(member, seed),
            _ => split(member, colors, seed),
        };
        if way == 0 {
            crossed(member, &part, seed);
        }
        match member.common.below(3) {
            0 => collectives::blocking(&mut part),
            1 => messages::named(&mut part),
            _ => messages::from_any(&mut part),
        }
        member.output.append(&mut part.output);
        // Members of different parts of one split may free at different times.
        let (is_early, is_same) = (member.common.chance(50), member.common.chance(50));
        if is_early && (way == 0 || is_same || member.rank.is_multiple_of(colors)) {
            mpi!(call_comm_free(&raw mut part.comm));
        } else {
            made.push(part.comm);
        }
        // The one that it was made from is not disturbed.
        collectives::blocking(member);
    }
    for comm in &mut made {
        mpi!(call_comm_free(comm));
    }
}

/// Messages of both are under way at once, with one tag, and received in another order than they were sent in.
fn crossed(member: &Member, part: &Member, seed: u64) {
    let (rank, size) = (member.rank, member.size);
    let (to, source) = ((rank + 1) % size, (rank + size - 1) % size);
    let [first, second] = [seed, !seed].map(|operation| Member::words(operation, rank, 3));
    let mut sends = [mpi::isend(member.comm, &first, to, 1), mpi::isend(part.comm, &second, to, 1)];
    for (comm, operation) in [(part.comm, !seed), (member.comm, seed)] {
        let mut words = vec![0; 3];
        mpi::receive(comm, &mut words, source as c_int, 1);
        same(&words, &Member::words(operation, source, 3), "a message of another communicator");
    }
    mpi::wait_all(&mut sends);
}

fn duplicate(member: &Member, seed: u64) -> Member {
    let mut comm = CommHandle::NULL;
    mpi!(call_comm_dup(member.comm, &raw mut comm));
    Member { comm, rank: member.rank, size: member.size, common: Random::new(seed), output: Vec::new() }
}

/// By color, in the opposite order.
fn split(member: &Member, colors: usize, seed: u64) -> Member {
    let (color, mut comm) = (member.rank % colors, CommHandle::NULL);
    mpi!(call_comm_split(member.comm, color as c_int, -(member.rank as c_int), &raw mut comm));
    let members: Vec<_> = (0..member.size).rev().filter(|rank| rank % colors == color).collect();
    let rank = members.iter().position(|other| *other == member.rank).expect("it is one of them");
    let (mut found_rank, mut found_size) = (-1, -1);
    mpi!(call_comm_rank(comm, &raw mut found_rank));
    mpi!(call_comm_size(comm, &raw mut found_size));
    assert_eq!((found_rank as usize, found_size as usize), (rank, members.len()));
    Member { comm, rank, size: members.len(), common: Random::new(seed), output: Vec::new() }
}
