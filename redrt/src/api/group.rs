//! Groups (MPI-5.0 section 7.3).

use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::GroupHandle;
use redrt_abi::{Input, MPI_ERR_ARG, MPI_ERR_RANK, MPI_PROC_NULL, MPI_UNDEFINED, Output};
use redrt_comm::objects::group::{self, Group, expand_ranges, resolve};
use redrt_comm::objects::host;
use std::ffi::c_int;
use std::sync::Arc;

fn finish(group: Group, newgroup: Output<GroupHandle>) -> Result {
    newgroup.set(group::register(Arc::new(group)))
}

/// `MPI_Group_size`.
pub fn group_size(group: GroupHandle, size: Output<c_int>) -> Result {
    size.set(resolve(group)?.size() as c_int)
}

/// `MPI_Group_rank`.
pub fn group_rank(group: GroupHandle, rank: Output<c_int>) -> Result {
    let own = resolve(group)?.rank_of(host::get().rank());
    rank.set(own.map_or(MPI_UNDEFINED, |rank| rank as c_int))
}

/// `MPI_Group_translate_ranks`.
pub fn group_translate_ranks(
    group1: GroupHandle,
    n: c_int,
    ranks1: Input<c_int>,
    group2: GroupHandle,
    ranks2: Output<c_int>,
) -> Result {
    let (first, second) = (resolve(group1)?, resolve(group2)?);
    for (index, rank) in ranks1.slice(n)?.iter().enumerate() {
        let translated = match first.world_rank(*rank as u32) {
            _ if *rank == MPI_PROC_NULL => MPI_PROC_NULL,
            Some(world_rank) => second.rank_of(world_rank).map_or(MPI_UNDEFINED, |rank| rank as c_int),
            None => fail!(MPI_ERR_RANK, "rank {rank} in a group of {}", first.size()),
        };
        ranks2.set_at(index, translated)?;
    }
    Ok(())
}

/// `MPI_Group_compare`.
pub fn group_compare(group1: GroupHandle, group2: GroupHandle, result: Output<c_int>) -> Result {
    result.set(resolve(group1)?.compare(&*resolve(group2)?))
}

/// `MPI_Group_union`.
pub fn group_union(group1: GroupHandle, group2: GroupHandle, newgroup: Output<GroupHandle>) -> Result {
    finish(resolve(group1)?.union(&*resolve(group2)?), newgroup)
}

/// `MPI_Group_intersection`.
pub fn group_intersection(group1: GroupHandle, group2: GroupHandle, newgroup: Output<GroupHandle>) -> Result {
    finish(resolve(group1)?.intersection(&*resolve(group2)?), newgroup)
}

/// `MPI_Group_difference`.
pub fn group_difference(group1: GroupHandle, group2: GroupHandle, newgroup: Output<GroupHandle>) -> Result {
    finish(resolve(group1)?.difference(&*resolve(group2)?), newgroup)
}

fn check_length(n: c_int) -> Result {
    if n < 0 {
        fail!(MPI_ERR_ARG, "the number of ranks is {n}");
    }
    Ok(())
}

/// `MPI_Group_incl`.
pub fn group_incl(group: GroupHandle, n: c_int, ranks: Input<c_int>, newgroup: Output<GroupHandle>) -> Result {
    check_length(n)?;
    finish(resolve(group)?.including(ranks.slice(n)?)?, newgroup)
}

/// `MPI_Group_excl`.
pub fn group_excl(group: GroupHandle, n: c_int, ranks: Input<c_int>, newgroup: Output<GroupHandle>) -> Result {
    check_length(n)?;
    finish(resolve(group)?.excluding(ranks.slice(n)?)?, newgroup)
}

/// `MPI_Group_range_incl`.
pub fn group_range_incl(
    group: GroupHandle,
    n: c_int,
    ranges: Input<[c_int; 3]>,
    newgroup: Output<GroupHandle>,
) -> Result {
    check_length(n)?;
    let group = resolve(group)?;
    finish(group.including(&expand_ranges(ranges.slice(n)?, group.size())?)?, newgroup)
}

/// `MPI_Group_range_excl`.
pub fn group_range_excl(
    group: GroupHandle,
    n: c_int,
    ranges: Input<[c_int; 3]>,
    newgroup: Output<GroupHandle>,
) -> Result {
    check_length(n)?;
    let group = resolve(group)?;
    finish(group.excluding(&expand_ranges(ranges.slice(n)?, group.size())?)?, newgroup)
}

/// `MPI_Group_free`.
pub fn group_free(group: Output<GroupHandle>) -> Result {
    group::free(group.get()?)?;
    group.set(GroupHandle::NULL)
}
