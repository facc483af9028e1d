//! Jobs that connect (MPI-5.0 §11.8 to §11.10): ports, names, and the communicators made from them. The protocol is in
//! `redrt_dynamic`.

mod join;
mod spawn;

pub use join::comm_join;
pub use spawn::{comm_spawn, comm_spawn_multiple};

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, InfoHandle};
use redrt_abi::{
    Input, MPI_ERR_INFO_VALUE, MPI_ERR_NAME, MPI_ERR_SERVICE, MPI_ERR_UNSUPPORTED_OPERATION, MPI_MAX_PORT_NAME, Output,
};
use redrt_comm::comm;
use redrt_comm::comm::connection;
use redrt_comm::objects::info;
use redrt_dynamic::port::{self, Awaited, Terms};
use redrt_dynamic::{self as dynamic, redrun};
use redrt_runtime as runtime;
use redrt_wire::dynamic::{NameAnswer, NameRequest};
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

/// Refuses a replicated world, whose replicas would have to agree on the other job's answers.
fn check_plain() -> Result {
    if runtime::job().is_some_and(|job| job.welcome.world.is_replicated()) {
        return Err(Error::unsupported(
            MPI_ERR_UNSUPPORTED_OPERATION,
            "starting or connecting to other processes is possible with redrun -r 1 without --spares and --pool only",
        ));
    }
    Ok(())
}

/// `MPI_Open_port`.
pub fn open_port(info: InfoHandle, port_name: Output<c_char>) -> Result {
    check_plain()?;
    info::resolve_hints(info)?;
    let address = dynamic::own_contact()?.address;
    let name = port::open(address.expect("the own contact has one"))?;
    port_name.set_text(&name, MPI_MAX_PORT_NAME as usize).map(drop)
}

/// `MPI_Close_port`.
pub fn close_port(port_name: Input<c_char>) -> Result {
    check_plain()?;
    port::close(&port_name.text()?)
}

/// Connects at a port. `begin` is called at the root only, where the arguments are significant (§11.9.2).
fn meet(
    root: c_int,
    comm: CommHandle,
    begin: impl FnOnce(Terms) -> Result<Awaited<Result<Terms>>>,
) -> Result<CommHandle> {
    check_plain()?;
    let comm = comm::resolve(comm)?;
    comm.member(root)?;
    Ok(dynamic::meet_at_port(&comm, root as usize, begin)?.handle())
}

/// `MPI_Comm_accept`.
pub fn comm_accept(
    port_name: Input<c_char>,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    newcomm: Output<CommHandle>,
) -> Result {
    newcomm.set(meet(root, comm, |own| {
        info::resolve_hints(info)?;
        port::accept(&port_name.text()?, own)
    })?)
}

/// `MPI_Comm_connect`.
pub fn comm_connect(
    port_name: Input<c_char>,
    info: InfoHandle,
    root: c_int,
    comm: CommHandle,
    newcomm: Output<CommHandle>,
) -> Result {
    newcomm.set(meet(root, comm, |own| {
        let hints = info::resolve_hints(info)?;
        let patience = patience(hints.and_then(|hints| hints.get("timeout")).as_deref())?;
        port::connect(&port_name.text()?, own, patience)
    })?)
}

/// Time for which a connection waits to be accepted, by the info key `timeout`.
fn patience(seconds: Option<&str>) -> Result<Duration> {
    let Some(seconds) = seconds else { return Ok(port::PATIENCE) };
    match seconds.parse() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => fail!(MPI_ERR_INFO_VALUE, "'{seconds}' is not a timeout in seconds"),
    }
}

/// `MPI_Comm_get_parent`: `MPI_COMM_NULL` in a process that was not spawned, or that has disconnected from its parent
/// (§11.8.2).
pub fn comm_get_parent(parent: Output<CommHandle>) -> Result {
    let is_there = |made: &&Arc<comm::Comm>| comm::resolve(made.handle()).is_ok_and(|found| Arc::ptr_eq(&found, made));
    parent.set(dynamic::parent().filter(is_there).map_or(CommHandle::NULL, |parent| parent.handle()))
}

/// `MPI_Comm_disconnect` (§11.10.4): collective if the communicator has processes of other jobs. Within a job, pending
/// communication is completed even after the communicator is gone.
pub fn comm_disconnect(comm: Output<CommHandle>) -> Result {
    let handle = comm.get()?;
    let found = comm::resolve(handle)?;
    found.attached.attributes.delete_all(handle.0)?;
    if found.is_mixed {
        connection::disconnect(&found);
    }
    comm::remove(handle)?;
    comm.set(CommHandle::NULL)
}

/// `MPI_Publish_name`. The first `redrun` of a tree of jobs keeps the names, for all jobs of the tree, until it ends.
pub fn publish_name(service_name: Input<c_char>, info: InfoHandle, port_name: Input<c_char>) -> Result {
    check_plain()?;
    info::resolve_hints(info)?;
    let (service, port) = (service_name.text()?, port_name.text()?);
    let request = NameRequest::Publish { service: service.clone(), port };
    match redrun::ask_name(request, MPI_ERR_SERVICE)? {
        NameAnswer::Taken => fail!(MPI_ERR_SERVICE, "'{service}' is published already"),
        _ => Ok(()),
    }
}

/// `MPI_Unpublish_name`.
pub fn unpublish_name(service_name: Input<c_char>, info: InfoHandle, _port_name: Input<c_char>) -> Result {
    check_plain()?;
    info::resolve_hints(info)?;
    let service = service_name.text()?;
    match redrun::ask_name(NameRequest::Unpublish { service: service.clone() }, MPI_ERR_SERVICE)? {
        NameAnswer::Unknown => fail!(MPI_ERR_SERVICE, "'{service}' is not published"),
        _ => Ok(()),
    }
}

/// `MPI_Lookup_name`.
pub fn lookup_name(service_name: Input<c_char>, info: InfoHandle, port_name: Output<c_char>) -> Result {
    check_plain()?;
    info::resolve_hints(info)?;
    let service = service_name.text()?;
    match redrun::ask_name(NameRequest::Lookup { service: service.clone() }, MPI_ERR_NAME)? {
        NameAnswer::Port(port) => port_name.set_text(&port, MPI_MAX_PORT_NAME as usize).map(drop),
        _ => fail!(MPI_ERR_NAME, "no port is published as '{service}'"),
    }
}
