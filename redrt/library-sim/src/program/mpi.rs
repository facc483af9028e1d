//! MPI as the simulated programs call it: through the bodies of the exported functions, with words of 64 bits.

use super::leaving;
use redrt::exports::*;
use redrt_abi::handle::{CommHandle, DatatypeHandle, RequestHandle};
use redrt_abi::{MPI_SUCCESS, Status};
use std::ffi::{c_int, c_void};

/// All data are of this type.
pub const WORD: DatatypeHandle = DatatypeHandle::UINT64_T;

/// Ends the process unless a call has succeeded. Errors are fatal, so this only says where one was overlooked.
#[track_caller]
pub fn ok(code: c_int) {
    assert_eq!(code, MPI_SUCCESS, "an MPI call failed");
    leaving::after_call();
}

/// An MPI call whose pointers are to what outlives it, or its request.
macro_rules! mpi {
    ($($call:tt)*) => {
        // SAFETY: - the pointers are to memory that outlives the call, or the request that it makes.
        crate::program::mpi::ok(unsafe { $($call)* })
    };
}
pub(crate) use mpi;

/// Address of what is sent.
pub fn from(words: &[u64]) -> *const c_void {
    words.as_ptr().cast()
}

/// Address of what is received.
pub fn into(words: &mut [u64]) -> *mut c_void {
    words.as_mut_ptr().cast()
}

/// Length as MPI counts it.
pub fn count(words: &[u64]) -> c_int {
    words.len() as c_int
}

/// Sends.
pub fn send(comm: CommHandle, words: &[u64], to: usize, tag: c_int) {
    if leaving::is_left_out() {
        return;
    }
    mpi!(call_send(from(words), count(words), WORD, to as c_int, tag, comm));
}

/// Sends, complete when the receive has begun.
pub fn ssend(comm: CommHandle, words: &[u64], to: usize, tag: c_int) {
    mpi!(call_ssend(from(words), count(words), WORD, to as c_int, tag, comm));
}

/// Receives; what the status says.
pub fn receive(comm: CommHandle, words: &mut [u64], source: c_int, tag: c_int) -> Status {
    let mut status = Status::empty();
    mpi!(call_recv(into(words), count(words), WORD, source, tag, comm, &raw mut status));
    status
}

/// Begins to send.
pub fn isend(comm: CommHandle, words: &[u64], to: usize, tag: c_int) -> RequestHandle {
    let mut request = RequestHandle::NULL;
    if leaving::is_left_out() {
        return request;
    }
    mpi!(call_isend(from(words), count(words), WORD, to as c_int, tag, comm, &raw mut request));
    request
}

/// Begins to receive.
pub fn ireceive(comm: CommHandle, words: &mut [u64], source: c_int, tag: c_int) -> RequestHandle {
    let mut request = RequestHandle::NULL;
    mpi!(call_irecv(into(words), count(words), WORD, source, tag, comm, &raw mut request));
    request
}

/// Waits for one.
pub fn wait(request: &mut RequestHandle) -> Status {
    let mut status = Status::empty();
    mpi!(call_wait(request, &raw mut status));
    status
}

/// Waits for all.
pub fn wait_all(requests: &mut [RequestHandle]) -> Vec<Status> {
    let mut statuses = vec![Status::empty(); requests.len()];
    mpi!(call_waitall(requests.len() as c_int, requests.as_mut_ptr(), statuses.as_mut_ptr()));
    statuses
}

/// Waits for any; its index.
pub fn wait_any(requests: &mut [RequestHandle]) -> (usize, Status) {
    let (mut index, mut status) = (-1, Status::empty());
    mpi!(call_waitany(requests.len() as c_int, requests.as_mut_ptr(), &raw mut index, &raw mut status));
    (usize::try_from(index).expect("one of them is active"), status)
}

/// Waits for some; their indices.
pub fn wait_some(requests: &mut [RequestHandle]) -> Vec<(usize, Status)> {
    several(requests, call_waitsome)
}

/// Those that are complete, if any; their indices.
pub fn test_some(requests: &mut [RequestHandle]) -> Vec<(usize, Status)> {
    several(requests, call_testsome)
}

type Several = unsafe extern "C-unwind" fn(c_int, *mut RequestHandle, *mut c_int, *mut c_int, *mut Status) -> c_int;

fn several(requests: &mut [RequestHandle], call: Several) -> Vec<(usize, Status)> {
    let (mut count, length) = (0, requests.len());
    let (mut indices, mut statuses) = (vec![0; length], vec![Status::empty(); length]);
    let (indices_start, statuses_start) = (indices.as_mut_ptr(), statuses.as_mut_ptr());
    mpi!(call(length as c_int, requests.as_mut_ptr(), &raw mut count, indices_start, statuses_start));
    let count = usize::try_from(count).expect("one of them is active");
    indices.into_iter().map(|index| index as usize).zip(statuses).take(count).collect()
}

/// Whether one is complete.
pub fn test(request: &mut RequestHandle) -> Option<Status> {
    let (mut flag, mut status) = (0, Status::empty());
    mpi!(call_test(request, &raw mut flag, &raw mut status));
    (flag != 0).then_some(status)
}

/// Whether any is complete; its index.
pub fn test_any(requests: &mut [RequestHandle]) -> Option<(usize, Status)> {
    let (mut index, mut flag, mut status) = (-1, 0, Status::empty());
    let (count, start) = (requests.len() as c_int, requests.as_mut_ptr());
    mpi!(call_testany(count, start, &raw mut index, &raw mut flag, &raw mut status));
    (flag != 0).then(|| (usize::try_from(index).expect("one of them is active"), status))
}

/// Cancels what is not complete; whether it was.
pub fn cancel(request: &mut RequestHandle) -> bool {
    mpi!(call_cancel(request));
    wait(request).is_cancelled()
}

/// What the clock shows, in seconds, as bits.
pub fn clock() -> u64 {
    if leaving::is_left_out() {
        return 0;
    }
    // SAFETY: - has no arguments.
    unsafe { call_wtime() }.to_bits()
}
