//! All-to-all: all messages at once while pieces are short, else in pairs.

use super::board::Call;
use super::{Outcome, Peers, all, board};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::{Region, Scratch};

/// From this piece length on, members exchange in pairs, so that one receiver is not swamped.
const PAIRWISE_BYTES_MIN: usize = 32 << 10;

/// Sends `out[k]` to member k and receives its piece into `into[k]`.
pub async fn alltoall(peers: Peers, out: Vec<Region>, into: Vec<Region>) -> Outcome {
    let (size, rank) = (peers.size(), peers.rank);
    if let Some(table) = peers.table.as_deref() {
        let arguments = board::Alltoall { out: out.as_slice(), into: into.as_slice() };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
    super::gather::copy(out[rank], into[rank])?;
    let longest = out.iter().chain(&into).map(|piece| piece.len()).max().unwrap_or(0);
    if longest >= PAIRWISE_BYTES_MIN {
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            peers.exchange(to, out[to], from, into[from]).await?;
        }
        return Ok(());
    }
    let mut steps: Vec<_> =
        (1..size).map(|step| (rank + size - step) % size).map(|from| peers.start_receive(from, into[from])).collect();
    steps.extend((1..size).map(|step| (rank + step) % size).map(|to| peers.start_send(to, out[to])));
    if mutation::is_planted(Mutation::AlltoallUnawaited) {
        steps.truncate(size - 1);
    }
    all(steps).await
}

/// All-to-all with one set of pieces, each replaced by the one that its member sent (`MPI_IN_PLACE`).
pub async fn alltoall_in_place(peers: Peers, pieces: Vec<Region>) -> Outcome {
    let (size, rank) = (peers.size(), peers.rank);
    for step in 0..size {
        // Pair up: members r and p with r + p = step (mod size).
        let partner = (step + size - rank) % size;
        if partner == rank {
            continue;
        }
        let piece = pieces[partner];
        let mut copy = Scratch::spare(piece.len());
        copy.region().copy_from(piece);
        peers.exchange(partner, copy.region(), partner, piece).await?;
    }
    Ok(())
}
