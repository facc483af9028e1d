//! Barrier, broadcast, allgather and alltoall.

use super::{SharedBoard, following};
use crate::coll::gather::{Mine, copy};
use crate::coll::{Failure, Outcome, Peers, all};
use redrt_engine::doorbell;
use redrt_transport::board::{Board, Posted};
use redrt_transport::memory::Region;
use std::io;

/// Returns once all members have called it.
pub fn barrier(table: &SharedBoard) {
    let number = table.come();
    table.wait_for_all(number);
}

/// Brings `buffer` of `root` to all members. A long one is copied in parts, by any member that has time: each begins
/// with its own, and who has them all brings some to those that do not.
pub async fn bcast(table: &SharedBoard, peers: &Peers, buffer: Region, root: usize) -> Outcome {
    let is_root = peers.rank == root;
    let number = table.begin_to_write(is_root && table.board.needs_annex(buffer));
    if is_root {
        table.board.write(number, buffer);
    } else {
        table.board.write_place(number, buffer);
    }
    table.post(number);
    if !is_root {
        table.wait_for(root, number);
    }
    let posted = table.board.posted(root, number);
    if posted.is_message() {
        let others = (0..peers.size()).filter(|rank| *rank != root);
        return match is_root {
            true => all(others.map(|rank| peers.start_send(rank, buffer)).collect::<Vec<_>>()).await,
            false => peers.receive(root, buffer).await,
        };
    }
    if !posted.is_elsewhere() {
        return if is_root { Ok(()) } else { table.take(&posted, buffer) };
    }
    let outcome = if is_root { Ok(()) } else { fetch(table, &posted, number, buffer) };
    if outcome.is_ok() {
        for member in following(peers).filter(|member| *member != root) {
            if is_root {
                table.wait_for(member, number);
            }
            if table.board.wants(member, number, buffer.len()) {
                table.help(member, number, buffer, |offset, part| table.board.bring(member, number, offset, part));
            }
        }
    }
    let read = table.come();
    if is_root {
        table.wait_for_all(read);
    }
    outcome
}

/// Has all of a long piece in `into` at the end, with the help of others.
fn fetch(table: &SharedBoard, posted: &Posted, number: u64, into: Region) -> Outcome {
    if posted.length() != into.len() as u64 {
        return Err(Failure::Mismatched);
    }
    let me = table.board.rank();
    table.help(me, number, into, |offset, part| table.board.read(posted, offset, part));
    table.wait(Board::parts(number, parts_of(into)));
    // What others could not bring, say because they may not write, this member may still read.
    if table.board.has_failed(number) { table.read(posted, 0, into) } else { Ok(()) }
}

/// Bytes of one part of a transfer.
const PART_BYTES: usize = 128 << 10;

fn parts_of(piece: Region) -> u64 {
    piece.len().div_ceil(PART_BYTES) as u64
}

impl SharedBoard {
    /// Does parts of what a member wants, of which `piece` is the whole.
    fn help(&self, member: usize, number: u64, piece: Region, copy: impl Fn(usize, Region) -> io::Result<()>) {
        let part = |part: u64| {
            let offset = part as usize * PART_BYTES;
            copy(offset, piece.part(offset, PART_BYTES.min(piece.len() - offset)))
        };
        self.board.help(member, number, parts_of(piece), doorbell::poke, part);
    }
}

/// Brings `mine` of every member to its piece at all. `None` where it is in place already.
pub async fn allgather(table: &SharedBoard, peers: &Peers, mine: Option<Region>, pieces: &[Region]) -> Outcome {
    let mine = Mine::new(mine, pieces[peers.rank])?;
    let number = table.come_with(mine.bytes);
    mine.settle();
    let mut outcome = Ok(());
    let mut is_elsewhere = table.board.posted(peers.rank, number).is_elsewhere();
    let mut by_message = Vec::new();
    for from in following(peers) {
        table.wait_for(from, number);
        let posted = table.board.posted(from, number);
        is_elsewhere |= posted.is_elsewhere();
        if posted.is_message() {
            by_message.push(from);
        } else {
            outcome = outcome.and(table.take(&posted, pieces[from]));
        }
    }
    let mut steps: Vec<_> = by_message.into_iter().map(|from| peers.start_receive(from, pieces[from])).collect();
    if table.board.posted(peers.rank, number).is_message() {
        steps.extend(following(peers).map(|to| peers.start_send(to, mine.bytes)));
    }
    outcome = outcome.and(all(steps).await);
    if is_elsewhere {
        let read = table.come();
        table.wait_for_all(read);
    }
    outcome
}

/// Sends `out[k]` to member k and receives its piece into `into[k]`.
pub async fn alltoall(table: &SharedBoard, peers: &Peers, out: &[Region], into: &[Region]) -> Outcome {
    let number = table.begin_to_write(table.board.need_annex(out));
    table.board.write_each(number, out);
    table.post(number);
    let mut steps = Vec::new();
    let mut outcome = copy(out[peers.rank], into[peers.rank]);
    for from in following(peers) {
        table.wait_for(from, number);
        let posted = table.board.posted_for(from, number, peers.rank);
        if posted.is_message() {
            steps.push(peers.start_receive(from, into[from]));
        } else {
            outcome = outcome.and(table.take(&posted, into[from]));
        }
    }
    let mine = |to: usize| table.board.posted_for(peers.rank, number, to);
    steps.extend(following(peers).filter(|to| mine(*to).is_message()).map(|to| peers.start_send(to, out[to])));
    outcome = outcome.and(all(steps).await);
    // Nobody knows of pieces for others how they were posted.
    let is_elsewhere = following(peers).any(|to| mine(to).is_elsewhere());
    let read = table.come();
    if is_elsewhere {
        table.wait_for_all(read);
    }
    outcome
}
