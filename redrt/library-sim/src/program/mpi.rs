//! MPI calls of the simulated programs: the bodies of the exported functions, with words of 64 bits.

use super::leaving;
use redrt::exports::*;
use redrt_abi::handle::{CommHandle, DatatypeHandle, RequestHandle};
use redrt_abi::{MPI_SUCCESS, Status};
use std::ffi::{c_int, c_void};

/// Datatype of all messages.
pub const WORD: DatatypeHandle = DatatypeHandle::UINT64_T;

/// Fails the run unless a call has succeeded. Errors are fatal already, so this shows an error that was missed.
#[track_caller]
pub fn ok(code: c_int) {
    assert_eq!(code, MPI_SUCCESS, "an MPI call failed");
    leaving::after_call();
}

/// An MPI call. Its pointers are to memory that outlives the call, or its request.
macro_rules! mpi {
    ($($call:tt)*) => {
        // SAFETY: - the pointers are to memory that outlives the call, or the request that it makes.
        crate::program::mpi::ok(unsafe { $($call)* })
    };
}
pub(crate) use mpi;

/// Address of a send buffer.
pub fn from(words: &[u64]) -> *const c_void {
    words.as_ptr().cast()
}

/// Address of a receive buffer.
pub fn into(words: &mut [u64]) -> *mut c_void {
    words.as_mut_ptr().cast()
}

/// Length as an MPI count.
pub fn count(words: &[u64]) -> c_int {
    words.len() as c_int
}

/// `MPI_Send`.
pub fn send(comm: CommHandle, words: &[u64], to: usize, tag: c_int) {
    if leaving::is_left_out() {
        return;
    }
    mpi!(call_send(from(words), count(words), WORD, to as c_int, tag, comm));
}

/// `MPI_Ssend`.
pub fn ssend(comm: CommHandle, words: &[u64], to: usize, tag: c_int) {
    mpi!(call_ssend(from(words), count(words), WORD, to as c_int, tag, comm));
}

/// `MPI_Recv`. Returns the status.
pub fn receive(comm: CommHandle, words: &mut [u64], source: c_int, tag: c_int) -> Status {
    let mut status = Status::empty();
    mpi!(call_recv(into(words), count(words), WORD, source, tag, comm, &raw mut status));
    status
}

/// `MPI_Isend`.
pub fn isend(comm: CommHandle, words: &[u64], to: usize, tag: c_int) -> RequestHandle {
    let mut request = RequestHandle::NULL;
    if leaving::is_left_out() {
        return request;
    }
    mpi!(call_isend(from(words), count(words), WORD, to as c_int, tag, comm, &raw mut request));
    request
}

/// `MPI_Irecv`.
pub fn ireceive(comm: CommHandle, words: &mut [u64], source: c_int, tag: c_int) -> RequestHandle {
    let mut request = RequestHandle::NULL;
    mpi!(call_irecv(into(words), count(words), WORD, source, tag, comm, &raw mut request));
    request
}

/// `MPI_Wait`.
pub fn wait(request: &mut RequestHandle) -> Status {
    let mut status = Status::empty();
    mpi!(call_wait(request, &raw mut status));
    status
}

/// `MPI_Waitall`.
pub fn wait_all(requests: &mut [RequestHandle]) -> Vec<Status> {
    let mut statuses = vec![Status::empty(); requests.len()];
    mpi!(call_waitall(requests.len() as c_int, requests.as_mut_ptr(), statuses.as_mut_ptr()));
    statuses
}

/// `MPI_Waitany`. Returns the index of a complete request, and its status.
pub fn wait_any(requests: &mut [RequestHandle]) -> (usize, Status) {
    let (mut index, mut status) = (-1, Status::empty());
    mpi!(call_waitany(requests.len() as c_int, requests.as_mut_ptr(), &raw mut index, &raw mut status));
    (usize::try_from(index).expect("one of them is active"), status)
}

/// `MPI_Waitsome`. Returns the indices of complete requests, and their statuses.
pub fn wait_some(requests: &mut [RequestHandle]) -> Vec<(usize, Status)> {
    several(requests, call_waitsome)
}

/// `MPI_Testsome`. Returns the indices of complete requests, and their statuses.
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

/// `MPI_Test`. Returns the status of a complete request.
pub fn test(request: &mut RequestHandle) -> Option<Status> {
    let (mut flag, mut status) = (0, Status::empty());
    mpi!(call_test(request, &raw mut flag, &raw mut status));
    (flag != 0).then_some(status)
}

/// `MPI_Testany`. Returns the index of a complete request, and its status.
pub fn test_any(requests: &mut [RequestHandle]) -> Option<(usize, Status)> {
    let (mut index, mut flag, mut status) = (-1, 0, Status::empty());
    let (count, start) = (requests.len() as c_int, requests.as_mut_ptr());
    mpi!(call_testany(count, start, &raw mut index, &raw mut flag, &raw mut status));
    (flag != 0).then(|| (usize::try_from(index).expect("one of them is active"), status))
}

/// `MPI_Cancel` of a receive, and its completion. Returns true if it was cancelled.
pub fn cancel(request: &mut RequestHandle) -> bool {
    mpi!(call_cancel(request));
    wait(request).is_cancelled()
}

/// `MPI_Wtime`: seconds, as the bits of the floating-point number.
pub fn clock() -> u64 {
    if leaving::is_left_out() {
        return 0;
    }
    // SAFETY: - no duty: the function takes no arguments.
    unsafe { call_wtime() }.to_bits()
}
