//! Collectives between two groups (MPI-5.0 §6.2.3). `peers` is the own group, `across` the other one. Member 0 of each
//! exchanges messages for its group where one suffices.

use super::reduce::{Combine, reduce, stretches};
use super::{Outcome, Peers, all, barrier::barrier as local_barrier, bcast::bcast as local_bcast, gather::scatter};
use redrt_transport::memory::{Region, Scratch};

/// Role of a member in a collective with a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The root; its group takes no part otherwise.
    Root,
    /// In the root's group (`MPI_PROC_NULL`): nothing to do.
    Idle,
    /// In the other group; the root has this rank.
    Member(usize),
}

/// Returns once all members of both groups have called it.
pub async fn barrier(peers: Peers, across: &Peers) -> Outcome {
    local_barrier(peers.clone()).await?;
    if peers.rank == 0 {
        across.exchange(0, Region::empty(), 0, Region::empty()).await?;
    }
    local_barrier(peers).await
}

/// Brings `buffer` of the root to all members of the other group.
pub async fn bcast(peers: Peers, across: &Peers, buffer: Region, role: Role) -> Outcome {
    match role {
        Role::Root => across.send(0, buffer).await,
        Role::Idle => Ok(()),
        Role::Member(root) => {
            if peers.rank == 0 {
                across.receive(root, buffer).await?;
            }
            local_bcast(peers, buffer, 0).await
        }
    }
}

/// Brings `mine` of every member of the other group to its piece at the root.
pub async fn gather(across: &Peers, mine: Region, pieces: Vec<Region>, role: Role) -> Outcome {
    match role {
        Role::Root => {
            all((0..pieces.len()).map(|from| across.start_receive(from, pieces[from])).collect::<Vec<_>>()).await
        }
        Role::Idle => Ok(()),
        Role::Member(root) => across.send(root, mine).await,
    }
}

/// Brings each piece at the root to its member of the other group.
pub async fn spread(across: &Peers, pieces: Vec<Region>, mine: Region, role: Role) -> Outcome {
    match role {
        Role::Root => all((0..pieces.len()).map(|to| across.start_send(to, pieces[to])).collect::<Vec<_>>()).await,
        Role::Idle => Ok(()),
        Role::Member(root) => across.receive(root, mine).await,
    }
}

/// Sends `out[k]`, or the only piece, to each member k of the other group, and receives its piece into `into[k]`.
pub async fn alltoall(across: &Peers, out: Vec<Region>, into: Vec<Region>) -> Outcome {
    let mut steps: Vec<_> = (0..into.len()).map(|from| across.start_receive(from, into[from])).collect();
    steps.extend((0..across.size()).map(|to| across.start_send(to, *out.get(to).unwrap_or(&out[0]))));
    all(steps).await
}

/// Combines `operand` of all members of the other group into `result` of the root. Other members have no result.
pub async fn reduce_to(
    peers: Peers,
    across: &Peers,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
    role: Role,
) -> Outcome {
    match role {
        Role::Root => across.receive(0, result).await,
        Role::Idle => Ok(()),
        Role::Member(root) => {
            let rank = peers.rank;
            let mut scratch = Scratch::spare(if rank == 0 { operand.len() } else { 0 });
            let all = scratch.region();
            reduce(peers, operand, all, combine, 0).await?;
            if rank == 0 { across.send(root, all).await } else { Ok(()) }
        }
    }
}

/// Combines `operand` of each group, and leaves the other group's combination in member 0's `result`.
async fn swap(peers: &Peers, across: &Peers, operand: Region, result: Region, combine: &dyn Combine) -> Outcome {
    let mut scratch = Scratch::spare(if peers.rank == 0 { operand.len() } else { 0 });
    let all = scratch.region();
    reduce(peers.clone(), operand, all, combine, 0).await?;
    if peers.rank == 0 {
        across.exchange(0, all, 0, result).await?;
    }
    Ok(())
}

/// Combines `operand` of each group into `result` of all members of the other group.
pub async fn allreduce(
    peers: Peers,
    across: &Peers,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
) -> Outcome {
    swap(&peers, across, operand, result, combine).await?;
    local_bcast(peers, result, 0).await
}

/// Combines `operand` of each group, and gives each member of the other group its stretch of the combination, as
/// [`super::reduce::reduce_scatter`] does.
pub async fn reduce_scatter(
    peers: Peers,
    across: &Peers,
    operand: Region,
    bounds: Vec<usize>,
    mine: Region,
    combine: &dyn Combine,
) -> Outcome {
    let mut scratch = Scratch::spare(operand.len());
    let result = scratch.region();
    swap(&peers, across, operand, result, combine).await?;
    scatter(peers, stretches(result, &bounds), Some(mine), 0).await
}
