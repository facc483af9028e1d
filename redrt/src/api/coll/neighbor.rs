//! Collectives on the neighbours of a virtual topology (MPI-5.0 §8.6).

use super::slots::{Slot, assorted, blocks, load_all, open_all, scattered};
use super::{Plan, collective, not_in_place};
use redrt_abi::error::Result;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{Counts, Input};
use redrt_comm::coll::{Peers, neighbor};
use redrt_comm::comm::Comm;
use redrt_comm::comm::topology::Neighbors;
use std::ffi::c_void;

/// Sends `out[k]` to destination k, or `out[0]` to all if it is the only one, and receives `into[k]` from source k. A
/// neighbour that is `MPI_PROC_NULL` gets no message, and its place stays unchanged.
fn exchange(out: Vec<Slot>, into: Vec<Slot>, neighbors: Neighbors) -> impl Plan + use<> {
    move |peers: Peers| {
        let (out, into) = (load_all(out), open_all(into));
        let piece = |at: usize| out.get(at).unwrap_or(&out[0]).region;
        let destinations = neighbors.destinations.iter().enumerate();
        let sends = destinations.filter_map(|(at, to)| Some(((*to)?, piece(at)))).collect();
        let sources = neighbors.receive_order.iter();
        let receives = sources.filter_map(|at| Some((neighbors.sources[*at]?, into[*at].region))).collect();
        let moving = neighbor::exchange(peers, sends, receives);
        async move {
            moving.await?;
            let arrived = into.iter().zip(&neighbors.sources).filter(|(_, source)| source.is_some());
            arrived.for_each(|(packed, _)| packed.store());
            // Outgoing data must live as long as the messages.
            drop(out);
            Ok(())
        }
    }
}

fn plan_neighbor_allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    not_in_place(sendbuf)?;
    let neighbors = comm.neighbors()?;
    let out = vec![Slot::new(sendbuf, sendcount, sendtype)?];
    let into = blocks(recvbuf, recvcount, recvtype, neighbors.sources.len())?;
    Ok(exchange(out, into, neighbors))
}
collective!(neighbor_allgather, ineighbor_allgather, neighbor_allgather_init, plan_neighbor_allgather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle));

fn plan_neighbor_allgatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    not_in_place(sendbuf)?;
    let neighbors = comm.neighbors()?;
    let out = vec![Slot::new(sendbuf, sendcount, sendtype)?];
    let into = scattered(recvbuf, recvcounts, displs, recvtype, neighbors.sources.len())?;
    Ok(exchange(out, into, neighbors))
}
collective!(neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init, plan_neighbor_allgatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle));

fn plan_neighbor_alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    not_in_place(sendbuf)?;
    let neighbors = comm.neighbors()?;
    let out = blocks(sendbuf, sendcount, sendtype, neighbors.destinations.len())?;
    let into = blocks(recvbuf, recvcount, recvtype, neighbors.sources.len())?;
    Ok(exchange(out, into, neighbors))
}
collective!(neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init, plan_neighbor_alltoall(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle));

fn plan_neighbor_alltoallv(
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
    not_in_place(sendbuf)?;
    let neighbors = comm.neighbors()?;
    let out = scattered(sendbuf, sendcounts, sdispls, sendtype, neighbors.destinations.len())?;
    let into = scattered(recvbuf, recvcounts, rdispls, recvtype, neighbors.sources.len())?;
    Ok(exchange(out, into, neighbors))
}
collective!(neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init, plan_neighbor_alltoallv(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtype: DatatypeHandle));

fn plan_neighbor_alltoallw(
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
    not_in_place(sendbuf)?;
    let neighbors = comm.neighbors()?;
    let out = assorted(sendbuf, sendcounts, sdispls, sendtypes, neighbors.destinations.len())?;
    let into = assorted(recvbuf, recvcounts, rdispls, recvtypes, neighbors.sources.len())?;
    Ok(exchange(out, into, neighbors))
}
collective!(neighbor_alltoallw, ineighbor_alltoallw, neighbor_alltoallw_init, plan_neighbor_alltoallw(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtypes: Input<DatatypeHandle>));
