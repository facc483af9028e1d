//! Questions about files: all replicas get the answer of the leader's kernel.

use super::agree::{Found, errno, observe};
use super::{Done, Outcome, path_of, paths, table};
use redrt_process::lock;
use redrt_runtime::call::{Call, Operation};
use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::os::fd::RawFd;

/// `fstat`.
pub fn of_descriptor(call: &Call) -> Outcome {
    let question = Call { directory: call.fd, flags: libc::AT_EMPTY_PATH, ..Call::new(Operation::Status) };
    about_descriptor(&Call { buffer: call.buffer, ..question })
}

fn about_descriptor(call: &Call) -> Outcome {
    let Some(shared) = table::find(call.directory) else { return Ok(Done::Left) };
    if lock(&shared).is_of_system {
        return Ok(Done::Left);
    }
    let description = RefCell::new(lock(&shared));
    let ask = || ask(call, description.borrow_mut().file(&shared, call.directory)?, c"");
    answered(call, observe(ask).0)
}

/// `stat`, `lstat`, `fstatat`, `statx`, `access`, `readlink`.
pub fn of_path(call: &Call) -> Outcome {
    if call.path.is_null() {
        return Ok(Done::Left);
    }
    // SAFETY: - zero-terminated: not null, and the contract of the program's call.
    let is_empty = unsafe { CStr::from_ptr(call.path) }.is_empty();
    let is_status = matches!(call.operation, Operation::Status | Operation::ExtendedStatus);
    if is_empty && is_status && call.flags & libc::AT_EMPTY_PATH != 0 {
        return about_descriptor(call);
    }
    let Some(path) = path_of(call.directory, call.path).filter(|path| paths::is_shared(path)) else {
        return Ok(Done::Left);
    };
    let name = paths::as_c(&path);
    answered(call, observe(|| ask(call, libc::AT_FDCWD, &name)).0)
}

/// Maximum length of the answer in bytes.
fn room(call: &Call) -> usize {
    match call.operation {
        Operation::Status => size_of::<libc::stat>(),
        Operation::ExtendedStatus => size_of::<libc::statx>(),
        Operation::ReadLink => call.length.clamp(0, libc::PATH_MAX.into()) as usize,
        _ => 0,
    }
}

fn ask(call: &Call, directory: RawFd, path: &CStr) -> Found {
    let mut bytes = vec![0_u8; room(call)];
    let into = bytes.as_mut_ptr();
    // SAFETY: - zero-terminated: path is a CStr.
    //         - into is valid for writes of `room` bytes: one status, or the length that is passed.
    //         - no alignment is needed: the kernel copies bytes, and no reference to a structure is made.
    let result = unsafe {
        match call.operation {
            Operation::Status => i64::from(libc::fstatat(directory, path.as_ptr(), into.cast(), call.flags)),
            Operation::ExtendedStatus => {
                i64::from(libc::statx(directory, path.as_ptr(), call.flags, call.mode, into.cast()))
            }
            Operation::ReadLink => libc::readlinkat(directory, path.as_ptr(), into.cast(), bytes.len()) as i64,
            _ => i64::from(libc::faccessat(directory, path.as_ptr(), call.mode.cast_signed() as c_int, call.flags)),
        }
    };
    if result < 0 { Err(errno()) } else { Ok((result, bytes)) }
}

fn answered(call: &Call, found: Found) -> Outcome {
    let (result, bytes) = found?;
    let count = match call.operation {
        Operation::ReadLink => result as usize,
        _ => room(call),
    };
    let bytes = bytes.get(..count).ok_or(libc::EIO)?;
    // SAFETY: - buffer is valid for writes of the answer, by the contract of the program's call; count is no more.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), call.buffer.cast::<u8>(), bytes.len()) };
    Ok(Done::Answered(result))
}
