//! Collectives that move data.

use super::slots::{Packed, Slot, assorted, blocks, load_all, open_all, regions, scattered};
use super::{Plan, check_root, collective, is_in_place, not_in_place};
use crate::abi::{Counts, Input, MPI_ERR_ARG};
use crate::coll::{Peers, alltoall as exchange, barrier as signal, bcast as tree, gather as pieces};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::handle::DatatypeHandle;
use std::ffi::{c_int, c_void};

fn plan_barrier(_comm: &Comm) -> Result<impl Plan + use<>> {
    Ok(signal::barrier)
}
collective!(barrier, ibarrier, barrier_init, plan_barrier());

fn plan_bcast(
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = check_root(comm, root)?;
    let slot = Slot::new(buffer, count, datatype)?;
    let is_root = comm.rank as usize == root;
    Ok(move |peers: Peers| {
        let packed = if is_root { slot.load() } else { slot.open() };
        async move {
            tree::bcast(peers, packed.region, root).await?;
            if !is_root {
                packed.store();
            }
            Ok(())
        }
    })
}
collective!(bcast, ibcast, bcast_init, plan_bcast(
    buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int));

/// A member's own piece at the root: its buffer, or nothing because it is in place.
fn own(buffer: *const c_void, count: i64, datatype: DatatypeHandle, at_root: bool) -> Result<Option<Slot>> {
    if is_in_place(buffer) {
        if !at_root {
            not_in_place(buffer)?;
        }
        return Ok(None);
    }
    Slot::new(buffer, count, datatype).map(Some)
}

fn gather_to(mine: Option<Slot>, all: Vec<Slot>, root: usize) -> impl Plan + use<> {
    move |peers: Peers| {
        let all = if mine.is_none() { load_all(all) } else { open_all(all) };
        let mine = mine.map(Slot::load);
        async move {
            pieces::gather(peers, mine.as_ref().map(|mine| mine.region), regions(&all), root).await?;
            all.iter().for_each(Packed::store);
            Ok(())
        }
    }
}

fn plan_gather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = own(sendbuf, sendcount, sendtype, at_root)?;
    let all = if at_root { blocks(recvbuf, recvcount, recvtype, comm.size())? } else { Vec::new() };
    Ok(gather_to(mine, all, root))
}
collective!(gather, igather, gather_init, plan_gather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

fn plan_gatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = own(sendbuf, sendcount, sendtype, at_root)?;
    let all = if at_root { scattered(recvbuf, recvcounts, displs, recvtype, comm.size())? } else { Vec::new() };
    Ok(gather_to(mine, all, root))
}
collective!(gatherv, igatherv, gatherv_init, plan_gatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle, root: c_int));

fn scatter_from(all: Vec<Slot>, mine: Option<Slot>, root: usize) -> impl Plan + use<> {
    move |peers: Peers| {
        let all = load_all(all);
        let mine = mine.map(Slot::open);
        async move {
            pieces::scatter(peers, regions(&all), mine.as_ref().map(|mine| mine.region), root).await?;
            mine.iter().for_each(Packed::store);
            Ok(())
        }
    }
}

fn plan_scatter(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = own(recvbuf, recvcount, recvtype, at_root)?;
    let all = if at_root { blocks(sendbuf, sendcount, sendtype, comm.size())? } else { Vec::new() };
    Ok(scatter_from(all, mine, root))
}
collective!(scatter, iscatter, scatter_init, plan_scatter(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

fn plan_scatterv(
    sendbuf: *const c_void,
    sendcounts: Counts,
    displs: Counts,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = own(recvbuf, recvcount, recvtype, at_root)?;
    let all = if at_root { scattered(sendbuf, sendcounts, displs, sendtype, comm.size())? } else { Vec::new() };
    Ok(scatter_from(all, mine, root))
}
collective!(scatterv, iscatterv, scatterv_init, plan_scatterv(
    sendbuf: *const c_void, sendcounts: Counts, displs: Counts, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

/// Puts this member's contribution into its piece, and collects all.
fn collect(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    all: Vec<Slot>,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let rank = comm.rank as usize;
    let mine = if is_in_place(sendbuf) { None } else { Some(Slot::new(sendbuf, sendcount, sendtype)?) };
    if mine.as_ref().is_some_and(|mine| mine.bytes() > all[rank].bytes()) {
        return Err(Error::new(MPI_ERR_ARG, "the contribution is longer than its place in the receive buffer"));
    }
    Ok(move |peers: Peers| {
        let all = if let Some(mine) = mine {
            let all = open_all(all);
            all[rank].region.copy_from(mine.load().region);
            all
        } else {
            load_all(all)
        };
        async move {
            pieces::allgather(peers, regions(&all)).await?;
            all.iter().for_each(Packed::store);
            Ok(())
        }
    })
}

fn plan_allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    collect(sendbuf, sendcount, sendtype, blocks(recvbuf, recvcount, recvtype, comm.size())?, comm)
}
collective!(allgather, iallgather, allgather_init, plan_allgather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle));

fn plan_allgatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    collect(sendbuf, sendcount, sendtype, scattered(recvbuf, recvcounts, displs, recvtype, comm.size())?, comm)
}
collective!(allgatherv, iallgatherv, allgatherv_init, plan_allgatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle));

/// Exchanges pieces; without `out`, those of `into` are replaced.
fn swap(out: Option<Vec<Slot>>, into: Vec<Slot>) -> impl Plan + use<> {
    move |peers: Peers| {
        let into = if out.is_some() { open_all(into) } else { load_all(into) };
        let out = out.map(load_all);
        async move {
            match &out {
                Some(out) => exchange::alltoall(peers, regions(out), regions(&into)).await?,
                None => exchange::alltoall_in_place(peers, regions(&into)).await?,
            }
            into.iter().for_each(Packed::store);
            Ok(())
        }
    }
}

fn plan_alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let out = if is_in_place(sendbuf) { None } else { Some(blocks(sendbuf, sendcount, sendtype, comm.size())?) };
    Ok(swap(out, blocks(recvbuf, recvcount, recvtype, comm.size())?))
}
collective!(alltoall, ialltoall, alltoall_init, plan_alltoall(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle));

fn plan_alltoallv(
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let out = match is_in_place(sendbuf) {
        true => None,
        false => Some(scattered(sendbuf, sendcounts, sdispls, sendtype, comm.size())?),
    };
    Ok(swap(out, scattered(recvbuf, recvcounts, rdispls, recvtype, comm.size())?))
}
collective!(alltoallv, ialltoallv, alltoallv_init, plan_alltoallv(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtype: DatatypeHandle));

fn plan_alltoallw(
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtypes: Input<DatatypeHandle>,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let out = match is_in_place(sendbuf) {
        true => None,
        false => Some(assorted(sendbuf, sendcounts, sdispls, sendtypes, comm.size())?),
    };
    Ok(swap(out, assorted(recvbuf, recvcounts, rdispls, recvtypes, comm.size())?))
}
collective!(alltoallw, ialltoallw, alltoallw_init, plan_alltoallw(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtypes: Input<DatatypeHandle>));
