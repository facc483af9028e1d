//! Sessions and their process sets (MPI-5.0 §11.3).

use super::init::{begin_session, end_sessions};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{ErrhandlerHandle, GroupHandle, InfoHandle, SessionHandle};
use redrt_abi::{
    Input, MPI_ERR_ARG, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE, Output,
};
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::errhandler::{self, ErrhandlerKind};
use redrt_comm::objects::group::{self, Group};
use redrt_comm::objects::host;
use redrt_comm::objects::info::{self, Info};
use redrt_comm::objects::session::{self, Session};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

/// The predefined process sets (§11.3.2).
const PROCESS_SETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];

const THREAD_LEVELS: [(&str, c_int); 4] = [
    ("MPI_THREAD_SINGLE", MPI_THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", MPI_THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", MPI_THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", MPI_THREAD_MULTIPLE),
];

/// `MPI_Session_init`.
pub fn session_init(info: InfoHandle, errhandler: ErrhandlerHandle, session: Output<SessionHandle>) -> Result {
    let hints = info::resolve_hints(info)?.map_or_else(Info::default, |info| info.duplicate());
    let attached = Attached::with_errhandler(errhandler::resolve(errhandler, ErrhandlerKind::Session)?);
    let wanted = hints.get("thread_level");
    let wanted = THREAD_LEVELS.iter().find(|(name, _)| Some(*name) == wanted.as_deref());
    let level = begin_session(wanted.map(|(_, level)| *level))?;
    if let Some((name, _)) = THREAD_LEVELS.iter().find(|(_, known)| *known == level) {
        hints.set("thread_level", name)?;
    }
    let new = Session { attached: Arc::new(attached), info: hints, buffer: Mutex::default() };
    session.set(session::register(new))
}

/// `MPI_Session_finalize`.
pub fn session_finalize(session: Output<SessionHandle>) -> Result {
    session::remove(session.get()?)?;
    if session::count() == 0 {
        end_sessions();
    }
    session.set(SessionHandle::NULL)
}

/// `MPI_Session_get_info`.
pub fn session_get_info(session: SessionHandle, info_used: Output<InfoHandle>) -> Result {
    info_used.set(info::register(session::resolve(session)?.info.duplicate()))
}

/// `MPI_Session_get_num_psets`.
pub fn session_get_num_psets(session: SessionHandle, info: InfoHandle, npset_names: Output<c_int>) -> Result {
    session::resolve(session)?;
    info::resolve_hints(info)?;
    npset_names.set(PROCESS_SETS.len() as c_int)
}

/// `MPI_Session_get_nth_pset`: with a length of 0 it only returns the required length, the NUL included.
pub fn session_get_nth_pset(
    session: SessionHandle,
    info: InfoHandle,
    n: c_int,
    pset_len: Output<c_int>,
    pset_name: Output<c_char>,
) -> Result {
    session::resolve(session)?;
    info::resolve_hints(info)?;
    let Some(name) = usize::try_from(n).ok().and_then(|n| PROCESS_SETS.get(n)) else {
        fail!(MPI_ERR_ARG, "there is no process set {n}, only {}", PROCESS_SETS.len());
    };
    let Ok(capacity) = usize::try_from(pset_len.get()?) else { fail!(MPI_ERR_ARG, "the length is negative") };
    if capacity > 0 {
        pset_name.set_text(name, capacity)?;
    }
    pset_len.set(name.len() as c_int + 1)
}

/// The processes of a set. Names are compared without regard to case (§11.3.2).
fn processes(name: Input<c_char>) -> Result<Group> {
    let name = name.text()?;
    let host = host::get();
    match PROCESS_SETS.iter().position(|known| known.eq_ignore_ascii_case(&name)) {
        Some(0) => Ok(Group::range(0, host.world_size())),
        Some(_) => Ok(Group::range(host.rank(), 1)),
        None => Err(Error::new(MPI_ERR_ARG, format!("'{name}' is not a process set"))),
    }
}

/// `MPI_Session_get_pset_info`.
pub fn session_get_pset_info(session: SessionHandle, pset_name: Input<c_char>, info: Output<InfoHandle>) -> Result {
    session::resolve(session)?;
    let facts = Info::default();
    facts.set("mpi_size", &processes(pset_name)?.size().to_string())?;
    info.set(info::register(facts))
}

/// `MPI_Group_from_session_pset`.
pub fn group_from_session_pset(
    session: SessionHandle,
    pset_name: Input<c_char>,
    newgroup: Output<GroupHandle>,
) -> Result {
    session::resolve(session)?;
    newgroup.set(group::register(Arc::new(processes(pset_name)?.of_session(session))))
}
