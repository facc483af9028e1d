//! Messages between two processes.

use super::mpi::{self, mpi};
use super::{Member, same};
use redrt::exports::*;
use redrt_abi::handle::{MessageHandle, RequestHandle};
use redrt_abi::{MPI_ANY_SOURCE, MPI_ANY_TAG, Status};
use std::ffi::c_int;

/// Messages to and from neighbours at changing distances, of any length, in order, by all ways of sending.
pub fn named(member: &mut Member) {
    let Member { comm, rank, size, .. } = *member;
    for _ in 0..1 + member.common.below(6) {
        let (operation, distance, way) =
            (member.common.number(), 1 + member.common.below(size), member.common.below(5));
        let lengths: Vec<_> = (0..1 + member.common.below(4)).map(|_| member.length()).collect();
        let (to, source) = ((rank + distance) % size, (rank + size - distance % size) % size);
        let outgoing: Vec<_> = lengths.iter().map(|length| Member::words(operation, rank, *length)).collect();
        let mut incoming: Vec<_> = lengths.iter().map(|length| vec![0; *length]).collect();
        match way {
            // A blocking send to itself may wait for its own receive.
            0 | 1 if to != rank => {
                // Receives come first, else all might wait in their sends.
                let mut receives: Vec<_> = incoming
                    .iter_mut()
                    .enumerate()
                    .map(|(tag, words)| mpi::ireceive(comm, words, source as c_int, tag as c_int))
                    .collect();
                for (tag, words) in outgoing.iter().enumerate() {
                    if way == 0 {
                        mpi::send(comm, words, to, tag as c_int);
                    } else {
                        mpi::ssend(comm, words, to, tag as c_int);
                    }
                }
                mpi::wait_all(&mut receives);
            }
            2 => {
                for (out, place) in outgoing.iter().zip(&mut incoming) {
                    let mut status = Status::empty();
                    let (to, source) = (to as c_int, source as c_int);
                    mpi!(call_sendrecv(
                        mpi::from(out),
                        mpi::count(out),
                        mpi::WORD,
                        to,
                        3,
                        mpi::into(place),
                        mpi::count(place),
                        mpi::WORD,
                        source,
                        MPI_ANY_TAG,
                        comm,
                        &raw mut status
                    ));
                    assert_eq!((status.source, status.tag), (source, 3));
                }
            }
            _ => {
                // Messages with one tag come in order.
                let sends = outgoing.iter().map(|words| mpi::isend(comm, words, to, 7)).collect::<Vec<_>>();
                let receives = incoming.iter_mut().map(|words| mpi::ireceive(comm, words, source as c_int, 7));
                let mut requests: Vec<_> = receives.collect();
                requests.extend(sends);
                mpi::wait_all(&mut requests);
            }
        }
        for (words, length) in incoming.iter().zip(&lengths) {
            same(words, &Member::words(operation, source, *length), "a message");
        }
    }
}

/// All ranks send to one, which receives from any source.
pub fn from_any(member: &mut Member) {
    let Member { comm, rank, size, .. } = *member;
    for _ in 0..1 + member.common.below(4) {
        let (operation, root, each, length) =
            (member.common.number(), member.common.below(size), 1 + member.common.below(4), member.length());
        let way = member.common.below(3);
        let own = Member::words(operation, rank, length);
        let mut sends: Vec<_> = (0..each).map(|number| mpi::isend(comm, &own, root, number as c_int)).collect();
        if rank == root {
            let mut seen = vec![0; size];
            let note = |status: Status, words: &[u64], seen: &mut Vec<usize>, output: &mut Vec<u64>| {
                let source = status.source as usize;
                same(words, &Member::words(operation, source, length), "a message from any source");
                // Messages of one source in order.
                assert_eq!(status.tag as usize, seen[source]);
                seen[source] += 1;
                output.push(status.source as u64);
            };
            if way == 0 {
                for _ in 0..each * size {
                    let mut words = vec![0; length];
                    let status = mpi::receive(comm, &mut words, MPI_ANY_SOURCE, MPI_ANY_TAG);
                    note(status, &words, &mut seen, &mut member.output);
                }
            } else {
                let mut places = vec![vec![0; length]; each * size];
                let mut receives: Vec<_> =
                    places.iter_mut().map(|words| mpi::ireceive(comm, words, MPI_ANY_SOURCE, MPI_ANY_TAG)).collect();
                let mut statuses = vec![None; receives.len()];
                if way == 1 {
                    for _ in 0..receives.len() {
                        let (index, status) = mpi::wait_any(&mut receives);
                        member.output.push(index as u64);
                        statuses[index] = Some(status);
                    }
                } else {
                    while statuses.iter().any(Option::is_none) {
                        wait_some(&mut receives, &mut statuses, &mut member.output);
                    }
                }
                for (status, words) in statuses.iter().zip(&places) {
                    note(status.expect("all are complete"), words, &mut seen, &mut member.output);
                }
            }
            assert!(seen.iter().all(|count| *count == each));
        }
        mpi::wait_all(&mut sends);
        // No later message may match these receives.
        mpi!(call_barrier(comm));
    }
}

fn wait_some(receives: &mut [RequestHandle], statuses: &mut [Option<Status>], output: &mut Vec<u64>) {
    let some = mpi::wait_some(receives);
    output.push(some.len() as u64);
    for (index, status) in some {
        assert!(statuses[index].replace(status).is_none(), "a request is complete once");
    }
}

/// Messages that are received after tests and probes.
pub fn polled(member: &mut Member) {
    let Member { comm, rank, size, .. } = *member;
    for _ in 0..1 + member.common.below(4) {
        let (operation, way, length) = (member.common.number(), member.common.below(5), member.length());
        let (to, source) = ((rank + 1) % size, (rank + size - 1) % size);
        let own = Member::words(operation, rank, length);
        let mut sent = mpi::isend(comm, &own, to, 5);
        let mut words = vec![0; length];
        let mut looks = 0;
        match way {
            0 => {
                let mut receive = mpi::ireceive(comm, &mut words, source as c_int, 5);
                while mpi::test(&mut receive).is_none() {
                    looks += 1;
                }
            }
            1 => {
                let mut status = Status::empty();
                let mut flag = 0;
                while flag == 0 {
                    mpi!(call_iprobe(MPI_ANY_SOURCE, 5, comm, &raw mut flag, &raw mut status));
                    looks += 1;
                }
                assert_eq!((status.source as usize, status.byte_count()), (source, 8 * length as u64));
                mpi::receive(comm, &mut words, status.source, 5);
            }
            2 => {
                let (mut status, mut message, mut flag) = (Status::empty(), MessageHandle::NULL, 0);
                while flag == 0 {
                    mpi!(call_improbe(
                        MPI_ANY_SOURCE,
                        MPI_ANY_TAG,
                        comm,
                        &raw mut flag,
                        &raw mut message,
                        &raw mut status
                    ));
                    looks += 1;
                }
                let (place, count) = (mpi::into(&mut words), length as c_int);
                mpi!(call_mrecv(place, count, mpi::WORD, &raw mut message, &raw mut status));
            }
            3 => {
                // The message may come before the cancellation or after it: replicas agree on that.
                let patience = member.common.below(3);
                let mut receive = mpi::ireceive(comm, &mut words, source as c_int, 5);
                let is_there = (0..patience).any(|_| mpi::test(&mut receive).is_some());
                if !is_there {
                    mpi!(call_cancel(&raw mut receive));
                    let is_cancelled = mpi::wait(&mut receive).is_cancelled();
                    looks = u64::from(is_cancelled);
                    if is_cancelled {
                        mpi::receive(comm, &mut words, source as c_int, 5);
                    }
                }
            }
            _ => {
                // Two receives: one gets a message, the other does not and is cancelled.
                let mut never = vec![0; 1];
                let mut receive = mpi::ireceive(comm, &mut words, source as c_int, 5);
                let mut in_vain = mpi::ireceive(comm, &mut never, source as c_int, 6);
                mpi::wait(&mut receive);
                mpi!(call_cancel(&raw mut in_vain));
                assert!(mpi::wait(&mut in_vain).is_cancelled(), "nobody has sent this");
            }
        }
        // Replicas agree on the number of looks.
        member.output.push(looks);
        same(&words, &Member::words(operation, source, length), "a message that was looked for");
        mpi::wait(&mut sent);
        mpi!(call_barrier(comm));
    }
}
