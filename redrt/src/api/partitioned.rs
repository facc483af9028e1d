//! Partitioned communication (MPI-5.0 chapter 4): persistent operations whose buffer is made ready part by part.
//!
//! Sender and receiver may divide the buffer differently, and neither knows the other's partition. So a round is one
//! message, which is sent when the last part is ready. `MPI_Parrived` is true for a part once all parts have arrived,
//! which the standard permits. Operations of the same two ranks and tag match in the order in which they were made
//! (§4.2.2), so each has a context of its own.

use super::p2p::persistent::{self, Lent};
use crate::api::{buffers, p2p};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, DatatypeHandle, InfoHandle, RequestHandle};
use redrt_abi::{Input, MPI_ERR_ARG, MPI_ERR_REQUEST, MPI_ERR_TAG, MPI_PROC_NULL, Output};
use redrt_comm::comm::{self, Comm};
use redrt_comm::datatype::{self, KeptDatatype};
use redrt_comm::objects::info;
use redrt_engine::request::{Operation, RequestId, Status};
use redrt_engine::send::{SendArguments, Sent};
use redrt_engine::tasks;
use redrt_engine::{self as engine, Locked};
use redrt_process::lock;
use redrt_runtime::locks;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

/// A partitioned operation of either side.
struct Partitioned {
    comm: Arc<Comm>,
    context: u64,
    buffer: Lent,
    /// Number of elements of all parts.
    count: i64,
    datatype: KeptDatatype,
    peer: c_int,
    tag: c_int,
    parts: usize,
    /// Parts that a sender has made ready; `None` at a receiver.
    readiness: Option<Mutex<Readiness>>,
}

#[derive(Default)]
struct Readiness {
    ready: Vec<bool>,
    ready_count: usize,
    round: Option<RequestId>,
}

process_local! {
    static PARTITIONED: Mutex<BTreeMap<usize, Arc<Partitioned>>> = Mutex::new(BTreeMap::new());
}

fn find(request: RequestHandle) -> Result<Arc<Partitioned>> {
    let found = lock(&PARTITIONED).get(&request.0).cloned();
    found.ok_or_else(|| Error::new(MPI_ERR_REQUEST, "not a request of a partitioned operation"))
}

/// Drops the operation of a request that the program has freed.
pub(super) fn forget(request: RequestHandle) {
    lock(&PARTITIONED).remove(&request.0);
}

struct PartitionedArguments {
    buffer: *mut c_void,
    partitions: c_int,
    count: i64,
    datatype: DatatypeHandle,
    peer: c_int,
    tag: c_int,
    comm: CommHandle,
    info: InfoHandle,
}

fn make(arguments: &PartitionedArguments, sends: bool) -> Result<Arc<Partitioned>> {
    let PartitionedArguments { buffer, partitions, count, datatype, peer, tag, comm, info } = *arguments;
    let comm = comm::resolve(comm)?.shared();
    info::resolve_hints(info)?;
    buffers::typed_at(buffer, count, datatype)?;
    let Some(parts) = usize::try_from(partitions).ok().filter(|parts| *parts > 0) else {
        fail!(MPI_ERR_ARG, "{partitions} partitions");
    };
    if tag < 0 {
        fail!(MPI_ERR_TAG, "tag {tag} is negative: a partitioned operation has no wildcards");
    }
    if peer != MPI_PROC_NULL {
        comm.member(peer)?;
    }
    let Some(count) = count.checked_mul(parts as i64) else { fail!(MPI_ERR_ARG, "{parts} times {count} elements") };
    let context = comm.next_partitioned_context(sends, peer, tag);
    let readiness = sends.then(Mutex::default);
    let (buffer, datatype) = (Lent::new(buffer), datatype::keep(datatype)?);
    Ok(Arc::new(Partitioned { comm, context, buffer, count, datatype, peer, tag, parts, readiness }))
}

fn enter(
    made: &Arc<Partitioned>,
    request: Output<RequestHandle>,
    start: impl Fn(&Partitioned) -> Result<RequestId> + Send + Sync + 'static,
) -> Result {
    let own = made.clone();
    persistent::create(&made.comm, request, move || start(&own).map(Some))?;
    lock(&PARTITIONED).insert(request.get()?.0, made.clone());
    Ok(())
}

/// A new round, which the caller completes.
fn new_round() -> RequestId {
    engine::cell().lock().requests.insert(Operation::Other)
}

/// `MPI_Psend_init`.
///
/// # Safety
/// The pointers are those of the C call, and the buffer stays valid until the request is freed.
pub unsafe fn psend_init(
    buf: *const c_void,
    partitions: c_int,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    tag: c_int,
    comm: CommHandle,
    info: InfoHandle,
    request: Output<RequestHandle>,
) -> Result {
    let buffer = buf.cast_mut();
    let made = make(&PartitionedArguments { buffer, partitions, count, datatype, peer: dest, tag, comm, info }, true)?;
    enter(&made, request, |own| {
        let round = new_round();
        if let Some(readiness) = &own.readiness {
            *lock(readiness) = Readiness { ready: vec![false; own.parts], ready_count: 0, round: Some(round) };
        }
        Ok(round)
    })
}

/// `MPI_Precv_init`.
///
/// # Safety
/// The pointers are those of the C call, and the buffer stays valid until the request is freed.
pub unsafe fn precv_init(
    buf: *mut c_void,
    partitions: c_int,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    info: InfoHandle,
    request: Output<RequestHandle>,
) -> Result {
    let made =
        make(&PartitionedArguments { buffer: buf, partitions, count, datatype, peer: source, tag, comm, info }, false)?;
    enter(&made, request, |own| {
        if own.peer == MPI_PROC_NULL {
            let round = new_round();
            engine::cell().lock().requests.complete(round, p2p::PROC_NULL_STATUS);
            return Ok(round);
        }
        let target = buffers::incoming(own.buffer.get(), own.count, own.datatype.handle())?;
        Ok(locks::engine_in_turn(own.context).post(own.context, Some(own.peer as u32), Some(own.tag), target))
    })
}

impl Partitioned {
    /// Marks part `number` as ready. The last part sends the message.
    fn make_ready(&self, number: c_int) -> Result {
        let Some(readiness) = &self.readiness else {
            fail!(MPI_ERR_REQUEST, "the request is for receiving");
        };
        // The thread that makes the last part ready sends.
        let engine = locks::engine_in_turn(self.context);
        let round = {
            let mut readiness = lock(readiness);
            let Some(round) = readiness.round else { fail!(MPI_ERR_REQUEST, "the request has not been started") };
            let part = usize::try_from(number).ok().and_then(|number| readiness.ready.get_mut(number));
            match part {
                None => fail!(MPI_ERR_ARG, "partition {number} of {}", self.parts),
                Some(true) => fail!(MPI_ERR_ARG, "partition {number} is ready already"),
                Some(part) => *part = true,
            }
            readiness.ready_count += 1;
            if readiness.ready_count < self.parts {
                return Ok(());
            }
            readiness.round = None;
            round
        };
        self.send(engine, round)
    }

    fn send(&self, mut engine: Locked<'_>, round: RequestId) -> Result {
        if self.peer == MPI_PROC_NULL {
            engine.requests.complete(round, Status::EMPTY);
            return Ok(());
        }
        // SAFETY: - valid until the round is complete: the contract of psend_init.
        let (payload, element) = unsafe { buffers::outgoing(self.buffer.get(), self.count, self.datatype.handle())? };
        let to = self.comm.member(self.peer)?;
        if to != self.comm.members[self.comm.rank as usize] {
            redrt_runtime::faults::before_send_of_holder(&payload, &mut engine.links);
        }
        let arguments = SendArguments {
            context: self.context,
            source: self.comm.rank,
            to,
            tag: self.tag,
            payload,
            element,
            synchronous: false,
        };
        match engine.send(arguments) {
            Sent::Complete => engine.requests.complete(round, Status::EMPTY),
            pending => {
                let sending = engine.send_request(pending);
                drop(engine);
                tasks::follow(sending, round);
            }
        }
        Ok(())
    }
}

/// `MPI_Pready`.
pub fn pready(partition: c_int, request: RequestHandle) -> Result {
    find(request)?.make_ready(partition)
}

/// `MPI_Pready_range`, both ends included.
pub fn pready_range(partition_low: c_int, partition_high: c_int, request: RequestHandle) -> Result {
    let found = find(request)?;
    (partition_low..=partition_high).try_for_each(|partition| found.make_ready(partition))
}

/// `MPI_Pready_list`.
pub fn pready_list(length: c_int, partitions: Input<c_int>, request: RequestHandle) -> Result {
    let found = find(request)?;
    partitions.slice(length)?.iter().try_for_each(|partition| found.make_ready(*partition))
}

/// `MPI_Parrived`. True also when the request is inactive.
pub fn parrived(request: RequestHandle, partition: c_int, flag: Output<c_int>) -> Result {
    let found = find(request)?;
    if found.readiness.is_some() {
        fail!(MPI_ERR_REQUEST, "the request is for sending");
    }
    if usize::try_from(partition).map_or(true, |partition| partition >= found.parts) {
        fail!(MPI_ERR_ARG, "partition {partition} of {}", found.parts);
    }
    let id = p2p::resolve(&engine::cell().lock(), request)?;
    flag.set(c_int::from(redrt_runtime::decide::all(&[id])))
}
