//! Gather, scatter and allgather, with equal or given lengths.

use super::board::Call;
use super::{Outcome, Peers, all, board};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::{Region, Scratch};

/// Total length below which allgather takes few steps (Bruck); from it on each byte moves along a ring.
const RING_BYTES_MIN: usize = 64 << 10;

/// Brings `mine` of every member to its piece of `pieces` at `root`; `pieces` is used only there. `mine` may be `None`
/// at the root: its piece is in place already.
pub async fn gather(peers: Peers, mine: Option<Region>, pieces: Vec<Region>, root: usize) -> Outcome {
    if let Some(table) = peers.table.as_deref() {
        let arguments = board::Gather { mine, pieces: pieces.as_slice(), root };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
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

/// Brings each piece of `pieces` at `root` to `mine` of its member. `mine` may be `None` at the root: it keeps its
/// piece.
pub async fn scatter(peers: Peers, pieces: Vec<Region>, mine: Option<Region>, root: usize) -> Outcome {
    if let Some(table) = peers.table.as_deref() {
        let arguments = board::Scatter { pieces: pieces.as_slice(), mine, root };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
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

/// Brings `mine` of every member to its piece at all members. `mine` is `None` if it is in place already.
pub async fn allgather(peers: Peers, mine: Option<Region>, pieces: Vec<Region>) -> Outcome {
    if let Some(table) = peers.table.as_deref() {
        let arguments = board::Allgather { mine, pieces: pieces.as_slice() };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let equal = pieces.iter().all(|piece| piece.len() == pieces[0].len());
    let mine = Mine::new(mine, pieces[peers.rank])?;
    if equal && total < RING_BYTES_MIN && peers.size() > 2 {
        bruck(&peers, mine, &pieces).await
    } else {
        ring(&peers, mine, &pieces).await
    }
}

/// Contribution of a member. Other members get it from the program's buffer, and meanwhile it is copied to its place.
pub(super) struct Mine {
    pub bytes: Region,
    place: Region,
}

impl Mine {
    pub fn new(mine: Option<Region>, place: Region) -> Outcome<Self> {
        match mine {
            Some(bytes) if bytes.len() == place.len() => Ok(Self { bytes, place }),
            Some(shorter) => {
                copy(shorter, place)?;
                Ok(Self { bytes: place, place })
            }
            None => Ok(Self { bytes: place, place }),
        }
    }

    pub fn settle(&self) {
        if self.bytes.start() != self.place.start() {
            self.place.copy_from(self.bytes);
        }
    }
}

async fn ring(peers: &Peers, mine: Mine, pieces: &[Region]) -> Outcome {
    let size = peers.size();
    let (right, left) = ((peers.rank + 1) % size, (peers.rank + size - 1) % size);
    if size == 1 {
        mine.settle();
        return Ok(());
    }
    let first = [peers.start_send(right, mine.bytes), peers.start_receive(left, pieces[left])];
    mine.settle();
    all(first).await?;
    for step in 1..size - 1 {
        let out = (peers.rank + size - step) % size;
        let into = (peers.rank + 2 * size - step - 1) % size;
        peers.exchange(right, pieces[out], left, pieces[into]).await?;
    }
    Ok(())
}

async fn bruck(peers: &Peers, mine: Mine, pieces: &[Region]) -> Outcome {
    let (size, length) = (peers.size(), pieces[0].len());
    let mut scratch = Scratch::spare(size * length);
    let all = scratch.region();
    all.copy_from(mine.bytes);
    mine.settle();
    let mut have = 1;
    while have < size {
        let count = have.min(size - have);
        let to = (peers.rank + size - have) % size;
        let from = (peers.rank + have) % size;
        let into = all.part(have * length, count * length);
        peers.exchange(to, all.part(0, count * length), from, into).await?;
        have += count;
    }
    let first = usize::from(!mutation::is_planted(Mutation::GatherMisplaced));
    for number in 1..size {
        let place = (peers.rank + number - 1 + first) % size;
        pieces[place].copy_from(all.part(number * length, length));
    }
    Ok(())
}
