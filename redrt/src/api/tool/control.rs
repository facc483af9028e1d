//! Control variables (MPI-5.0 §15.3.6): what decides how this process communicates. All are set when the job is started.

use super::{check_initialized, entry, put_text, tell, value_at};
use crate::abi::*;
use crate::engine::replication::EAGER_BYTES_MAX;
use crate::error::{Error, Result};
use crate::handle::DatatypeHandle;
use crate::runtime;
use redrt_types::World;
use std::ffi::{c_char, c_int, c_void};

struct Control {
    name: &'static str,
    description: &'static str,
    read: fn() -> u64,
}

fn world<T>(read: impl FnOnce(&World) -> T) -> Option<T> {
    runtime::job().map(|job| read(&job.welcome.world))
}

const CONTROLS: [Control; 3] = [
    Control {
        name: "redrt_eager_bytes_max",
        description: "longest message that goes with its envelope, in a replicated job",
        read: || EAGER_BYTES_MAX as u64,
    },
    Control {
        name: "redrt_replicas",
        description: "how many processes play the rank of this one",
        read: || runtime::job().map_or(1, |job| u64::from(job.welcome.world.degree(job.welcome.me.rank))),
    },
    Control {
        name: "redrt_processes",
        description: "how many processes the job has, replicas included",
        read: || world(|world| u64::from(world.process_count())).unwrap_or(1),
    },
];

/// Handles are indices, moved away from null.
const FIRST_HANDLE: usize = 0x2000;

fn resolve(handle: ToolHandle) -> Result<&'static Control> {
    check_initialized()?;
    let found = handle.0.checked_sub(FIRST_HANDLE).and_then(|index| CONTROLS.get(index));
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_HANDLE, "not a control variable"))
}

/// `MPI_T_cvar_get_num`.
pub fn t_cvar_get_num(num_cvar: Output<c_int>) -> Result {
    check_initialized()?;
    num_cvar.set(CONTROLS.len() as c_int)
}

/// `MPI_T_cvar_get_index`.
pub fn t_cvar_get_index(name: Input<c_char>, cvar_index: Output<c_int>) -> Result {
    check_initialized()?;
    let name = name.text()?;
    match CONTROLS.iter().position(|control| control.name == name) {
        Some(index) => cvar_index.set(index as c_int),
        None => Err(Error::new(MPI_T_ERR_INVALID_NAME, format!("'{name}' is not a control variable"))),
    }
}

/// `MPI_T_cvar_get_info`.
pub fn t_cvar_get_info(
    cvar_index: c_int,
    name: Output<c_char>,
    name_len: Output<c_int>,
    verbosity: Output<c_int>,
    datatype: Output<DatatypeHandle>,
    enumtype: Output<ToolHandle>,
    desc: Output<c_char>,
    desc_len: Output<c_int>,
    bind: Output<c_int>,
    scope: Output<c_int>,
) -> Result {
    let control = entry(&CONTROLS, cvar_index)?;
    put_text(control.name, name, name_len)?;
    put_text(control.description, desc, desc_len)?;
    tell(verbosity, MPI_T_VERBOSITY_USER_BASIC);
    tell(datatype, DatatypeHandle::UNSIGNED_LONG_LONG);
    tell(enumtype, MPI_T_ENUM_NULL);
    tell(bind, MPI_T_BIND_NO_OBJECT);
    tell(scope, MPI_T_SCOPE_CONSTANT);
    Ok(())
}

/// `MPI_T_cvar_handle_alloc`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_cvar_handle_alloc(
    cvar_index: c_int,
    _obj_handle: *mut c_void,
    handle: Output<ToolHandle>,
    count: Output<c_int>,
) -> Result {
    entry(&CONTROLS, cvar_index)?;
    count.set(1)?;
    handle.set(ToolHandle(FIRST_HANDLE + cvar_index as usize))
}

/// `MPI_T_cvar_handle_free`.
pub fn t_cvar_handle_free(handle: Output<ToolHandle>) -> Result {
    resolve(handle.get()?)?;
    handle.set(MPI_T_CVAR_HANDLE_NULL)
}

/// `MPI_T_cvar_read`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_cvar_read(handle: ToolHandle, buf: *mut c_void) -> Result {
    value_at(buf).set((resolve(handle)?.read)())
}

/// `MPI_T_cvar_write`: what the job was started with stays.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_cvar_write(handle: ToolHandle, _buf: *const c_void) -> Result {
    let control = resolve(handle)?;
    Err(Error::new(MPI_T_ERR_CVAR_SET_NEVER, format!("{} is set when the job is started", control.name)))
}
