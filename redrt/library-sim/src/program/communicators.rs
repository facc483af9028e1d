//! Communicators that are made, used and freed.

use super::mpi::{self, mpi};
use super::{Member, collectives, messages, same};
use redrt::exports::*;
use redrt_abi::handle::{CommHandle, GroupHandle, RequestHandle};
use simulation_kit::Random;
use std::ffi::c_int;

/// Makes communicators of all members or a part, uses them and frees them, in any order.
pub fn made_and_freed(member: &mut Member) {
    let mut made = Vec::new();
    for _ in 0..1 + member.common.below(6) {
        let (way, seed) = (member.common.below(5), member.common.number());
        let colors = 1 + seed as usize % 3;
        let part = match way {
            0 => Some(duplicate(member, seed)),
            1 | 2 => Some(split(member, colors, seed)),
            3 => grouped(member, colors, seed),
            _ => merged(member, seed),
        };
        let (use_of, is_early, is_same) = (member.common.below(3), member.common.chance(50), member.common.chance(50));
        if let Some(mut part) = part {
            if part.size == member.size {
                crossed(member, &part, seed);
            }
            match use_of {
                0 => collectives::blocking(&mut part),
                1 => messages::named(&mut part),
                _ => messages::from_any(&mut part),
            }
            member.output.append(&mut part.output);
            // Members of different parts of one split may free at different times.
            if is_early && (way == 0 || is_same || member.rank.is_multiple_of(colors)) {
                mpi!(call_comm_free(&raw mut part.comm));
            } else {
                made.push(part.comm);
            }
        }
        // The parent still works.
        collectives::blocking(member);
    }
    for comm in &mut made {
        mpi!(call_comm_free(comm));
    }
}

/// Sends over both communicators at once, with one tag, and receives in the opposite order. Both have the same members.
fn crossed(member: &Member, part: &Member, seed: u64) {
    let sent = |of: &Member, operation: u64| Member::words(operation, of.rank, 3);
    let next = |of: &Member| (of.rank + 1) % of.size;
    let (first, second) = (sent(member, seed), sent(part, !seed));
    let mut sends = [mpi::isend(member.comm, &first, next(member), 1), mpi::isend(part.comm, &second, next(part), 1)];
    for (of, operation) in [(part, !seed), (member, seed)] {
        let source = (of.rank + of.size - 1) % of.size;
        let mut words = vec![0; 3];
        mpi::receive(of.comm, &mut words, source as c_int, 1);
        same(&words, &Member::words(operation, source, 3), "a message of another communicator");
    }
    mpi::wait_all(&mut sends);
}

/// Duplicates the communicator: blocking, or as one of a few nonblocking calls.
fn duplicate(member: &Member, seed: u64) -> Member {
    let mut comm = CommHandle::NULL;
    if seed.is_multiple_of(2) {
        mpi!(call_comm_dup(member.comm, &raw mut comm));
    } else {
        let count = 1 + seed as usize / 2 % 3;
        let (mut comms, mut requests) = (vec![comm; count], vec![RequestHandle::NULL; count]);
        for (comm, request) in comms.iter_mut().zip(&mut requests) {
            mpi!(call_comm_idup(member.comm, comm, request));
        }
        mpi::wait_all(&mut requests);
        comm = comms.swap_remove(seed as usize / 6 % count);
        for other in &mut comms {
            mpi!(call_comm_free(other));
        }
    }
    Member { comm, rank: member.rank, size: member.size, common: Random::new(seed), output: Vec::new() }
}

/// Splits the communicator by color, with ranks in the opposite order.
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

/// Makes a communicator of the ranks that are multiples of `step`; other ranks do not call.
fn grouped(member: &Member, step: usize, seed: u64) -> Option<Member> {
    let members: Vec<_> = (0..member.size).step_by(step).map(|rank| rank as c_int).collect();
    let rank = members.iter().position(|rank| *rank == member.rank as c_int)?;
    let (mut all, mut group, mut comm) = (GroupHandle::NULL, GroupHandle::NULL, CommHandle::NULL);
    mpi!(call_comm_group(member.comm, &raw mut all));
    mpi!(call_group_incl(all, members.len() as c_int, members.as_ptr(), &raw mut group));
    mpi!(call_comm_create_group(member.comm, group, (seed % 2) as c_int, &raw mut comm));
    mpi!(call_group_free(&raw mut group));
    mpi!(call_group_free(&raw mut all));
    Some(Member { comm, rank, size: members.len(), common: Random::new(seed), output: Vec::new() })
}

/// Connects two groups, the even and the odd ranks, a few times, and merges them.
fn merged(member: &Member, seed: u64) -> Option<Member> {
    if member.size < 2 {
        return None;
    }
    let side = member.rank % 2;
    let [mine, theirs] =
        [side, 1 - side].map(|side| -> Vec<usize> { (0..member.size).rev().filter(|rank| rank % 2 == side).collect() });
    let mut own = split(member, 2, seed);
    let mut comm = CommHandle::NULL;
    let meetings = 1 + seed / 7 % 4;
    for meeting in 0..meetings {
        let mut inter = CommHandle::NULL;
        mpi!(call_intercomm_create(own.comm, 0, member.comm, theirs[0] as c_int, 5, &raw mut inter));
        // One side may have one member more.
        if let Some(partner) = theirs.get(own.rank) {
            let out = Member::words(seed ^ meeting, member.rank, 3);
            let mut send = [mpi::isend(inter, &out, own.rank, 1)];
            let mut words = vec![0; 3];
            mpi::receive(inter, &mut words, own.rank as c_int, 1);
            same(&words, &Member::words(seed ^ meeting, *partner, 3), "a message between two groups");
            mpi::wait_all(&mut send);
        }
        if meeting + 1 == meetings {
            mpi!(call_intercomm_merge(inter, side as c_int, &raw mut comm));
        }
        mpi!(call_comm_free(&raw mut inter));
    }
    mpi!(call_comm_free(&raw mut own.comm));
    let before = if side == 0 { 0 } else { theirs.len() };
    let rank = before + mine.iter().position(|rank| *rank == member.rank).expect("it is on its side");
    Some(Member { comm, rank, size: member.size, common: Random::new(seed), output: Vec::new() })
}
