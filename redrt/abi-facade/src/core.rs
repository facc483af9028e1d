//! redrt's library, seen by a façade: a table of its functions, and the layout of its statuses.
//!
//! The two libraries have functions of the same names. Bound by name, a façade's call of `MPI_Send` would be one of its
//! own function.

#![allow(missing_docs, clippy::type_complexity)]

use std::ffi::{c_char, c_int, c_void};

type Aint = isize;
type Count = i64;
type Offset = i64;
type Fint = c_int;

/// `MPI_Status` of the standard ABI: three public integers and five of redrt's (bytes in two halves, cancelled).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CoreStatus {
    pub source: c_int,
    pub tag: c_int,
    pub error: c_int,
    pub bytes_low: c_int,
    pub bytes_high: c_int,
    pub cancelled: c_int,
    pub unused: [c_int; 2],
}

impl CoreStatus {
    /// Number of received bytes, joined from its two halves.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.bytes_low as u32) | u64::from(self.bytes_high as u32) << 32
    }

    /// A status with these numbers.
    #[must_use]
    pub fn new(source: c_int, tag: c_int, error: c_int, bytes: u64, cancelled: bool) -> Self {
        let (bytes_low, bytes_high) = (bytes as u32 as c_int, (bytes >> 32) as u32 as c_int);
        Self { source, tag, error, bytes_low, bytes_high, cancelled: c_int::from(cancelled), unused: [0; 2] }
    }
}

/// Functions of redrt's library outside of the standard.
#[repr(C)]
pub struct Own {
    /// `MPI_Op_create` with the function that calls the program's (`callbacks::call_operation`).
    pub create_op: unsafe extern "C" fn(usize, c_int, usize, c_int, *mut usize) -> c_int,
    /// `MPI_Comm_create_errhandler` (kind 0), of windows (1), files (2), sessions (3), with the function that calls the
    /// program's.
    pub create_errhandler: unsafe extern "C" fn(usize, c_int, usize, *mut usize) -> c_int,
    /// Number of members with which a collective of the communicator exchanges: all (0), sources (1), destinations (2).
    pub peers: unsafe extern "C" fn(usize, c_int) -> usize,
    /// Names a second function for an operation with a function of C++; `callbacks::call_operation` gets both.
    pub call_op_by: unsafe extern "C" fn(usize, usize),
    /// The same for an error handler and `callbacks::call_errhandler`.
    pub call_errhandler_by: unsafe extern "C" fn(usize, usize),
    /// Exchanges the state for the functions of a key of attributes, and returns the former. A new state of 0 changes
    /// nothing.
    pub exchange_keyval_state: unsafe extern "C" fn(c_int, usize) -> usize,
    /// Sets the function for errors under the error handler `MPI::ERRORS_THROW_EXCEPTIONS`, and the one that calls it
    /// (`callbacks::call_errhandler`).
    pub on_exception: unsafe extern "C" fn(usize, usize),
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

unsafe extern "C" {
    static redrt_functions: Functions;
}

/// The table of functions of redrt's library.
#[inline(always)]
#[must_use]
pub fn core() -> &'static Functions {
    // SAFETY: - redrt's library exports it, and is loaded with the façade, which names it as needed.
    //         - of this layout: `check` was called when the façade was loaded.
    unsafe { &redrt_functions }
}

/// Ends the process if the two libraries do not belong together. Called when a façade is loaded.
pub fn check() {
    // SAFETY: - every build's table begins with the number of its layout.
    let layout = unsafe { (&raw const redrt_functions).cast::<u64>().read() };
    if layout != LAYOUT {
        eprintln!("redrt: the façade and libmpi_abi.so.1 are of different builds; install redrt again");
        std::process::exit(2);
    }
}
