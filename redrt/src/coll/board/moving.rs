//! Barrier, broadcast, allgather and alltoall.

use super::Table;
use crate::coll::{Outcome, Peers, all};
use crate::memory::Region;

/// Returns once all members have called it.
pub fn barrier(table: &Table) {
    let number = table.come();
    table.wait_for_all(number);
}

/// Brings `buffer` of `root` to all members.
pub async fn bcast(table: &Table, peers: &Peers, buffer: Region, root: usize) -> Outcome {
    let is_root = peers.rank == root;
    let number = if is_root { table.come_with(buffer) } else { table.come() };
    if !is_root {
        table.wait_for(root, number);
    }
    let posted = table.board.posted(root, number);
    let others = || (0..peers.size()).filter(|rank| *rank != root);
    let mut outcome = Ok(());
    if posted.is_message() {
        return match is_root {
            true => all(others().map(|rank| peers.start_send(rank, buffer)).collect::<Vec<_>>()).await,
            false => peers.receive(root, buffer).await,
        };
    }
    if !is_root {
        outcome = table.take(&posted, buffer);
    }
    if posted.is_elsewhere() {
        let read = table.come();
        if is_root {
            table.wait_for_all(read);
        }
    }
    outcome
}

/// Brings the piece of every member to all; each member's own is in place.
pub async fn allgather(table: &Table, peers: &Peers, pieces: &[Region]) -> Outcome {
    let number = table.come_with(pieces[peers.rank]);
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
        steps.extend(following(peers).map(|to| peers.start_send(to, pieces[peers.rank])));
    }
    outcome = outcome.and(all(steps).await);
    if is_elsewhere {
        let read = table.come();
        table.wait_for_all(read);
    }
    outcome
}

/// Sends `out[k]` to member k and receives its piece into `into[k]`; its own is in place.
pub async fn alltoall(table: &Table, peers: &Peers, out: &[Region], into: &[Region]) -> Outcome {
    let number = table.begin();
    table.board.write_each(number, out);
    table.post(number);
    let mut steps = Vec::new();
    let mut outcome = Ok(());
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

/// The others, the next one first, so that not all read from the same.
fn following(peers: &Peers) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (peers.rank, peers.size());
    (1..size).map(move |step| (rank + step) % size)
}
