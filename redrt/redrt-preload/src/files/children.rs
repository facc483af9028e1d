//! Children of a rank, which change files as well: forked ones, and other programs that it has started.
//!
//! ```text
//!   rank   ── records ──▶ log of changes              its place is in a file that REDRT_UNDO names
//!   child  ── its first change of a file ──▶ here ──▶ loads the MPI library beside this one, which only looks:
//!                                                     it reads that file, and records what the child changes
//! ```
//! A child has this library and the variable from its parent. It has no MPI library, unless it was forked; then that is
//! its parent's. Most children change no file, and load nothing. As long as the rank records nothing, the file does not
//! exist, and children are left alone.

use super::call::{Call, Operation};
use super::streams;
use crate::{real, state};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Names the file with the place of the log.
const VARIABLE: &CStr = c"REDRT_UNDO";
/// The MPI library is in the same directory.
const LIBRARY: &[u8] = b"libmpi_abi.so.1\0";
const PATH_BYTES_MAX: usize = 4096;

/// Null where changes are never recorded.
static PLACE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
/// This process. A child that still shares its parent's memory (`vfork`) has another number.
static OWN: AtomicI32 = AtomicI32::new(0);
/// The process that has loaded the library, or failed to.
static LOADED_BY: AtomicI32 = AtomicI32::new(0);

/// Begins this process: at its first instruction, or after a fork.
pub fn begin() {
    OWN.store(real::process_id(), Ordering::Relaxed);
    if PLACE.load(Ordering::Relaxed).is_null()
        && let Some(place) = state::variable(VARIABLE)
    {
        PLACE.store(place.as_ptr().cast_mut(), Ordering::Relaxed);
        // Writes of streams must be seen too, also of streams that were open before any load.
        streams::watch();
    }
}

/// Loads the library before the first change of a file. True when it answers now.
pub fn has_loaded(call: &Call) -> bool {
    let place = PLACE.load(Ordering::Relaxed);
    if place.is_null() || state::is_inside() || !may_change(call) {
        return false;
    }
    let own = OWN.load(Ordering::Relaxed);
    if real::process_id() != own || LOADED_BY.load(Ordering::Relaxed) == own {
        return false;
    }
    let before = real::errno();
    let loaded = state::in_hook(|| {
        // SAFETY: a string of the environment, which the kernel has set up for good.
        let is_recorded = is_file(call) && unsafe { libc::access(place, libc::R_OK) } == 0;
        if is_recorded {
            LOADED_BY.store(own, Ordering::Relaxed);
        }
        is_recorded && load(place)
    });
    real::set_errno(before);
    loaded
}

/// True when a call changes files, as far as its arguments tell.
fn may_change(call: &Call) -> bool {
    const OPENS: c_int = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY | libc::O_RDWR;
    match call.operation {
        Operation::Open => call.flags & OPENS != 0,
        Operation::Write
        | Operation::Fill
        | Operation::Truncate
        | Operation::TruncateDescriptor
        | Operation::Allocate
        | Operation::Unlink
        | Operation::Rename
        | Operation::Link
        | Operation::SymbolicLink
        | Operation::MakeDirectory
        | Operation::ChangeMode
        | Operation::ChangeOwner
        | Operation::SetTimes
        | Operation::SetAttribute
        | Operation::RemoveAttribute => true,
        _ => false,
    }
}

/// True unless the call is about a terminal, a pipe or a device.
fn is_file(call: &Call) -> bool {
    if !call.path.is_null() {
        // SAFETY: a string, by contract of the interposed function.
        return !unsafe { CStr::from_ptr(call.path) }.to_bytes().starts_with(b"/dev/");
    }
    // SAFETY: all zeros are a status.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: valid for writing.
    let is_open = unsafe { libc::fstat(call.fd, &raw mut status) } == 0;
    is_open && matches!(status.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR)
}

/// Loads the library and lets it answer.
fn load(place: *const c_char) -> bool {
    // SAFETY: all zeros are one.
    let mut own: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address of a function of this library; valid for writing.
    if unsafe { libc::dladdr(load as *const c_void, &raw mut own) } == 0 || own.dli_fname.is_null() {
        return false;
    }
    // SAFETY: not null, so a string of the loader's.
    let name = unsafe { CStr::from_ptr(own.dli_fname) }.to_bytes();
    let directory = &name[..name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)];
    let mut path = [0_u8; PATH_BYTES_MAX];
    let length = directory.len() + LIBRARY.len();
    if length > path.len() {
        return false;
    }
    path[..directory.len()].copy_from_slice(directory);
    path[directory.len()..length].copy_from_slice(LIBRARY);
    // SAFETY: a zero-terminated string.
    let library = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return false;
    }
    // SAFETY: a library that was just opened, and a string.
    let record = unsafe { libc::dlsym(library, c"redrt_record_child".as_ptr()) };
    if record.is_null() {
        return false;
    }
    // SAFETY: the library has a function of this type under this name.
    let record = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> bool>(record) };
    // SAFETY: a string.
    unsafe { record(place) }
}
