//! Gather, scatter and allgather, with equal or given lengths.

use super::{Outcome, Peers, all, board};
use crate::memory::{Region, Scratch};

/// Below this many bytes in all, allgather takes few steps (Bruck); above it moves each byte along a ring.
const RING_BYTES_MIN: usize = 64 << 10;

/// Brings `mine` of every member to its piece of `pieces` at `root`; `pieces` is read there only. `None` for `mine` at the
/// root: its piece is in place already.
pub async fn gather(peers: Peers, mine: Option<Region>, pieces: Vec<Region>, root: usize) -> Outcome {
    if peers.rank != root {
        return peers.send(root, mine.unwrap_or(Region::empty())).await;
    }
    let others = (0..peers.size()).filter(|rank| *rank != root);
    let steps: Vec<_> = others.map(|rank| peers.start_receive(rank, pieces[rank])).collect();
    if let Some(mine) = mine {
        copy(mine, pieces[root])?;
    }
    all(steps).await
}

/// Brings each piece of `pieces` at `root` to `mine` of its member. `None` for `mine` at the root: it keeps its piece.
pub async fn scatter(peers: Peers, pieces: Vec<Region>, mine: Option<Region>, root: usize) -> Outcome {
    if peers.rank != root {
        return peers.receive(root, mine.unwrap_or(Region::empty())).await;
    }
    let others = (0..peers.size()).filter(|rank| *rank != root);
    let steps: Vec<_> = others.map(|rank| peers.start_send(rank, pieces[rank])).collect();
    if let Some(mine) = mine {
        copy(pieces[root], mine)?;
    }
    all(steps).await
}

pub(super) fn copy(from: Region, into: Region) -> Outcome {
    if from.len() > into.len() {
        return Err(super::Failure::Mismatched);
    }
    into.copy_from(from);
    Ok(())
}

/// Brings the piece of every member to all; each member's own is in place.
pub async fn allgather(peers: Peers, pieces: Vec<Region>) -> Outcome {
    if let Some(table) = peers.table.as_deref() {
        return board::allgather(table, &peers, &pieces).await;
    }
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let equal = pieces.iter().all(|piece| piece.len() == pieces[0].len());
    if equal && total < RING_BYTES_MIN && peers.size() > 2 {
        bruck(&peers, &pieces).await
    } else {
        ring(&peers, &pieces).await
    }
}

async fn ring(peers: &Peers, pieces: &[Region]) -> Outcome {
    let size = peers.size();
    let (right, left) = ((peers.rank + 1) % size, (peers.rank + size - 1) % size);
    for step in 0..size - 1 {
        let out = (peers.rank + size - step) % size;
        let into = (peers.rank + 2 * size - step - 1) % size;
        peers.exchange(right, pieces[out], left, pieces[into]).await?;
    }
    Ok(())
}

async fn bruck(peers: &Peers, pieces: &[Region]) -> Outcome {
    let (size, length) = (peers.size(), pieces[0].len());
    let mut scratch = Scratch::spare(size * length);
    let all = scratch.region();
    all.copy_from(pieces[peers.rank]);
    let mut have = 1;
    while have < size {
        let count = have.min(size - have);
        let to = (peers.rank + size - have) % size;
        let from = (peers.rank + have) % size;
        let into = all.part(have * length, count * length);
        peers.exchange(to, all.part(0, count * length), from, into).await?;
        have += count;
    }
    for number in 1..size {
        pieces[(peers.rank + number) % size].copy_from(all.part(number * length, length));
    }
    Ok(())
}
