//! Descriptions of collectives for the other members, under `redrun --check-collectives`: one function for each
//! collective. It gets the arguments of a call after its plan was made, so they are valid.

use super::{Root, is_in_place};
use redrt_abi::error::Result;
use redrt_abi::handle::{DatatypeHandle, OpHandle};
use redrt_abi::{Counts, Input, MPI_IN_PLACE, MPI_PROC_NULL, MPI_ROOT};
use redrt_comm::coll::inter::Role;
use redrt_comm::comm::Comm;
use redrt_comm::comm::check::call::{self, Call, Pieces};
use redrt_comm::datatype;
use redrt_comm::op;
use redrt_datatype::signature::Signature;
use std::ffi::{c_int, c_void};

/// An argument in words, for error reports.
pub(super) trait Shown {
    /// The argument's text; `None` for an argument that is not shown.
    fn shown(&self) -> Option<String>;
}

impl Shown for *const c_void {
    fn shown(&self) -> Option<String> {
        std::ptr::eq(*self, MPI_IN_PLACE).then(|| "MPI_IN_PLACE".to_owned())
    }
}

impl Shown for *mut c_void {
    fn shown(&self) -> Option<String> {
        self.cast_const().shown()
    }
}

impl Shown for i64 {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Shown for c_int {
    fn shown(&self) -> Option<String> {
        Some(match *self {
            MPI_ROOT => "MPI_ROOT".to_owned(),
            MPI_PROC_NULL => "MPI_PROC_NULL".to_owned(),
            rank => rank.to_string(),
        })
    }
}

impl Shown for DatatypeHandle {
    fn shown(&self) -> Option<String> {
        // Where it is not significant, the handle may be invalid: it is not shown.
        let datatype = datatype::resolve(*self).ok()?;
        let name = datatype.name();
        Some(if name.is_empty() { format!("a type of {} bytes", datatype.size()) } else { name })
    }
}

impl Shown for OpHandle {
    fn shown(&self) -> Option<String> {
        Some(op::resolve(*self).ok()?.name())
    }
}

/// Array lengths are unknown here, so arrays are not shown.
impl Shown for Counts {
    fn shown(&self) -> Option<String> {
        None
    }
}

impl Shown for Input<DatatypeHandle> {
    fn shown(&self) -> Option<String> {
        None
    }
}

/// Adds to a call the name of its MPI function, made from the Rust name, and its arguments in words.
pub(super) fn named(call: Call, function: &str, shown: &[(&str, Option<String>)]) -> Call {
    let (first, rest) = function.split_at(1);
    let arguments = shown.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    Call { function: format!("MPI_{}{rest}", first.to_uppercase()), arguments, ..call }
}

fn signature(count: i64, datatype: DatatypeHandle) -> Result<Signature> {
    Ok(datatype::resolve_committed(datatype)?.signature(count))
}

fn each(counts: Counts, datatype: DatatypeHandle, size: usize) -> Result<Pieces> {
    let datatype = datatype::resolve_committed(datatype)?;
    let piece = |rank: usize| (rank as u32, datatype.signature(counts.get(rank)));
    Ok(Pieces::Each((0..size).map(piece).collect()))
}

fn assorted(counts: Counts, types: Input<DatatypeHandle>, size: usize) -> Result<Pieces> {
    let types = types.slice(size)?;
    let piece = |rank: usize| Ok((rank as u32, signature(counts.get(rank), types[rank])?));
    Ok(Pieces::Each((0..size).map(piece).collect::<Result<_>>()?))
}

fn said(root: Root) -> call::Root {
    match root.role {
        None => call::Root::Rank(root.rank as u32),
        Some(Role::Member(rank)) => call::Root::Rank(rank as u32),
        Some(Role::Root) => call::Root::Here,
        Some(Role::Idle) => call::Root::Beside,
    }
}

/// The piece of `pieces` for one rank, as a list of its own: the contribution of a member that sends in place.
fn only(pieces: &Pieces, rank: u32) -> Pieces {
    let found = match pieces {
        Pieces::Nothing => None,
        Pieces::All(signature) => Some(*signature),
        Pieces::Each(list) => list.iter().find(|(of, _)| *of == rank).map(|(_, signature)| *signature),
    };
    Pieces::Each(found.map(|signature| (rank, signature)).into_iter().collect())
}

pub(super) fn barrier(_comm: &Comm) -> Result<Call> {
    Ok(Call::default())
}

pub(super) fn bcast(
    _buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<Call> {
    let root = Root::new(comm, root)?;
    let alike = if root.is_me || root.is_member { Some(signature(count, datatype)?) } else { None };
    Ok(Call { root: Some(said(root)), alike, ..Call::default() })
}

/// Pieces given by a member and taken by the root: `mine` is the member's buffer, `all` returns the root's pieces.
fn rooted(
    root: Root,
    mine: (*const c_void, i64, DatatypeHandle),
    all: impl FnOnce() -> Result<Pieces>,
) -> Result<(Pieces, Pieces)> {
    let all = if root.is_me { all()? } else { Pieces::Nothing };
    let (buffer, count, datatype) = mine;
    let mine = match root.is_member {
        false => Pieces::Nothing,
        true if is_in_place(buffer) => only(&all, root.rank as u32),
        true => Pieces::Each(vec![(root.rank as u32, signature(count, datatype)?)]),
    };
    Ok((mine, all))
}

pub(super) fn gather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<Call> {
    let root = Root::new(comm, root)?;
    let all = || Ok(Pieces::All(signature(recvcount, recvtype)?));
    let (gives, takes) = rooted(root, (sendbuf, sendcount, sendtype), all)?;
    Ok(Call { root: Some(said(root)), gives, takes, ..Call::default() })
}

pub(super) fn gatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _displs: Counts,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<Call> {
    let root = Root::new(comm, root)?;
    let all = || each(recvcounts, recvtype, comm.others().len());
    let (gives, takes) = rooted(root, (sendbuf, sendcount, sendtype), all)?;
    Ok(Call { root: Some(said(root)), gives, takes, ..Call::default() })
}

pub(super) fn scatter(
    _sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<Call> {
    let root = Root::new(comm, root)?;
    let all = || Ok(Pieces::All(signature(sendcount, sendtype)?));
    let (takes, gives) = rooted(root, (recvbuf, recvcount, recvtype), all)?;
    Ok(Call { root: Some(said(root)), gives, takes, ..Call::default() })
}

pub(super) fn scatterv(
    _sendbuf: *const c_void,
    sendcounts: Counts,
    _displs: Counts,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
) -> Result<Call> {
    let root = Root::new(comm, root)?;
    let all = || each(sendcounts, sendtype, comm.others().len());
    let (takes, gives) = rooted(root, (recvbuf, recvcount, recvtype), all)?;
    Ok(Call { root: Some(said(root)), gives, takes, ..Call::default() })
}

/// Gives the same piece to every member; in place, the member's own piece of `takes`.
fn collected(sendbuf: *const c_void, count: i64, datatype: DatatypeHandle, takes: Pieces, comm: &Comm) -> Result<Call> {
    let gives = match is_in_place(sendbuf) {
        false => Pieces::All(signature(count, datatype)?),
        true => match (&takes, only(&takes, comm.rank)) {
            (Pieces::Each(_), Pieces::Each(own)) => own.first().map_or(Pieces::Nothing, |(_, own)| Pieces::All(*own)),
            _ => takes.clone(),
        },
    };
    Ok(Call { gives, takes, ..Call::default() })
}

pub(super) fn allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<Call> {
    collected(sendbuf, sendcount, sendtype, Pieces::All(signature(recvcount, recvtype)?), comm)
}

pub(super) fn allgatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _displs: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<Call> {
    collected(sendbuf, sendcount, sendtype, each(recvcounts, recvtype, comm.others().len())?, comm)
}

/// In place, a member sends pieces like those that it receives.
fn swapped(sendbuf: *const c_void, gives: impl FnOnce() -> Result<Pieces>, takes: Pieces) -> Result<Call> {
    let gives = if is_in_place(sendbuf) { takes.clone() } else { gives()? };
    Ok(Call { gives, takes, ..Call::default() })
}

pub(super) fn alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    _comm: &Comm,
) -> Result<Call> {
    let gives = || Ok(Pieces::All(signature(sendcount, sendtype)?));
    swapped(sendbuf, gives, Pieces::All(signature(recvcount, recvtype)?))
}

pub(super) fn alltoallv(
    sendbuf: *const c_void,
    sendcounts: Counts,
    _sdispls: Counts,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _rdispls: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<Call> {
    let size = comm.others().len();
    swapped(sendbuf, || each(sendcounts, sendtype, size), each(recvcounts, recvtype, size)?)
}

pub(super) fn alltoallw(
    sendbuf: *const c_void,
    sendcounts: Counts,
    _sdispls: Counts,
    sendtypes: Input<DatatypeHandle>,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _rdispls: Counts,
    recvtypes: Input<DatatypeHandle>,
    comm: &Comm,
) -> Result<Call> {
    let size = comm.others().len();
    swapped(sendbuf, || assorted(sendcounts, sendtypes, size), assorted(recvcounts, recvtypes, size)?)
}

fn reduced(count: i64, datatype: DatatypeHandle, op: OpHandle) -> Result<Call> {
    let reduction = Some(op::resolve(op)?.code());
    Ok(Call { reduction, alike: Some(signature(count, datatype)?), ..Call::default() })
}

pub(super) fn reduce(
    _sendbuf: *const c_void,
    _recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    comm: &Comm,
) -> Result<Call> {
    let root = Root::new(comm, root)?;
    let call = if root.is_me || root.is_member { reduced(count, datatype, op)? } else { Call::default() };
    Ok(Call { root: Some(said(root)), ..call })
}

pub(super) fn allreduce(
    _sendbuf: *const c_void,
    _recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    _comm: &Comm,
) -> Result<Call> {
    reduced(count, datatype, op)
}

pub(super) use allreduce as scan;
pub(super) use allreduce as exscan;

pub(super) fn reduce_scatter(
    _sendbuf: *const c_void,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<Call> {
    let shares = recvcounts.to_vec(comm.size())?;
    Ok(Call { shares: Some(shares.clone()), ..reduced(shares.iter().sum(), datatype, op)? })
}

pub(super) fn reduce_scatter_block(
    _sendbuf: *const c_void,
    _recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<Call> {
    reduced(recvcount * comm.size() as i64, datatype, op)
}

/// Messages along the edges of a topology. `out` and `into` return the signature for the k-th neighbour; `into` is
/// called in the order in which messages are matched.
fn along(
    comm: &Comm,
    out: impl Fn(usize) -> Result<Signature>,
    into: impl Fn(usize) -> Result<Signature>,
) -> Result<Call> {
    let neighbors = comm.neighbors()?;
    let mut gives = Vec::new();
    for (at, to) in neighbors.destinations.iter().enumerate() {
        if let Some(to) = to {
            gives.push((*to as u32, out(at)?));
        }
    }
    let mut takes = Vec::new();
    for at in &neighbors.receive_order {
        if let Some(from) = neighbors.sources[*at] {
            takes.push((from as u32, into(*at)?));
        }
    }
    Ok(Call { gives: Pieces::Each(gives), takes: Pieces::Each(takes), ..Call::default() })
}

pub(super) fn neighbor_allgather(
    _sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<Call> {
    along(comm, |_| signature(sendcount, sendtype), |_| signature(recvcount, recvtype))
}

pub(super) fn neighbor_allgatherv(
    _sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _displs: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<Call> {
    along(comm, |_| signature(sendcount, sendtype), |at| signature(recvcounts.get(at), recvtype))
}

pub(super) use neighbor_allgather as neighbor_alltoall;

pub(super) fn neighbor_alltoallv(
    _sendbuf: *const c_void,
    sendcounts: Counts,
    _sdispls: Counts,
    sendtype: DatatypeHandle,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _rdispls: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
) -> Result<Call> {
    along(comm, |at| signature(sendcounts.get(at), sendtype), |at| signature(recvcounts.get(at), recvtype))
}

pub(super) fn neighbor_alltoallw(
    _sendbuf: *const c_void,
    sendcounts: Counts,
    _sdispls: Counts,
    sendtypes: Input<DatatypeHandle>,
    _recvbuf: *mut c_void,
    recvcounts: Counts,
    _rdispls: Counts,
    recvtypes: Input<DatatypeHandle>,
    comm: &Comm,
) -> Result<Call> {
    let neighbors = comm.neighbors()?;
    let out = sendtypes.slice(neighbors.destinations.len())?;
    let into = recvtypes.slice(neighbors.sources.len())?;
    along(comm, |at| signature(sendcounts.get(at), out[at]), |at| signature(recvcounts.get(at), into[at]))
}
