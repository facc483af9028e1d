//! Performance variables (MPI-5.0 §15.3.7): counts of this process's messages and comparisons, and sizes of its
//! buffers.
//!
//! All count from the beginning of the job: they are continuous and read-only. Counts of the replicas of a rank may
//! differ, so all of them are shown the leader's.

use super::category::Category;
use super::{check_initialized, entry, put_text, set, value_at};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{DatatypeHandle, HandleTable};
use redrt_abi::*;
use redrt_engine::{self as engine, Engine};
use redrt_runtime::decide;
use redrt_wire::event::Statistics;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// A performance variable of the tool interface (MPI-5.0 §15.3.7).
pub(super) struct Performance {
    name: &'static str,
    pub(super) category: Category,
    class: c_int,
    description: &'static str,
    read: fn(&mut Engine) -> u64,
}

fn statistics(engine: &Engine) -> Statistics {
    engine.statistics()
}

/// All performance variables, by index.
pub(super) const PERFORMANCES: [Performance; 8] = [
    Performance {
        name: "redrt_link_bytes_sent",
        category: Category::Transport,
        class: MPI_T_PVAR_CLASS_COUNTER,
        description: "bytes of frames that this process has sent to others",
        read: |engine| engine.links.traffic().0,
    },
    Performance {
        name: "redrt_link_bytes_received",
        category: Category::Transport,
        class: MPI_T_PVAR_CLASS_COUNTER,
        description: "bytes of frames that this process has received from others",
        read: |engine| engine.links.traffic().1,
    },
    Performance {
        name: "redrt_messages_sent",
        category: Category::Replication,
        class: MPI_T_PVAR_CLASS_COUNTER,
        description: "messages sent to other ranks, in a replicated job",
        read: |engine| statistics(engine).messages_sent,
    },
    Performance {
        name: "redrt_messages_compared",
        category: Category::Verification,
        class: MPI_T_PVAR_CLASS_COUNTER,
        description: "messages compared with those of other replicas of their sender",
        read: |engine| statistics(engine).messages_compared,
    },
    Performance {
        name: "redrt_messages_resent",
        category: Category::Replication,
        class: MPI_T_PVAR_CLASS_COUNTER,
        description: "messages sent again after the loss of a replica",
        read: |engine| statistics(engine).messages_resent,
    },
    Performance {
        name: "redrt_decisions",
        category: Category::Replication,
        class: MPI_T_PVAR_CLASS_COUNTER,
        description: "outcomes that this process has decided for the replicas of its rank",
        read: |engine| statistics(engine).decisions,
    },
    Performance {
        name: "redrt_retention_bytes",
        category: Category::Replication,
        class: MPI_T_PVAR_CLASS_LEVEL,
        description: "bytes of sent messages that are kept until all replicas have them",
        read: |engine| statistics(engine).retention_bytes,
    },
    Performance {
        name: "redrt_retention_bytes_max",
        category: Category::Replication,
        class: MPI_T_PVAR_CLASS_HIGHWATERMARK,
        description: "most bytes of sent messages that were kept at once",
        read: |engine| statistics(engine).retention_bytes_max,
    },
];

/// A session of the tool interface. Its only state is its handles.
struct Session;

/// A variable in a session.
struct Bound {
    session: ToolHandle,
    performance: &'static Performance,
}

process_local! {
    static SESSIONS: HandleTable<Session> = HandleTable::new();
    static HANDLES: HandleTable<Bound> = HandleTable::new();
}

fn check_session(session: ToolHandle) -> Result {
    check_initialized()?;
    let found = SESSIONS.get(session.0).map(drop);
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_SESSION, "not a session"))
}

fn resolve(session: ToolHandle, handle: ToolHandle) -> Result<Arc<Bound>> {
    check_session(session)?;
    let found = HANDLES.get(handle.0).filter(|bound| bound.session == session);
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_HANDLE, "not a performance variable of this session"))
}

/// `MPI_T_pvar_get_num`.
pub fn t_pvar_get_num(num_pvar: Output<c_int>) -> Result {
    check_initialized()?;
    num_pvar.set(PERFORMANCES.len() as c_int)
}

/// `MPI_T_pvar_get_index`.
pub fn t_pvar_get_index(name: Input<c_char>, var_class: c_int, pvar_index: Output<c_int>) -> Result {
    check_initialized()?;
    let name = name.text()?;
    match PERFORMANCES.iter().position(|known| known.name == name && known.class == var_class) {
        Some(index) => pvar_index.set(index as c_int),
        None => {
            Err(Error::new(MPI_T_ERR_INVALID_NAME, format!("'{name}' is not a performance variable of this class")))
        }
    }
}

/// `MPI_T_pvar_get_info`.
pub fn t_pvar_get_info(
    pvar_index: c_int,
    name: Output<c_char>,
    name_len: Output<c_int>,
    verbosity: Output<c_int>,
    var_class: Output<c_int>,
    datatype: Output<DatatypeHandle>,
    enumtype: Output<ToolHandle>,
    desc: Output<c_char>,
    desc_len: Output<c_int>,
    bind: Output<c_int>,
    readonly: Output<c_int>,
    continuous: Output<c_int>,
    atomic: Output<c_int>,
) -> Result {
    let known = entry(&PERFORMANCES, pvar_index)?;
    put_text(known.name, name, name_len)?;
    put_text(known.description, desc, desc_len)?;
    set(verbosity, MPI_T_VERBOSITY_USER_BASIC);
    set(var_class, known.class);
    set(datatype, DatatypeHandle::UNSIGNED_LONG_LONG);
    set(enumtype, MPI_T_ENUM_NULL);
    set(bind, MPI_T_BIND_NO_OBJECT);
    set(readonly, 1);
    set(continuous, 1);
    set(atomic, 0);
    Ok(())
}

/// `MPI_T_pvar_session_create`.
pub fn t_pvar_session_create(pe_session: Output<ToolHandle>) -> Result {
    check_initialized()?;
    pe_session.set(ToolHandle(SESSIONS.insert(Arc::new(Session))))
}

/// `MPI_T_pvar_session_free`: also frees the session's handles.
pub fn t_pvar_session_free(pe_session: Output<ToolHandle>) -> Result {
    let session = pe_session.get()?;
    check_session(session)?;
    SESSIONS.remove(session.0);
    for (handle, bound) in HANDLES.snapshot() {
        if bound.session == session {
            HANDLES.remove(handle);
        }
    }
    pe_session.set(MPI_T_PVAR_SESSION_NULL)
}

/// `MPI_T_pvar_handle_alloc`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_pvar_handle_alloc(
    pe_session: ToolHandle,
    pvar_index: c_int,
    _obj_handle: *mut c_void,
    handle: Output<ToolHandle>,
    count: Output<c_int>,
) -> Result {
    let performance = entry(&PERFORMANCES, pvar_index)?;
    check_session(pe_session)?;
    count.set(1)?;
    handle.set(ToolHandle(HANDLES.insert(Arc::new(Bound { session: pe_session, performance }))))
}

/// `MPI_T_pvar_handle_free`.
pub fn t_pvar_handle_free(pe_session: ToolHandle, handle: Output<ToolHandle>) -> Result {
    let bound = handle.get()?;
    resolve(pe_session, bound)?;
    HANDLES.remove(bound.0);
    handle.set(MPI_T_PVAR_HANDLE_NULL)
}

/// All variables are continuous, so a single one cannot be started or stopped. For all handles at once that is no
/// error.
fn start_or_stop(session: ToolHandle, handle: ToolHandle) -> Result {
    if handle == MPI_T_PVAR_ALL_HANDLES {
        return check_session(session);
    }
    resolve(session, handle)?;
    Err(Error::new(MPI_T_ERR_PVAR_NO_STARTSTOP, "the variable is continuous"))
}

/// `MPI_T_pvar_start`.
pub fn t_pvar_start(pe_session: ToolHandle, handle: ToolHandle) -> Result {
    start_or_stop(pe_session, handle)
}

/// `MPI_T_pvar_stop`.
pub fn t_pvar_stop(pe_session: ToolHandle, handle: ToolHandle) -> Result {
    start_or_stop(pe_session, handle)
}

fn read(bound: &Bound) -> u64 {
    // Without an engine, nothing has been counted yet.
    if engine::get().is_none() { 0 } else { decide::value(bound.performance.read) }
}

/// `MPI_T_pvar_read`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_pvar_read(pe_session: ToolHandle, handle: ToolHandle, buf: *mut c_void) -> Result {
    value_at::<u64>(buf).set(read(&*resolve(pe_session, handle)?))
}

fn no_write<T>() -> Result<T> {
    Err(Error::new(MPI_T_ERR_PVAR_NO_WRITE, "the variable can only be read"))
}

/// `MPI_T_pvar_readreset`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_pvar_readreset(pe_session: ToolHandle, handle: ToolHandle, _buf: *mut c_void) -> Result {
    resolve(pe_session, handle)?;
    no_write()
}

/// `MPI_T_pvar_write`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_pvar_write(pe_session: ToolHandle, handle: ToolHandle, _buf: *const c_void) -> Result {
    resolve(pe_session, handle)?;
    no_write()
}

/// `MPI_T_pvar_reset`.
pub fn t_pvar_reset(pe_session: ToolHandle, handle: ToolHandle) -> Result {
    if handle == MPI_T_PVAR_ALL_HANDLES {
        return check_session(pe_session);
    }
    resolve(pe_session, handle)?;
    no_write()
}
