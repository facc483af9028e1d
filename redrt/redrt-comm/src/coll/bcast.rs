//! Broadcast: a binomial tree while the message is short, else scatter over the tree and a ring to collect the pieces.

use super::board::Call;
use super::{Outcome, Peers, all, board};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::Region;

/// From this length on, each member's share of the work matters more than the number of steps.
const RING_BYTES_MIN: usize = 512 << 10;

/// Brings `buffer` of `root` to all members.
pub async fn bcast(peers: Peers, buffer: Region, root: usize) -> Outcome {
    if let Some(table) = peers.table.as_deref() {
        return Call::new(table, || peers.clone(), board::Bcast { buffer, root }).run().await;
    }
    if peers.size() > 4 && buffer.len() >= RING_BYTES_MIN {
        scatter_and_collect(&peers, buffer, root).await
    } else {
        tree(&peers, buffer, root).await
    }
}

/// Parent of a member of the binomial tree, `None` for the root, and the distance to it; members are numbered from the
/// root.
fn parent(number: usize, size: usize) -> (Option<usize>, usize) {
    let mut mask = 1;
    while mask < size {
        if number & mask != 0 {
            return (Some(number - mask), mask);
        }
        mask *= 2;
    }
    (None, mask)
}

async fn tree(peers: &Peers, buffer: Region, root: usize) -> Outcome {
    let size = peers.size();
    let number = (peers.rank + size - root) % size;
    let rank_of = |number: usize| (number + root) % size;
    let (parent, mut mask) = parent(number, size);
    let mut steps = Vec::new();
    if let Some(parent) = parent {
        let receive = peers.start_receive(rank_of(parent), buffer);
        if mutation::is_planted(Mutation::BroadcastEarly) {
            steps.push(receive);
        } else {
            receive.await?;
        }
    }
    while mask > 1 {
        mask /= 2;
        if number + mask < size {
            steps.push(peers.start_send(rank_of(number + mask), buffer));
        }
    }
    all(steps).await
}

async fn scatter_and_collect(peers: &Peers, buffer: Region, root: usize) -> Outcome {
    let size = peers.size();
    let number = (peers.rank + size - root) % size;
    let rank_of = |number: usize| (number + root) % size;
    let share = buffer.len().div_ceil(size);
    let piece = |first: usize, count: usize| {
        let start = (first * share).min(buffer.len());
        let end = ((first + count) * share).min(buffer.len());
        buffer.part(start, end - start)
    };
    let (parent, mut mask) = parent(number, size);
    if let Some(parent) = parent {
        peers.receive(rank_of(parent), piece(number, mask.min(size - number))).await?;
    }
    let mut steps = Vec::new();
    while mask > 1 {
        mask /= 2;
        if number + mask < size {
            let count = mask.min(size - number - mask);
            steps.push(peers.start_send(rank_of(number + mask), piece(number + mask, count)));
        }
    }
    all(steps).await?;
    let (right, left) = (rank_of(number + 1), rank_of(number + size - 1));
    for step in 0..size - 1 {
        let out = (number + size - step) % size;
        let into = (number + 2 * size - step - 1) % size;
        peers.exchange(right, piece(out, 1), left, piece(into, 1)).await?;
    }
    Ok(())
}
