//! Intercommunicators (MPI-5.0 §7.6): two groups that communicate with each other.

use super::comm::members_of;
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, ErrhandlerHandle, GroupHandle, InfoHandle};
use redrt_abi::{Input, MPI_ERR_ARG, MPI_ERR_COMM, MPI_ERR_GROUP, MPI_UNDEFINED, Output};
use redrt_comm::coll::{Outcome, Peers, bcast, gather, inter as two_groups};
use redrt_comm::comm::{self, Comm, handle_of};
use redrt_comm::objects::{group, info, session};
use redrt_dynamic as dynamic;
use redrt_engine::contact;
use redrt_engine::tasks::block_on;
use redrt_runtime as runtime;
use redrt_transport::memory::Scratch;
use redrt_types::VirtualRank;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// The remote group of an intercommunicator.
fn remote(comm: &Comm) -> Result<&Arc<[VirtualRank]>> {
    let intra = || Error::new(MPI_ERR_COMM, format!("{} is not an intercommunicator", comm.label()));
    comm.remote.as_ref().ok_or_else(intra)
}

/// `MPI_Comm_test_inter`.
pub fn comm_test_inter(comm: CommHandle, flag: Output<c_int>) -> Result {
    flag.set(c_int::from(comm::resolve(comm)?.remote.is_some()))
}

/// `MPI_Comm_remote_size`.
pub fn comm_remote_size(comm: CommHandle, size: Output<c_int>) -> Result {
    size.set(remote(&*comm::resolve(comm)?)?.len() as c_int)
}

/// `MPI_Comm_remote_group`.
pub fn comm_remote_group(comm: CommHandle, group: Output<GroupHandle>) -> Result {
    let members = remote(&*comm::resolve(comm)?)?.iter().map(|member| member.0).collect();
    group.set(group::register(Arc::new(group::Group::list(members))))
}

/// Exchanges numbers between the leaders of two groups. Returns the other leader's numbers.
async fn trade(across: &Peers, with: usize, mine: &[u64]) -> Outcome<Vec<u64>> {
    let mut lengths = Scratch::new(16);
    let (out, into) = (lengths.region().part(0, 8), lengths.region().part(8, 8));
    out.with_bytes_mut(|bytes| bytes.copy_from_slice(&(mine.len() as u64).to_ne_bytes()));
    across.exchange(with, out, with, into).await?;
    let length = into.with_bytes(|bytes| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))) as usize;
    let (mut out, mut into) = (Scratch::new(mine.len() * 8), Scratch::new(length * 8));
    out.region().with_bytes_mut(|bytes| put(bytes, mine));
    across.exchange(with, out.region(), with, into.region()).await?;
    Ok(into.region().with_bytes(numbers))
}

/// Broadcasts the numbers that the leader `root` has received to its group.
async fn broadcast(local: Peers, root: usize, heard: Option<Vec<u64>>) -> Outcome<Vec<u64>> {
    let mut length = Scratch::new(8);
    let count = heard.as_ref().map_or(0, Vec::len) as u64;
    length.region().with_bytes_mut(|bytes| bytes.copy_from_slice(&count.to_ne_bytes()));
    bcast::bcast(local.clone(), length.region(), root).await?;
    let count = length.region().with_bytes(|bytes| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))) as usize;
    let mut body = Scratch::new(count * 8);
    body.region().with_bytes_mut(|bytes| put(bytes, heard.as_deref().unwrap_or(&[])));
    bcast::bcast(local, body.region(), root).await?;
    Ok(body.region().with_bytes(numbers))
}

fn put(bytes: &mut [u8], numbers: &[u64]) {
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))).collect()
}

fn ranks(numbers: &[u64]) -> Vec<VirtualRank> {
    numbers.iter().map(|number| VirtualRank(*number as u32)).collect()
}

/// Exchanges numbers between the two groups of an intercommunicator; all members of a group pass the same.
fn agree(comm: &Comm, mine: &[u64]) -> Result<Vec<u64>> {
    let local = comm.peers();
    let across = local.across.clone().expect("an intercommunicator has two groups");
    Ok(block_on(async move {
        let heard = if local.rank == 0 { Some(trade(&across, 0, mine).await?) } else { None };
        broadcast(local, 0, heard).await
    })?)
}

/// `MPI_Intercomm_create`.
pub fn intercomm_create(
    local_comm: CommHandle,
    local_leader: c_int,
    peer_comm: CommHandle,
    remote_leader: c_int,
    tag: c_int,
    newintercomm: Output<CommHandle>,
) -> Result {
    let local = comm::resolve(local_comm)?;
    if local.remote.is_some() {
        fail!(MPI_ERR_COMM, "{} is an intercommunicator", local.label());
    }
    local.member(local_leader)?;
    let chosen = local.next_half()?;
    let is_leader = local.rank as c_int == local_leader;
    let leaders = if is_leader {
        let peer = comm::resolve(peer_comm)?;
        peer.member(remote_leader)?;
        let (context, members) = (comm::leaders_context(&peer, tag), peer.others().clone());
        Some(Peers { context, tag, rank: peer.rank as usize, members, across: None, table: None })
    } else {
        None
    };
    // Exchanges numbers between the leaders, and broadcasts them to the groups.
    let exchange = |mine: &[u64]| {
        block_on(async {
            let heard = match &leaders {
                Some(leaders) => Some(trade(leaders, remote_leader as usize, mine).await?),
                None => None,
            };
            broadcast(local.peers(), local_leader as usize, heard).await
        })
    };
    // Each process numbers processes of other jobs by itself. If a leader knows such processes, members are exchanged
    // as contacts, not as ranks.
    let by_contact = !is_replicated() && {
        let mixed = |comm: &Comm| u64::from(comm.is_mixed);
        let mine =
            leaders.as_ref().map_or(Ok(0), |_| comm::resolve(peer_comm).map(|peer| mixed(&peer) | mixed(&local)))?;
        let theirs = exchange(&[mine])?.first().copied().unwrap_or(0);
        (theirs | block_on(broadcast(local.peers(), local_leader as usize, is_leader.then(|| vec![mine])))?[0]) != 0
    };
    let members = match by_contact {
        false => local.members.iter().map(|member| u64::from(member.0)).collect(),
        true => dynamic::members_as_words(local.peers(), local_leader as usize)?,
    };
    let heard = exchange(&[&[chosen.context], &members[..]].concat())?;
    let Some((theirs, remote)) = heard.split_first() else {
        fail!(MPI_ERR_COMM, "the leader of the other group said nothing");
    };
    let remote = if by_contact { dynamic::members_from_words(remote)? } else { ranks(remote) };
    if let Some(both) = remote.iter().find(|member| local.members.contains(member)) {
        fail!(MPI_ERR_COMM, "rank {both} of MPI_COMM_WORLD is in both groups");
    }
    newintercomm.set(handle_of(local.bridge(chosen.with_other_half(*theirs), &local.members, &remote)))
}

fn is_replicated() -> bool {
    runtime::job().is_some_and(|job| job.welcome.world.is_replicated())
}

/// Detail of the contexts of intercommunicators: apart from those of a communicator's other children.
const INTER_DETAIL: u64 = u64::MAX - 4;
const MERGE_DETAIL: u64 = u64::MAX - 5;

/// The string tag of a constructor as a number; all callers pass the same string.
fn tag_of(stringtag: Input<c_char>) -> Result<u64> {
    Ok(XxHash3_64::oneshot(stringtag.text()?.as_bytes()))
}

/// Sets the requested error handler, and returns the communicator's handle.
fn finish(made: Option<Arc<Comm>>, errhandler: ErrhandlerHandle, newcomm: Output<CommHandle>) -> Result {
    if let Some(comm) = &made {
        super::errhandler::comm_set_errhandler(comm.handle(), errhandler)?;
    }
    newcomm.set(handle_of(made))
}

/// `MPI_Comm_create_from_group`: all processes are in `MPI_COMM_WORLD`, so the new communicator is a child of it.
pub fn comm_create_from_group(
    group: GroupHandle,
    stringtag: Input<c_char>,
    info: InfoHandle,
    errhandler: ErrhandlerHandle,
    newcomm: Output<CommHandle>,
) -> Result {
    let (world, members) = (comm::resolve(CommHandle::WORLD)?, members_of(group)?);
    info::resolve_hints(info)?;
    let new = world.group_context(&members, tag_of(stringtag)? ^ FROM_GROUP_DETAIL)?;
    let made = world.with_context(new, &members);
    if let (Some(made), Some(session)) = (&made, group::resolve(group)?.session()) {
        let _ = made.session.set(session::resolve(session)?);
    }
    finish(made, errhandler, newcomm)
}

/// `MPI_Intercomm_create_from_groups`. Only the local leader knows the remote group; it broadcasts the group.
pub fn intercomm_create_from_groups(
    local_group: GroupHandle,
    local_leader: c_int,
    remote_group: GroupHandle,
    _remote_leader: c_int,
    stringtag: Input<c_char>,
    info: InfoHandle,
    errhandler: ErrhandlerHandle,
    newintercomm: Output<CommHandle>,
) -> Result {
    let (world, members) = (comm::resolve(CommHandle::WORLD)?, members_of(local_group)?);
    info::resolve_hints(info)?;
    let tag = tag_of(stringtag)?;
    let own = world.group_context(&members, tag ^ FROM_GROUPS_DETAIL)?;
    let Some(local) = world.with_context(own, &members) else {
        fail!(MPI_ERR_GROUP, "this process is not in the local group");
    };
    local.member(local_leader)?;
    let is_leader = local.rank as c_int == local_leader;
    let known = if is_leader { Some(members_of(remote_group)?) } else { None };
    let known = known.map(|remote| remote.iter().map(|member| u64::from(member.0)).collect());
    let remote = ranks(&block_on(broadcast(local.peers(), local_leader as usize, known))?);
    comm::remove(local.handle())?;
    if let Some(both) = remote.iter().find(|member| members.contains(member)) {
        fail!(MPI_ERR_COMM, "rank {both} of MPI_COMM_WORLD is in both groups");
    }
    // Both sides compute the same order.
    let all = if members < remote { [&members[..], &remote] } else { [&remote[..], &members] }.concat();
    let new = world.group_context(&all, tag ^ FROM_GROUPS_DETAIL)?;
    finish(world.bridge(new, &members, &remote), errhandler, newintercomm)
}

const FROM_GROUP_DETAIL: u64 = 1 << 40;
const FROM_GROUPS_DETAIL: u64 = 1 << 41;

/// `MPI_Intercomm_merge`.
pub fn intercomm_merge(intercomm: CommHandle, high: c_int, newintracomm: Output<CommHandle>) -> Result {
    let comm = comm::resolve(intercomm)?;
    let remote = remote(&comm)?;
    comm.reclaim()?;
    let mine = u64::from(high != 0);
    let theirs = agree(&comm, &[mine])?.first().copied().unwrap_or(0);
    // If both sides pass the same `high`, the order is by the identity of their first members, the same at both sides.
    let first = (mine, contact::identity(comm.members[0])) < (theirs, contact::identity(remote[0]));
    let (low, top) = if first { (&comm.members, remote) } else { (remote, &comm.members) };
    let members: Vec<_> = low.iter().chain(top.iter()).copied().collect();
    newintracomm.set(handle_of(comm.with_context(comm.next_context(MERGE_DETAIL), &members)))
}

/// `MPI_Comm_create` on an intercommunicator (§7.4.2): of the members that each side chooses.
pub fn create(comm: &Comm, members: &[VirtualRank]) -> Result<Option<Arc<Comm>>> {
    // By rank in the group: the other side may number processes of other jobs differently.
    let place = |member: &VirtualRank| comm.members.iter().position(|other| other == member).map(|rank| rank as u64);
    let mine: Vec<_> = members.iter().filter_map(place).collect();
    let remote = remote(comm)?;
    comm.reclaim()?;
    let theirs: Vec<_> = agree(comm, &mine)?.iter().filter_map(|rank| remote.get(*rank as usize).copied()).collect();
    Ok(comm.bridge(comm.next_context(INTER_DETAIL), members, &theirs))
}

/// `MPI_Comm_split` on an intercommunicator (§7.4.2): members of both sides with the same colour.
pub fn split(comm: &Comm, color: c_int, key: c_int) -> Result<Option<Arc<Comm>>> {
    if color < 0 && color != MPI_UNDEFINED {
        fail!(MPI_ERR_ARG, "colour {color} is negative");
    }
    const BYTES: usize = 8;
    let remote = remote(comm)?;
    comm.reclaim()?;
    let (mut own, mut other) = (Scratch::new(BYTES * comm.size()), Scratch::new(BYTES * remote.len()));
    let parts = |whole: redrt_transport::memory::Region, count: usize| -> Vec<_> {
        (0..count).map(|rank| whole.part(rank * BYTES, BYTES)).collect()
    };
    let (own, other) = (parts(own.region(), comm.size()), parts(other.region(), remote.len()));
    let mine = own[comm.rank as usize];
    mine.with_bytes_mut(|bytes| {
        bytes[..4].copy_from_slice(&color.to_ne_bytes());
        bytes[4..].copy_from_slice(&key.to_ne_bytes());
    });
    let local = comm.peers();
    let across = local.across.clone().expect("an intercommunicator has two groups");
    block_on(async {
        two_groups::alltoall(&across, vec![mine], other.clone()).await?;
        gather::allgather(local, None, own.clone()).await
    })?;
    let chosen = |pieces: &[redrt_transport::memory::Region], members: &[VirtualRank]| -> Vec<VirtualRank> {
        let int = |bytes: &[u8]| c_int::from_ne_bytes(bytes.try_into().expect("4 bytes"));
        let said = pieces.iter().map(|piece| piece.with_bytes(|bytes| (int(&bytes[..4]), int(&bytes[4..]))));
        let mut chosen: Vec<_> =
            said.enumerate().filter(|(_, (theirs, _))| *theirs == color).map(|(rank, (_, key))| (key, rank)).collect();
        chosen.sort_unstable();
        chosen.into_iter().map(|(_, rank)| members[rank]).collect()
    };
    let (local_group, remote_group) = (chosen(&own, &comm.members), chosen(&other, remote));
    let new = comm.next_context(u64::from(color as u32));
    if color == MPI_UNDEFINED {
        return Ok(None);
    }
    Ok(comm.bridge(new, &local_group, &remote_group))
}
