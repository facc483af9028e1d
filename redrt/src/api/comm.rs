//! Communicators and their Cartesian topologies (MPI-5.0 chapters 7 and 8).

pub use super::graph::*;
pub use super::inter::{
    comm_create_from_group, comm_remote_group, comm_remote_size, comm_test_inter, intercomm_create,
    intercomm_create_from_groups, intercomm_merge,
};

use super::inter;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{CommHandle, GroupHandle, InfoHandle, RequestHandle};
use redrt_abi::{
    Input, MPI_CART, MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_HW_UNGUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED,
    MPI_COMM_TYPE_SHARED, MPI_CONGRUENT, MPI_DIST_GRAPH, MPI_ERR_ARG, MPI_ERR_DIMS, MPI_ERR_GROUP, MPI_ERR_RANK,
    MPI_ERR_TOPOLOGY, MPI_GRAPH, MPI_IDENT, MPI_MAX_OBJECT_NAME, MPI_PROC_NULL, MPI_SIMILAR, MPI_UNDEFINED,
    MPI_UNEQUAL, Output,
};
use redrt_comm::coll::gather;
use redrt_comm::comm::cards::exchange;
use redrt_comm::comm::topology::{Grid, Topology};
use redrt_comm::comm::{self, Comm, handle_of};
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::{group, info};
use redrt_engine as engine;
use redrt_engine::request::{Operation, Status};
use redrt_engine::tasks::block_on;
use redrt_process::lock;
use redrt_runtime as runtime;
use redrt_transport::memory::Scratch;
use redrt_types::VirtualRank;
use redrt_window::pages;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// `MPI_Comm_size`.
pub fn comm_size(comm: CommHandle, size: Output<c_int>) -> Result {
    size.set(comm::resolve(comm)?.size() as c_int)
}

/// `MPI_Comm_rank`.
pub fn comm_rank(comm: CommHandle, rank: Output<c_int>) -> Result {
    rank.set(comm::resolve(comm)?.rank as c_int)
}

/// `MPI_Comm_compare`.
pub fn comm_compare(comm1: CommHandle, comm2: CommHandle, result: Output<c_int>) -> Result {
    let (left, right) = (comm::resolve(comm1)?, comm::resolve(comm2)?);
    let groups = comm::same_members(&left.members, &right.members);
    let remotes = match (&left.remote, &right.remote) {
        (None, None) => (true, true),
        (Some(left), Some(right)) => comm::same_members(left, right),
        _ => (false, false),
    };
    let verdict = match (groups.0 && remotes.0, groups.1 && remotes.1) {
        _ if Arc::ptr_eq(&left, &right) => MPI_IDENT,
        (true, _) => MPI_CONGRUENT,
        (false, true) => MPI_SIMILAR,
        (false, false) => MPI_UNEQUAL,
    };
    result.set(verdict)
}

/// `MPI_Comm_group`.
pub fn comm_group(comm: CommHandle, group: Output<GroupHandle>) -> Result {
    let comm = comm::resolve(comm)?;
    let members = comm.members.iter().map(|member| member.0).collect();
    group.set(group::register(Arc::new(group::Group::list(members))))
}

pub(super) fn members_of(group: GroupHandle) -> Result<Vec<VirtualRank>> {
    Ok(group::resolve(group)?.world_ranks().map(VirtualRank).collect())
}

fn duplicate(parent: &Arc<Comm>) -> Result<Arc<Comm>> {
    let attributes = parent.attached.attributes.duplicate(parent.handle().0)?;
    let mut attached = Attached::with_errhandler(parent.attached.errhandler());
    attached.attributes = attributes;
    Ok(parent.duplicate(Arc::new(attached)))
}

/// `MPI_Comm_dup`.
pub fn comm_dup(comm: CommHandle, newcomm: Output<CommHandle>) -> Result {
    comm::resolve(comm)?.reclaim()?;
    dup(comm, newcomm)
}

fn dup(comm: CommHandle, newcomm: Output<CommHandle>) -> Result {
    let parent = comm::resolve(comm)?;
    let child = duplicate(&parent)?;
    *lock(&child.info) = Arc::new(lock(&parent.info).duplicate());
    newcomm.set(child.handle())
}

/// `MPI_Comm_dup_with_info`.
pub fn comm_dup_with_info(comm: CommHandle, info: InfoHandle, newcomm: Output<CommHandle>) -> Result {
    comm::resolve(comm)?.reclaim()?;
    dup_with_info(comm, info, newcomm)
}

fn dup_with_info(comm: CommHandle, info: InfoHandle, newcomm: Output<CommHandle>) -> Result {
    let hints = info::resolve_hints(info)?;
    let child = duplicate(&*comm::resolve(comm)?)?;
    if let Some(hints) = hints {
        *lock(&child.info) = Arc::new(hints.duplicate());
    }
    newcomm.set(child.handle())
}

/// Request of a nonblocking constructor. Contexts are derived, not negotiated, so the new communicator is ready at
/// once. If members of `parent` begin to exchange the contexts that they have freed, the request is that of the
/// exchange; else it is complete.
fn complete(request: Output<RequestHandle>, parent: &Arc<Comm>) -> Result {
    let begun = parent.reclaim_later();
    let mut engine = engine::cell().lock();
    let id = begun.unwrap_or_else(|| {
        let id = engine.requests.insert(Operation::Other);
        engine.requests.complete(id, Status::EMPTY);
        id
    });
    request.set(crate::api::p2p::handle(&mut engine, id, parent))
}

/// `MPI_Comm_idup`.
pub fn comm_idup(comm: CommHandle, newcomm: Output<CommHandle>, request: Output<RequestHandle>) -> Result {
    dup(comm, newcomm)?;
    complete(request, &*comm::resolve(comm)?)
}

/// `MPI_Comm_idup_with_info`.
pub fn comm_idup_with_info(
    comm: CommHandle,
    info: InfoHandle,
    newcomm: Output<CommHandle>,
    request: Output<RequestHandle>,
) -> Result {
    dup_with_info(comm, info, newcomm)?;
    complete(request, &*comm::resolve(comm)?)
}

/// `MPI_Comm_create`.
pub fn comm_create(comm: CommHandle, group: GroupHandle, newcomm: Output<CommHandle>) -> Result {
    let parent = comm::resolve(comm)?;
    let members = members_of(group)?;
    check_subset(&parent, &members)?;
    if parent.remote.is_some() {
        return newcomm.set(handle_of(inter::create(&parent, &members)?));
    }
    // Groups of one call are disjoint, so the first member tells them apart.
    let detail = members.first().map_or(0, |member| parent.name_of(*member) + 1);
    newcomm.set(handle_of(parent.derive(&members, detail, None)?))
}

fn check_subset(parent: &Comm, members: &[VirtualRank]) -> Result {
    match members.iter().find(|member| !parent.members.contains(member)) {
        None => Ok(()),
        Some(stranger) => {
            let message = format!("rank {stranger} of MPI_COMM_WORLD is in the group but not in {}", parent.label());
            Err(Error::new(MPI_ERR_GROUP, message))
        }
    }
}

/// `MPI_Comm_create_group`.
pub fn comm_create_group(comm: CommHandle, group: GroupHandle, tag: c_int, newcomm: Output<CommHandle>) -> Result {
    let parent = comm::resolve(comm)?;
    let members = members_of(group)?;
    check_subset(&parent, &members)?;
    if members.is_empty() {
        return newcomm.set(CommHandle::NULL);
    }
    let new = parent.group_context(&members, tag as u64)?;
    newcomm.set(handle_of(parent.with_context(new, &members)))
}

/// Gathers colour and key of every member.
fn colors_and_keys(parent: &Comm, color: c_int, key: c_int) -> Result<Vec<(c_int, c_int)>> {
    const BYTES: usize = 8;
    let mut scratch = Scratch::new(BYTES * parent.size());
    let all = scratch.region();
    let pieces: Vec<_> = (0..parent.size()).map(|rank| all.part(rank * BYTES, BYTES)).collect();
    pieces[parent.rank as usize].with_bytes_mut(|bytes| {
        bytes[..4].copy_from_slice(&color.to_ne_bytes());
        bytes[4..].copy_from_slice(&key.to_ne_bytes());
    });
    block_on(gather::allgather(parent.peers(), None, pieces.clone()))?;
    let int = |bytes: &[u8]| c_int::from_ne_bytes(bytes.try_into().expect("4 bytes"));
    Ok(pieces.iter().map(|piece| piece.with_bytes(|bytes| (int(&bytes[..4]), int(&bytes[4..])))).collect())
}

fn split(parent: &Arc<Comm>, color: c_int, key: c_int) -> Result<Option<Arc<Comm>>> {
    if color < 0 && color != MPI_UNDEFINED {
        return Err(Error::new(MPI_ERR_ARG, format!("colour {color} is negative")));
    }
    let all = colors_and_keys(parent, color, key)?;
    let mut chosen: Vec<_> = (0..all.len()).filter(|rank| all[*rank].0 == color).collect();
    chosen.sort_by_key(|rank| (all[*rank].1, *rank));
    let members: Vec<_> = match comm::color(color) {
        Some(_) => chosen.into_iter().map(|rank| parent.members[rank]).collect(),
        None => Vec::new(),
    };
    parent.derive(&members, u64::from(color as u32), None)
}

/// `MPI_Comm_split`.
pub fn comm_split(comm: CommHandle, color: c_int, key: c_int, newcomm: Output<CommHandle>) -> Result {
    let parent = comm::resolve(comm)?;
    let made = if parent.remote.is_some() { inter::split(&parent, color, key)? } else { split(&parent, color, key)? };
    newcomm.set(handle_of(made))
}

/// The colour of the ranks of `comm` that share memory with this one (see `MPI_Comm_split_type`). Ranks of different
/// jobs share none. Collective over `comm`.
fn shared_memory_color(comm: &Comm) -> Result<i32> {
    let Some(job) = runtime::job() else { return Ok(0) };
    let own = [job.welcome.job, pages::neighborhood(job)];
    let all = exchange(comm, own)?;
    Ok(all.iter().position(|card| *card == own).unwrap_or_default() as i32)
}

/// `MPI_Comm_split_type`. Ranks share memory if the launcher put them on one host; with replicas, if it put their
/// replicas of each index on one host. Where windows of several ranks are refused, each rank is alone.
pub fn comm_split_type(
    comm: CommHandle,
    split_type: c_int,
    key: c_int,
    info: InfoHandle,
    newcomm: Output<CommHandle>,
) -> Result {
    let parent = comm::resolve(comm)?;
    let resource = info::resolve_hints(info)?.and_then(|info| info.get("mpi_hw_resource_type"));
    // §7.4.2: mpi_shared_memory asks for the same as MPI_COMM_TYPE_SHARED; no other resource is known here.
    let shared = resource.as_deref() == Some("mpi_shared_memory");
    // Collective: also called by members that ask for no communicator.
    let of_shared = shared_memory_color(&parent)?;
    let color = match split_type {
        MPI_UNDEFINED => MPI_UNDEFINED,
        MPI_COMM_TYPE_SHARED => of_shared,
        MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED if shared => of_shared,
        MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_HW_UNGUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => MPI_UNDEFINED,
        other => return Err(Error::new(MPI_ERR_ARG, format!("{other} is not a split type"))),
    };
    newcomm.set(handle_of(split(&parent, color, key)?))
}

/// `MPI_Comm_free`.
pub fn comm_free(comm: Output<CommHandle>) -> Result {
    let handle = comm.get()?;
    let found = comm::resolve(handle)?;
    found.attached.attributes.delete_all(handle.0)?;
    comm::remove(handle)?;
    comm.set(CommHandle::NULL)
}

/// `MPI_Comm_set_name`.
pub fn comm_set_name(comm: CommHandle, comm_name: Input<c_char>) -> Result {
    let comm = comm::resolve(comm)?;
    let mut name = comm_name.text()?;
    while name.len() >= MPI_MAX_OBJECT_NAME as usize {
        name.pop();
    }
    *lock(&comm.name) = name;
    Ok(())
}

/// `MPI_Comm_get_name`. Accepts `MPI_COMM_NULL`, which has a name.
pub fn comm_get_name(comm: CommHandle, comm_name: Output<c_char>, resultlen: Output<c_int>) -> Result {
    let name = match comm {
        CommHandle::NULL => "MPI_COMM_NULL".to_owned(),
        comm => lock(&comm::resolve(comm)?.name).clone(),
    };
    let length = comm_name.set_text(&name, MPI_MAX_OBJECT_NAME as usize)?;
    resultlen.set(length as c_int)
}

/// `MPI_Comm_set_info`.
pub fn comm_set_info(comm: CommHandle, info: InfoHandle) -> Result {
    let comm = comm::resolve(comm)?;
    let hints = info::resolve(info)?;
    lock(&comm.info).update(&hints);
    Ok(())
}

/// `MPI_Comm_get_info`.
pub fn comm_get_info(comm: CommHandle, info_used: Output<InfoHandle>) -> Result {
    let comm = comm::resolve(comm)?;
    let hints = lock(&comm.info).duplicate();
    info_used.set(info::register(hints))
}

/// The Cartesian topology of a communicator.
fn grid(comm: &Comm) -> Result<&Grid> {
    match &comm.topology {
        Some(Topology::Cartesian(grid)) => Ok(grid),
        _ => Err(Error::new(MPI_ERR_TOPOLOGY, format!("{} has no Cartesian topology", comm.label()))),
    }
}

fn make_grid(ndims: c_int, dims: Input<c_int>, periods: Input<c_int>, size: usize) -> Result<Grid> {
    if ndims < 0 {
        return Err(Error::new(MPI_ERR_DIMS, format!("{ndims} dimensions")));
    }
    let dims = dims.slice(ndims)?;
    if let Some(bad) = dims.iter().find(|extent| **extent <= 0) {
        return Err(Error::new(MPI_ERR_DIMS, format!("a dimension of extent {bad}")));
    }
    let dimensions: Vec<_> = dims.iter().map(|extent| *extent as usize).collect();
    let periodic = periods.slice(ndims)?.iter().map(|flag| *flag != 0).collect();
    let places = dimensions.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
    match places {
        Some(places) if places <= size => Ok(Grid { dimensions, periodic }),
        _ => Err(Error::new(MPI_ERR_DIMS, format!("a grid of {dims:?} has more places than the {size} members"))),
    }
}

/// `MPI_Cart_create`.
pub fn cart_create(
    comm_old: CommHandle,
    ndims: c_int,
    dims: Input<c_int>,
    periods: Input<c_int>,
    _reorder: c_int,
    comm_cart: Output<CommHandle>,
) -> Result {
    let parent = comm::resolve(comm_old)?;
    let grid = make_grid(ndims, dims, periods, parent.size())?;
    let members = parent.members[..grid.size()].to_vec();
    comm_cart.set(handle_of(parent.derive(&members, 0, Some(Topology::Cartesian(grid)))?))
}

/// `MPI_Cart_map`.
pub fn cart_map(
    comm: CommHandle,
    ndims: c_int,
    dims: Input<c_int>,
    periods: Input<c_int>,
    newrank: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let grid = make_grid(ndims, dims, periods, comm.size())?;
    newrank.set(if (comm.rank as usize) < grid.size() { comm.rank as c_int } else { MPI_UNDEFINED })
}

/// `MPI_Cart_sub`.
pub fn cart_sub(comm: CommHandle, remain_dims: Input<c_int>, newcomm: Output<CommHandle>) -> Result {
    let parent = comm::resolve(comm)?;
    let grid = grid(&parent)?;
    let keep: Vec<_> = remain_dims.slice(grid.dimensions.len())?.iter().map(|flag| *flag != 0).collect();
    let (sub, number) = grid.sub(parent.rank as usize, &keep);
    let members: Vec<_> =
        (0..parent.size()).filter(|rank| grid.sub(*rank, &keep).1 == number).map(|rank| parent.members[rank]).collect();
    newcomm.set(handle_of(parent.derive(&members, number, Some(Topology::Cartesian(sub)))?))
}

/// `MPI_Cartdim_get`.
pub fn cartdim_get(comm: CommHandle, ndims: Output<c_int>) -> Result {
    ndims.set(grid(&*comm::resolve(comm)?)?.dimensions.len() as c_int)
}

/// `MPI_Cart_get`.
pub fn cart_get(
    comm: CommHandle,
    maxdims: c_int,
    dims: Output<c_int>,
    periods: Output<c_int>,
    coords: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let grid = grid(&comm)?;
    let own = grid.coordinates(comm.rank as usize);
    for (index, coordinate) in own.iter().enumerate().take(maxdims.max(0) as usize) {
        dims.set_at(index, grid.dimensions[index] as c_int)?;
        periods.set_at(index, c_int::from(grid.periodic[index]))?;
        coords.set_at(index, *coordinate as c_int)?;
    }
    Ok(())
}

/// `MPI_Cart_rank`.
pub fn cart_rank(comm: CommHandle, coords: Input<c_int>, rank: Output<c_int>) -> Result {
    let comm = comm::resolve(comm)?;
    let grid = grid(&comm)?;
    let coordinates: Vec<_> = coords.slice(grid.dimensions.len())?.iter().map(|c| i64::from(*c)).collect();
    match grid.rank(&coordinates) {
        Some(place) => rank.set(place as c_int),
        None => Err(Error::new(MPI_ERR_ARG, format!("coordinates {coordinates:?} are outside of the grid"))),
    }
}

/// `MPI_Cart_coords`.
pub fn cart_coords(comm: CommHandle, rank: c_int, maxdims: c_int, coords: Output<c_int>) -> Result {
    let comm = comm::resolve(comm)?;
    let grid = grid(&comm)?;
    if rank < 0 || rank as usize >= comm.size() {
        return Err(Error::new(MPI_ERR_RANK, format!("rank {rank} is not in 0..{}", comm.size())));
    }
    let place = grid.coordinates(rank as usize);
    for (index, coordinate) in place.iter().enumerate().take(maxdims.max(0) as usize) {
        coords.set_at(index, *coordinate as c_int)?;
    }
    Ok(())
}

/// `MPI_Cart_shift`.
pub fn cart_shift(
    comm: CommHandle,
    direction: c_int,
    disp: c_int,
    rank_source: Output<c_int>,
    rank_dest: Output<c_int>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let grid = grid(&comm)?;
    if direction < 0 || direction as usize >= grid.dimensions.len() {
        return Err(Error::new(MPI_ERR_ARG, format!("direction {direction} of {}", grid.dimensions.len())));
    }
    let (before, after) = grid.shift(comm.rank as usize, direction as usize, i64::from(disp));
    let rank = |place: Option<usize>| place.map_or(MPI_PROC_NULL, |place| place as c_int);
    rank_source.set(rank(before))?;
    rank_dest.set(rank(after))
}

/// `MPI_Topo_test`.
pub fn topo_test(comm: CommHandle, status: Output<c_int>) -> Result {
    let comm = comm::resolve(comm)?;
    status.set(match comm.topology {
        Some(Topology::Cartesian(_)) => MPI_CART,
        Some(Topology::Graph(_)) => MPI_GRAPH,
        Some(Topology::Distributed(_)) => MPI_DIST_GRAPH,
        None => MPI_UNDEFINED,
    })
}
