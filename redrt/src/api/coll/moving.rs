//! Collectives that move data.

use super::slots::{Packed, Slot, assorted, blocks, load_all, open_all, regions, scattered};
use super::{Plan, Root, Running, across, collective, in_place, is_in_place, not_in_place, run_to_end};
use crate::abi::{Counts, Input, MPI_ERR_ARG};
use crate::coll::board::{self, SharedBoard};
use crate::coll::{Outcome, Peers, alltoall as exchange, barrier as signal, bcast as tree, gather as pieces, inter};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::handle::DatatypeHandle;
use redrt_transport::memory::Region;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

#[derive(Clone)]
struct Barrier;

impl Plan for Barrier {
    fn run(self, peers: Peers) -> impl Running {
        async move {
            match across(&peers) {
                None => signal::barrier(peers).await,
                Some(across) => inter::barrier(peers, &across).await,
            }
        }
    }

    /// Over a board it takes so little time that even to make a future of it would count.
    #[inline(always)]
    fn block(self, comm: &Comm, table: Option<&Arc<SharedBoard>>) -> Outcome {
        let Some(table) = table else { return run_to_end(self, comm, table) };
        board::barrier(table);
        Ok(())
    }
}

fn plan_barrier(_comm: &Comm) -> Result<impl Plan + use<>> {
    Ok(Barrier)
}
collective!(barrier, ibarrier, barrier_init, plan_barrier());

fn plan_bcast(
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = Root::new(comm, root)?;
    let takes_part = root.is_me || root.is_member;
    let slot = if takes_part { Some(Slot::new(buffer, count, datatype)?) } else { None };
    Ok(move |peers: Peers| {
        let packed = slot.map(|slot| if root.is_me { slot.load() } else { slot.open() });
        async move {
            let region = packed.as_ref().map_or(Region::empty(), |packed| packed.region);
            match across(&peers).zip(root.role) {
                None => tree::bcast(peers, region, root.rank).await?,
                Some((across, role)) => inter::bcast(peers, &across, region, role).await?,
            }
            packed.iter().filter(|_| !root.is_me).for_each(Packed::store);
            Ok(())
        }
    })
}
collective!(bcast, ibcast, bcast_init, plan_bcast(
    buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int));

/// A member's own piece at the root: its buffer, or nothing because it is in place or has none.
fn own(buffer: *const c_void, count: i64, datatype: DatatypeHandle, root: Root) -> Result<Option<Slot>> {
    if !root.is_member {
        return Ok(None);
    }
    if is_in_place(buffer) {
        if !root.is_me {
            not_in_place(buffer)?;
        }
        return Ok(None);
    }
    Slot::new(buffer, count, datatype).map(Some)
}

fn gather_to(mine: Option<Slot>, all: Vec<Slot>, root: Root) -> impl Plan + use<> {
    move |peers: Peers| {
        let all = if mine.is_none() { load_all(all) } else { open_all(all) };
        let mine = mine.map(Slot::load);
        async move {
            let piece = mine.as_ref().map(|mine| mine.region);
            match across(&peers).zip(root.role) {
                None => pieces::gather(peers, piece, regions(&all), root.rank).await?,
                Some((across, role)) => {
                    inter::gather(&across, piece.unwrap_or(Region::empty()), regions(&all), role).await?;
                }
            }
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
    let root = Root::new(comm, root)?;
    let mine = own(sendbuf, sendcount, sendtype, root)?;
    let all = if root.is_me { blocks(recvbuf, recvcount, recvtype, comm.others().len())? } else { Vec::new() };
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
    let root = Root::new(comm, root)?;
    let mine = own(sendbuf, sendcount, sendtype, root)?;
    let size = comm.others().len();
    let all = if root.is_me { scattered(recvbuf, recvcounts, displs, recvtype, size)? } else { Vec::new() };
    Ok(gather_to(mine, all, root))
}
collective!(gatherv, igatherv, gatherv_init, plan_gatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle, root: c_int));

fn scatter_from(all: Vec<Slot>, mine: Option<Slot>, root: Root) -> impl Plan + use<> {
    move |peers: Peers| {
        let all = load_all(all);
        let mine = mine.map(Slot::open);
        async move {
            let piece = mine.as_ref().map(|mine| mine.region);
            match across(&peers).zip(root.role) {
                None => pieces::scatter(peers, regions(&all), piece, root.rank).await?,
                Some((across, role)) => {
                    inter::spread(&across, regions(&all), piece.unwrap_or(Region::empty()), role).await?;
                }
            }
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
    let root = Root::new(comm, root)?;
    let mine = own(recvbuf, recvcount, recvtype, root)?;
    let all = if root.is_me { blocks(sendbuf, sendcount, sendtype, comm.others().len())? } else { Vec::new() };
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
    let root = Root::new(comm, root)?;
    let mine = own(recvbuf, recvcount, recvtype, root)?;
    let size = comm.others().len();
    let all = if root.is_me { scattered(sendbuf, sendcounts, displs, sendtype, size)? } else { Vec::new() };
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
    let mine = if in_place(comm, sendbuf)? { None } else { Some(Slot::new(sendbuf, sendcount, sendtype)?) };
    let is_inter = comm.remote.is_some();
    if !is_inter && mine.as_ref().is_some_and(|mine| mine.bytes() > all[rank].bytes()) {
        return Err(Error::new(MPI_ERR_ARG, "the contribution is longer than its place in the receive buffer"));
    }
    Ok(move |peers: Peers| {
        let mine = mine.map(Slot::load);
        // What a contribution that is shorter than its place leaves of it goes to the others too: the program's bytes,
        // the same in all replicas.
        let fills = mine.as_ref().is_some_and(|mine| is_inter || mine.region.len() == all[rank].bytes());
        let all = if fills { open_all(all) } else { load_all(all) };
        async move {
            let mine = mine.as_ref().map(|mine| mine.region);
            match across(&peers).zip(mine) {
                None => pieces::allgather(peers, mine, regions(&all)).await?,
                Some((across, mine)) => inter::alltoall(&across, vec![mine], regions(&all)).await?,
            }
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
    collect(sendbuf, sendcount, sendtype, blocks(recvbuf, recvcount, recvtype, comm.others().len())?, comm)
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
    let all = scattered(recvbuf, recvcounts, displs, recvtype, comm.others().len())?;
    collect(sendbuf, sendcount, sendtype, all, comm)
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
            match (&out, across(&peers)) {
                (Some(out), Some(across)) => inter::alltoall(&across, regions(out), regions(&into)).await?,
                (Some(out), None) => exchange::alltoall(peers, regions(out), regions(&into)).await?,
                (None, _) => exchange::alltoall_in_place(peers, regions(&into)).await?,
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
    let out =
        if in_place(comm, sendbuf)? { None } else { Some(blocks(sendbuf, sendcount, sendtype, comm.others().len())?) };
    Ok(swap(out, blocks(recvbuf, recvcount, recvtype, comm.others().len())?))
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
    let out = match in_place(comm, sendbuf)? {
        true => None,
        false => Some(scattered(sendbuf, sendcounts, sdispls, sendtype, comm.others().len())?),
    };
    Ok(swap(out, scattered(recvbuf, recvcounts, rdispls, recvtype, comm.others().len())?))
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
    let out = match in_place(comm, sendbuf)? {
        true => None,
        false => Some(assorted(sendbuf, sendcounts, sdispls, sendtypes, comm.others().len())?),
    };
    Ok(swap(out, assorted(recvbuf, recvcounts, rdispls, recvtypes, comm.others().len())?))
}
collective!(alltoallw, ialltoallw, alltoallw_init, plan_alltoallw(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtypes: Input<DatatypeHandle>));
