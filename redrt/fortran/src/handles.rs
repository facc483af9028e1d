//! Handles, which are integers in Fortran, and the few integers that count otherwise.
//!
//! The value of a handle fits an `INTEGER`, so it is its own Fortran handle (`MPI_Comm_c2f` says the same).

use crate::sentinels::is_in_place;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn PMPI_Comm_test_inter(comm: usize, flag: *mut c_int) -> c_int;
    fn PMPI_Comm_size(comm: usize, size: *mut c_int) -> c_int;
    fn PMPI_Comm_remote_size(comm: usize, size: *mut c_int) -> c_int;
    fn PMPI_Topo_test(comm: usize, status: *mut c_int) -> c_int;
    fn PMPI_Comm_rank(comm: usize, rank: *mut c_int) -> c_int;
    fn PMPI_Cartdim_get(comm: usize, ndims: *mut c_int) -> c_int;
    fn PMPI_Graph_neighbors_count(comm: usize, rank: c_int, count: *mut c_int) -> c_int;
    fn PMPI_Dist_graph_neighbors_count(
        comm: usize,
        sources: *mut c_int,
        out: *mut c_int,
        weighted: *mut c_int,
    ) -> c_int;
}

/// `MPI_UNDEFINED`.
pub const UNDEFINED: c_int = -32766;
/// What no C function hands out: the argument stays as it is.
pub const UNSET: usize = usize::MAX;
const ERR_IN_STATUS: c_int = 19;

/// The handle of this value.
#[must_use]
pub fn handle(value: c_int) -> usize {
    value as isize as usize
}

/// An array of handles; none if the length is negative, which the C function refuses.
///
/// # Safety
/// There are `length` integers at `values`.
pub unsafe fn handles(values: *const c_int, length: impl TryInto<usize>) -> Vec<usize> {
    let length = length.try_into().unwrap_or(0);
    // SAFETY: - index is below length, and the caller promises so many.
    (0..length).map(|index| handle(unsafe { *values.add(index) })).collect()
}

/// Room for an array of handles that comes out.
pub fn unset_handles(length: impl TryInto<usize>) -> Vec<usize> {
    vec![UNSET; length.try_into().unwrap_or(0)]
}

/// Hands out a handle, if one came out.
///
/// # Safety
/// The argument of a call, by reference.
pub unsafe fn give_handle(argument: *mut c_int, value: usize) {
    if value != UNSET {
        // SAFETY: - valid for one write: the caller's promise.
        unsafe { *argument = value as c_int };
    }
}

/// Hands out the handles of an array that came out.
///
/// # Safety
/// There are as many integers at `arguments`.
pub unsafe fn give_handles(arguments: *mut c_int, values: &[usize]) {
    for (index, value) in values.iter().enumerate() {
        // SAFETY: - within the array: the caller's promise.
        unsafe { give_handle(arguments.add(index), *value) };
    }
}

/// Hands out the error code, unless the program leaves it away.
///
/// # Safety
/// The argument of a call by reference, or null.
pub unsafe fn give_error(argument: *mut c_int, code: c_int) {
    if !argument.is_null() {
        // SAFETY: - valid for one write: the caller's promise.
        unsafe { *argument = code };
    }
}

/// Whether a call that ended with this code has set its counts.
#[must_use]
pub fn is_set(code: c_int) -> bool {
    code == 0 || code == ERR_IN_STATUS
}

/// Indices count from 0 in C and from 1 in Fortran.
///
/// # Safety
/// There are `length` integers at `indices`.
pub unsafe fn count_from_one(indices: *mut c_int, length: c_int) {
    for index in 0..usize::try_from(length).unwrap_or(0) {
        // SAFETY: - within the array: the caller's promise.
        let index = unsafe { &mut *indices.add(index) };
        if *index != UNDEFINED {
            *index += 1;
        }
    }
}

/// How many ranks a collective call exchanges with. 0 for what is no communicator; the call itself says so.
#[must_use]
pub fn peers(comm: usize) -> usize {
    let (mut is_inter, mut size) = (0, 0);
    // SAFETY: - the pointer is to a local.
    if unsafe { PMPI_Comm_test_inter(comm, &mut is_inter) } == 0 {
        let size_of = if is_inter == 0 { PMPI_Comm_size } else { PMPI_Comm_remote_size };
        // SAFETY: - the pointer is to a local.
        unsafe { size_of(comm, &mut size) };
    }
    usize::try_from(size).unwrap_or(0)
}

/// From how many neighbours a neighbourhood collective receives.
#[must_use]
pub fn sources(comm: usize) -> usize {
    neighbors(comm).0
}

/// To how many neighbours it sends.
#[must_use]
pub fn destinations(comm: usize) -> usize {
    neighbors(comm).1
}

fn neighbors(comm: usize) -> (usize, usize) {
    const GRAPH: c_int = 212;
    const DIST_GRAPH: c_int = 213;
    let (mut topology, mut sources, mut destinations) = (UNDEFINED, 0, 0);
    // SAFETY: - all pointers, here and below, are to locals.
    unsafe { PMPI_Topo_test(comm, &mut topology) };
    match topology {
        UNDEFINED => {}
        DIST_GRAPH => {
            let mut weighted = 0;
            // SAFETY: - as above.
            unsafe { PMPI_Dist_graph_neighbors_count(comm, &mut sources, &mut destinations, &mut weighted) };
        }
        GRAPH => {
            let mut rank = 0;
            // SAFETY: - as above.
            unsafe { PMPI_Comm_rank(comm, &mut rank) };
            // SAFETY: - as above.
            unsafe { PMPI_Graph_neighbors_count(comm, rank, &mut sources) };
            destinations = sources;
        }
        _ => {
            // SAFETY: - as above.
            unsafe { PMPI_Cartdim_get(comm, &mut sources) };
            // Two in each dimension.
            sources *= 2;
            destinations = sources;
        }
    }
    (usize::try_from(sources).unwrap_or(0), usize::try_from(destinations).unwrap_or(0))
}

/// 0 if the buffer is `MPI_IN_PLACE`, beside which the array is not looked at.
#[must_use]
pub fn unless_in_place(buffer: *mut c_void, length: usize) -> usize {
    if is_in_place(buffer) { 0 } else { length }
}
