//! Control variables (MPI-5.0 §15.3.6): the job's settings for communication. All are fixed when the job is started.

use super::category::Category;
use super::enumeration::{self, Enumeration};
use super::{check_initialized, entry, index_of, put_text, set, value_at};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::*;
use redrt_engine::send::EAGER_BYTES_MAX;
use redrt_runtime as runtime;
use redrt_types::World;
use redrt_wire::control::{Determinism, Files, OnSdc, Options, Threads, Transport};
use std::ffi::{c_char, c_int, c_void};

/// A control variable of the tool interface (MPI-5.0 §15.3.6).
pub(super) struct Control {
    name: &'static str,
    pub(super) category: Category,
    description: &'static str,
    value: Value,
}

/// The type of a variable, and the function that reads it.
enum Value {
    /// `MPI_UNSIGNED_LONG_LONG`.
    Number(fn() -> u64),
    /// `MPI_INT`, one of the values of an enumeration.
    Named(&'static Enumeration, fn() -> c_int),
}

fn world<T>(read: impl FnOnce(&World) -> T) -> Option<T> {
    runtime::job().map(|job| read(&job.welcome.world))
}

/// Reads an option of the job; for a process without a job, its default.
fn option<T: Default>(read: impl FnOnce(&Options) -> T) -> T {
    runtime::job().map_or_else(T::default, |job| read(&job.welcome.options))
}

/// All control variables, by index.
pub(super) const CONTROLS: [Control; 9] = [
    Control {
        name: "redrt_eager_bytes_max",
        category: Category::Transport,
        description: "longest message that goes with its envelope, in a replicated job",
        value: Value::Number(|| EAGER_BYTES_MAX as u64),
    },
    Control {
        name: "redrt_replicas",
        category: Category::Replication,
        description: "how many processes play the rank of this one",
        value: Value::Number(|| {
            runtime::job().map_or(1, |job| u64::from(job.welcome.world.degree(job.welcome.me.rank)))
        }),
    },
    Control {
        name: "redrt_processes",
        category: Category::Replication,
        description: "how many processes the job has, replicas included",
        value: Value::Number(|| world(|world| u64::from(world.process_count())).unwrap_or(1)),
    },
    Control {
        name: "redrt_transport",
        category: Category::Transport,
        description: "what processes talk through",
        value: Value::Named(&enumeration::TRANSPORT, || match option(|options| options.transport) {
            Transport::Auto => 0,
            Transport::Shm => 1,
            Transport::Tcp => 2,
        }),
    },
    Control {
        name: "redrt_determinism",
        category: Category::Replication,
        description: "which outcomes that depend on timing one replica decides",
        value: Value::Named(&enumeration::DETERMINISM, || match option(|options| options.determinism) {
            Determinism::Full => 0,
            Determinism::Sends => 1,
        }),
    },
    Control {
        name: "redrt_files",
        category: Category::Replication,
        description: "which replicas write the program's files",
        value: Value::Named(&enumeration::FILES, || match option(|options| options.files) {
            Files::Once => 0,
            Files::All => 1,
            Files::Leader => 2,
        }),
    },
    Control {
        name: "redrt_threads",
        category: Category::Replication,
        description: "in which order threads take locks",
        value: Value::Named(&enumeration::THREADS, || match option(|options| options.threads) {
            Threads::Order => 0,
            Threads::None => 1,
        }),
    },
    Control {
        name: "redrt_on_sdc",
        category: Category::Verification,
        description: "what is done about replicas that differ",
        value: Value::Named(&enumeration::ON_SDC, || match option(|options| options.on_sdc) {
            OnSdc::Heal => 0,
            OnSdc::Correct => 1,
            OnSdc::Report => 2,
            OnSdc::Abort => 3,
            OnSdc::Return => 4,
        }),
    },
    Control {
        name: "redrt_check_collectives",
        category: Category::Verification,
        description: "whether members of a communicator compare what collectives they call",
        value: Value::Named(&enumeration::SWITCH, || option(|options| options.checks_collectives).into()),
    },
];

/// Handles are indices plus this number, so that none is null.
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
    index_of(CONTROLS.iter().map(|control| control.name), name, cvar_index)
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
    set(verbosity, MPI_T_VERBOSITY_USER_BASIC);
    let (kind, names) = match control.value {
        Value::Number(_) => (DatatypeHandle::UNSIGNED_LONG_LONG, MPI_T_ENUM_NULL),
        Value::Named(names, _) => (DatatypeHandle::INT, names.handle()),
    };
    set(datatype, kind);
    set(enumtype, names);
    set(bind, MPI_T_BIND_NO_OBJECT);
    set(scope, MPI_T_SCOPE_CONSTANT);
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
    match resolve(handle)?.value {
        Value::Number(read) => value_at::<u64>(buf).set(read()),
        Value::Named(_, read) => value_at::<c_int>(buf).set(read()),
    }
}

/// `MPI_T_cvar_write`: an error, as settings of the job stay.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_cvar_write(handle: ToolHandle, _buf: *const c_void) -> Result {
    let control = resolve(handle)?;
    Err(Error::new(MPI_T_ERR_CVAR_SET_NEVER, format!("{} is set when the job is started", control.name)))
}
