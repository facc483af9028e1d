//! Number of members with which a collective exchanges arrays, from the standard's functions: this library serves every
//! MPI library of the standard ABI.

use crate::standard::{Comm, Own};
use fortran_binding::Binding;
use std::ffi::c_int;

unsafe extern "C" {
    fn PMPI_Comm_test_inter(comm: Comm, flag: *mut c_int) -> c_int;
    fn PMPI_Comm_size(comm: Comm, size: *mut c_int) -> c_int;
    fn PMPI_Comm_remote_size(comm: Comm, size: *mut c_int) -> c_int;
    fn PMPI_Topo_test(comm: Comm, status: *mut c_int) -> c_int;
    fn PMPI_Comm_rank(comm: Comm, rank: *mut c_int) -> c_int;
    fn PMPI_Cartdim_get(comm: Comm, ndims: *mut c_int) -> c_int;
    fn PMPI_Graph_neighbors_count(comm: Comm, rank: c_int, count: *mut c_int) -> c_int;
    fn PMPI_Dist_graph_neighbors_count(comm: Comm, sources: *mut c_int, out: *mut c_int, weighted: *mut c_int)
    -> c_int;
}

/// Number of ranks that a collective exchanges arrays with. 0 for an invalid communicator, which the call itself
/// reports.
#[must_use]
pub fn peers(comm: Comm) -> usize {
    let (mut is_inter, mut size) = (0, 0);
    // SAFETY: - the pointer is to a local.
    if unsafe { PMPI_Comm_test_inter(comm, &mut is_inter) } == 0 {
        let size_of = if is_inter == 0 { PMPI_Comm_size } else { PMPI_Comm_remote_size };
        // SAFETY: - the pointer is to a local.
        unsafe { size_of(comm, &mut size) };
    }
    usize::try_from(size).unwrap_or(0)
}

/// Number of neighbours from which a neighbourhood collective receives.
#[must_use]
pub fn sources(comm: Comm) -> usize {
    neighbors(comm).0
}

/// Number of neighbours to which it sends.
#[must_use]
pub fn destinations(comm: Comm) -> usize {
    neighbors(comm).1
}

fn neighbors(comm: Comm) -> (usize, usize) {
    const GRAPH: c_int = 212;
    const DIST_GRAPH: c_int = 213;
    let (mut topology, mut sources, mut destinations) = (Own::UNDEFINED, 0, 0);
    // SAFETY: - all pointers, here and below, are to locals.
    unsafe { PMPI_Topo_test(comm, &mut topology) };
    match topology {
        Own::UNDEFINED => {}
        DIST_GRAPH => {
            let mut weighted = 0;
            // SAFETY: - the pointers are to locals.
            unsafe { PMPI_Dist_graph_neighbors_count(comm, &mut sources, &mut destinations, &mut weighted) };
        }
        GRAPH => {
            let mut rank = 0;
            // SAFETY: - the pointers are to locals.
            unsafe { PMPI_Comm_rank(comm, &mut rank) };
            // SAFETY: - the pointers are to locals.
            unsafe { PMPI_Graph_neighbors_count(comm, rank, &mut sources) };
            destinations = sources;
        }
        _ => {
            // SAFETY: - the pointers are to locals.
            unsafe { PMPI_Cartdim_get(comm, &mut sources) };
            // Two neighbours in each dimension.
            sources *= 2;
            destinations = sources;
        }
    }
    (usize::try_from(sources).unwrap_or(0), usize::try_from(destinations).unwrap_or(0))
}
