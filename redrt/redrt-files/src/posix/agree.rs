//! Decisions on outcomes of operations on files.

use super::{is_agreed, locks, table, writes_alone};
use redrt_process::{lock, pause};
use redrt_runtime::call::{Call, Operation};
use redrt_runtime::decide;
use redrt_transport::descriptors;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::time::Duration;

/// Pause, after `MPI_Finalize`, between attempts at an operation that another process prevents.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Outcome of an operation: a number and bytes, or an error number.
pub type Found = Result<(i64, Vec<u8>), c_int>;

/// The process that made the observation before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Author(Option<u32>);

impl Author {
    /// Returns true if another process made the observation, which may have made the change too. A copy's source is
    /// another process. A process that goes on from a checkpoint is not: files are as they were at the checkpoint.
    pub fn is_another(self) -> bool {
        self.0 != Some(descriptors::copy_number())
    }
}

fn encode(found: &Found) -> Vec<u8> {
    match found {
        Ok((number, bytes)) => [&[0][..], &number.to_le_bytes(), bytes].concat(),
        Err(error) => [&[1][..], &i64::from(*error).to_le_bytes()].concat(),
    }
}

fn decode(answer: &[u8]) -> Found {
    let (Some(failed), Some(number), Some(bytes)) = (answer.first(), answer.get(1..9), answer.get(9..)) else {
        return Err(libc::EIO);
    };
    let number = number.try_into().map_or(0, i64::from_le_bytes);
    if *failed == 0 { Ok((number, bytes.to_vec())) } else { Err(number as c_int) }
}

per_thread! {
    /// Digest of the arguments of the program's call that is carried out now.
    static ARGUMENTS: Cell<u64> = Cell::new(0);
}

/// Begins a call of the calling thread. Its questions, until the next call, have the digest of this call's arguments,
/// which replicas compare.
pub fn begin(call: &Call) {
    // SAFETY: - zero-terminated: not null, and the contract of the program's call.
    let name = |path: *const c_char| (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    // Without O_CREAT the call has no mode: the value is undefined.
    let makes_file = call.flags & libc::O_CREAT != 0 || call.flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let makes = call.operation != Operation::Open || makes_file;
    let mode = if makes { call.mode } else { 0 };
    // The file, not the descriptor's number: a thread of the library, such as the cloner's agent, may have had the
    // lowest number in one replica when the program opened the file.
    let file = |fd: c_int| table::find(fd).map(|shared| lock(&shared).identity.inode());
    let files = [call.directory, call.other, call.fd].map(file);
    let numbers = (call.operation as u32, call.flags, mode, call.offset, call.length, call.count);
    ARGUMENTS.set(decide::digest((numbers, files, name(call.path), name(call.other_path))));
}

/// Makes an observation in the leader. `act` changes nothing. Returns the agreed finding, and the process that made it.
pub fn observe(act: impl Fn() -> Found) -> (Found, Author) {
    let here = Cell::new(None);
    let run = || {
        here.set(Some(descriptors::copy_number()));
        encode(&act())
    };
    let answer = match is_agreed() {
        true => decide::outside_once_possible(ARGUMENTS.get(), || locks::are_in_place().then(run)),
        false => run(),
    };
    (decode(&answer), Author(here.get()))
}

/// Makes a change that is visible to others, in the leader, once its siblings hold all earlier decisions. A successor
/// may make it again.
///
/// After `MPI_Finalize` the replica that writes alone makes the change. Other replicas only simulate it: `silently`
/// returns the outcome.
pub fn perform(silently: impl FnOnce() -> Found, act: impl Fn() -> Found) -> Found {
    perform_writing(0, silently, act)
}

/// Makes a change, as [`perform`] does, of bytes with the digest `data`.
pub fn perform_writing(data: u64, silently: impl FnOnce() -> Found, act: impl Fn() -> Found) -> Found {
    if is_agreed() || writes_alone() { perform_once_possible(data, || Some(act())) } else { silently() }
}

/// Makes a change that may not be possible yet: the leader repeats it until it is. `data` is a digest of the bytes to
/// which the call's arguments point.
pub fn perform_once_possible(data: u64, act: impl Fn() -> Option<Found>) -> Found {
    if is_agreed() {
        let run = || if locks::are_in_place() { act().map(|found| encode(&found)) } else { None };
        return decode(&decide::effect_once_possible(ARGUMENTS.get(), data, run));
    }
    loop {
        match act() {
            Some(found) => return found,
            None => pause::sleep(RETRY_INTERVAL),
        }
    }
}

/// The outcome of a system call that returns -1 and sets `errno`.
pub fn outcome(result: i64) -> Found {
    if result < 0 { Err(errno()) } else { Ok((result, Vec::new())) }
}

/// The calling thread's `errno`; `EIO` in place of 0.
pub fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().filter(|error| *error != 0).unwrap_or(libc::EIO)
}
