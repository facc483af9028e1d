//! Parts common to the libraries of other families' ABIs: translations of arguments that need more than a number.
//!
//! A program built for MPICH or Open MPI finds a library of its family's name (`redrt/abi-facade/facade-mpich`,
//! `redrt/abi-facade/facade-openmpi`). Each of its functions is generated from `redrt/mpi-table`: it translates its
//! arguments, calls redrt's library, and translates the results.
//!
//! | argument | in the family | here |
//! |---|---|---|
//! | handle | an `int`, or the address of an object | [`handles`] |
//! | status | another layout | [`statuses`] |
//! | array of constants, string | other numbers, other lengths | [`arrays`] |
//! | callback | has handles, codes and statuses | [`callbacks`] |
//! | attribute, contents of a datatype | numbers behind a pointer | [`values`] |

pub mod arrays;
pub mod callbacks;
pub mod core;
pub mod cxx;
mod extensions;
pub mod handles;
mod removed;
pub mod statuses;
pub mod values;

use self::core::CoreStatus;
use self::handles::Handle;
use std::ffi::{c_int, c_void};

/// The family's part in the callbacks' translation.
pub trait Family: 'static {
    /// `MPI_Status`.
    type Status: Copy + 'static;
    /// `MPI_IN_PLACE`, an address.
    const IN_PLACE: usize;
    /// `MPI_BUFFER_AUTOMATIC`.
    const BUFFER_AUTOMATIC: usize;
    /// `MPI_STATUS_IGNORE`.
    const STATUS_IGNORE: usize;
    /// `MPI_UNWEIGHTED`.
    const UNWEIGHTED: usize;
    /// `MPI_WEIGHTS_EMPTY`.
    const WEIGHTS_EMPTY: usize;

    /// The family's status for one of redrt's.
    fn status_out(status: &CoreStatus) -> Self::Status;
    /// redrt's status for one of the family's.
    fn status_in(status: &Self::Status) -> CoreStatus;
    /// redrt's error code for one of the family's.
    fn error_in(code: c_int) -> c_int;
    /// The family's error code for one of redrt's.
    fn error_out(code: c_int) -> c_int;
    /// The family's rank, or constant in its place, for one of redrt's.
    fn rank_out(rank: c_int) -> c_int;
    /// The value of `MPI_WIN_CREATE_FLAVOR`.
    fn flavor_out(flavor: c_int) -> c_int;
    /// The value of `MPI_WIN_MODEL`.
    fn model_out(model: c_int) -> c_int;
    /// The constants of datatypes' constructors.
    fn names() -> values::Names;

    /// Calls an operator of C++ with the family's function that belongs to it.
    ///
    /// # Safety
    /// Both functions are from one call of the family's library for C++, and both buffers have `count` elements.
    unsafe fn call_cxx_operation<D: Handle>(
        function: usize,
        by: usize,
        input: *const c_void,
        in_out: *mut c_void,
        count: c_int,
        datatype: D,
    );
    /// Calls an error handler of C++ in the same way. Returns the code that the failed function returns.
    ///
    /// # Safety
    /// Both functions are from one call of the family's library for C++.
    unsafe fn call_cxx_errhandler<H: Handle>(function: usize, by: usize, handle: H, code: c_int) -> c_int;
}

// The standard ABI is defined for platforms where these hold.
const _: () = assert!(size_of::<usize>() == 8 && size_of::<c_int>() == 4);
