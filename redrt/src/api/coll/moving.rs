//! Collectives that move data.

use super::direct;
use super::slots::{Packed, Slot, Slots, assorted, load_all, open_all, regions, scattered};
use super::{Plan, Root, Running, across, collective, in_place, is_in_place, not_in_place};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{Counts, Input, MPI_ERR_ARG};
use redrt_comm::coll::board::{self, Algorithm, Call, MakePeers, SharedBoard};
use redrt_comm::coll::{Peers, alltoall as exchange, barrier as signal, bcast as tree, gather as pieces, inter};
use redrt_comm::comm::Comm;
use redrt_transport::memory::Region;
use std::ffi::{c_int, c_void};

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

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        Some(Call::new(table, peers, board::Barrier))
    }
}

#[inline(always)]
fn plan_barrier(_comm: &Comm) -> Result<impl Plan + use<>> {
    Ok(Barrier)
}
collective!(barrier, ibarrier, barrier_init, plan_barrier(), in_place: direct::barrier);

#[derive(Clone)]
struct Bcast {
    slot: Option<Slot>,
    root: Root,
}

impl Plan for Bcast {
    fn run(self, peers: Peers) -> impl Running {
        let Self { slot, root } = self;
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
    }

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let buffer = self.slot.as_ref().and_then(Slot::in_place)?;
        Some(Call::new(table, peers, board::Bcast { buffer, root: self.root.rank }))
    }
}

#[inline(always)]
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
    Ok(Bcast { slot, root })
}
collective!(bcast, ibcast, bcast_init, plan_bcast(
    buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int),
    in_place: direct::bcast);

/// A member's own piece: its buffer; `None` if the root has it in place, or the member does not contribute.
#[inline(always)]
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

/// The region of a piece for use in place. `Some(None)` without a piece; `None` if the piece must be packed.
#[inline(always)]
fn own_in_place(mine: Option<&Slot>) -> Option<Option<Region>> {
    match mine {
        None => Some(None),
        Some(mine) => mine.in_place().map(Some),
    }
}

#[derive(Clone)]
struct Gather {
    mine: Option<Slot>,
    all: Slots,
    root: Root,
}

impl Plan for Gather {
    fn run(self, peers: Peers) -> impl Running {
        let Self { mine, all, root } = self;
        let all = if mine.is_none() { load_all(all.each()) } else { open_all(all.each()) };
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

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, all) = (own_in_place(self.mine.as_ref())?, self.all.in_place_at(self.root.is_me)?);
        Some(Call::new(table, peers, board::Gather { mine, pieces: all, root: self.root.rank }))
    }
}

#[inline(always)]
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
    let size = comm.others().len();
    let all = if root.is_me { Slots::even(recvbuf, recvcount, recvtype, size)? } else { Slots::none() };
    Ok(Gather { mine, all, root })
}
collective!(gather, igather, gather_init, plan_gather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int),
    in_place: direct::gather);

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
    Ok(Gather { mine, all: Slots::Each(all), root })
}
collective!(gatherv, igatherv, gatherv_init, plan_gatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle, root: c_int));

#[derive(Clone)]
struct Scatter {
    all: Slots,
    mine: Option<Slot>,
    root: Root,
}

impl Plan for Scatter {
    fn run(self, peers: Peers) -> impl Running {
        let Self { all, mine, root } = self;
        let all = load_all(all.each());
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

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, all) = (own_in_place(self.mine.as_ref())?, self.all.in_place_at(self.root.is_me)?);
        Some(Call::new(table, peers, board::Scatter { pieces: all, mine, root: self.root.rank }))
    }
}

#[inline(always)]
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
    let size = comm.others().len();
    let all = if root.is_me { Slots::even(sendbuf, sendcount, sendtype, size)? } else { Slots::none() };
    Ok(Scatter { all, mine, root })
}
collective!(scatter, iscatter, scatter_init, plan_scatter(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int),
    in_place: direct::scatter);

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
    Ok(Scatter { all: Slots::Each(all), mine, root })
}
collective!(scatterv, iscatterv, scatterv_init, plan_scatterv(
    sendbuf: *const c_void, sendcounts: Counts, displs: Counts, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

#[derive(Clone)]
struct Allgather {
    mine: Option<Slot>,
    all: Slots,
    rank: usize,
    is_inter: bool,
}

impl Plan for Allgather {
    fn run(self, peers: Peers) -> impl Running {
        let Self { mine, all, rank, is_inter } = self;
        let mine = mine.map(Slot::load);
        // A contribution may be shorter than its place. The rest of the place, the program's bytes, is sent too, so it
        // must be the same in all replicas: it is loaded.
        let fills = mine.as_ref().is_some_and(|mine| is_inter || mine.region.len() == all.bytes_of(rank));
        let all = if fills { open_all(all.each()) } else { load_all(all.each()) };
        async move {
            let mine = mine.as_ref().map(|mine| mine.region);
            match across(&peers).zip(mine) {
                None => pieces::allgather(peers, mine, regions(&all)).await?,
                Some((across, mine)) => inter::alltoall(&across, vec![mine], regions(&all)).await?,
            }
            all.iter().for_each(Packed::store);
            Ok(())
        }
    }

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, all) = (own_in_place(self.mine.as_ref())?, self.all.in_place()?);
        Some(Call::new(table, peers, board::Allgather { mine, pieces: all }))
    }
}

/// Gathers the pieces of all members; `sendbuf` is this member's contribution.
#[inline(always)]
fn collect(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    all: Slots,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let rank = comm.rank as usize;
    let mine = if in_place(comm, sendbuf)? { None } else { Some(Slot::new(sendbuf, sendcount, sendtype)?) };
    let is_inter = comm.remote.is_some();
    if !is_inter && mine.as_ref().is_some_and(|mine| mine.bytes() > all.bytes_of(rank)) {
        return Err(Error::new(MPI_ERR_ARG, "the contribution is longer than its place in the receive buffer"));
    }
    Ok(Allgather { mine, all, rank, is_inter })
}

#[inline(always)]
fn plan_allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    collect(sendbuf, sendcount, sendtype, Slots::even(recvbuf, recvcount, recvtype, comm.others().len())?, comm)
}
collective!(allgather, iallgather, allgather_init, plan_allgather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle),
    in_place: direct::allgather);

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
    collect(sendbuf, sendcount, sendtype, Slots::Each(all), comm)
}
collective!(allgatherv, iallgatherv, allgatherv_init, plan_allgatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle));

/// Exchanges pieces. Without `out`, the pieces of `into` are sent and replaced.
#[derive(Clone)]
struct Alltoall {
    out: Option<Slots>,
    into: Slots,
}

impl Plan for Alltoall {
    fn run(self, peers: Peers) -> impl Running {
        let Self { out, into } = self;
        let into = if out.is_some() { open_all(into.each()) } else { load_all(into.each()) };
        let out = out.map(|out| load_all(out.each()));
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

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (out, into) = (self.out.as_ref()?.in_place()?, self.into.in_place()?);
        Some(Call::new(table, peers, board::Alltoall { out, into }))
    }
}

#[inline(always)]
fn plan_alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let size = comm.others().len();
    let out = if in_place(comm, sendbuf)? { None } else { Some(Slots::even(sendbuf, sendcount, sendtype, size)?) };
    Ok(Alltoall { out, into: Slots::even(recvbuf, recvcount, recvtype, size)? })
}
collective!(alltoall, ialltoall, alltoall_init, plan_alltoall(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle),
    in_place: direct::alltoall);

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
        false => Some(Slots::Each(scattered(sendbuf, sendcounts, sdispls, sendtype, comm.others().len())?)),
    };
    Ok(Alltoall { out, into: Slots::Each(scattered(recvbuf, recvcounts, rdispls, recvtype, comm.others().len())?) })
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
        false => Some(Slots::Each(assorted(sendbuf, sendcounts, sdispls, sendtypes, comm.others().len())?)),
    };
    Ok(Alltoall { out, into: Slots::Each(assorted(recvbuf, recvcounts, rdispls, recvtypes, comm.others().len())?) })
}
collective!(alltoallw, ialltoallw, alltoallw_init, plan_alltoallw(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtypes: Input<DatatypeHandle>));
