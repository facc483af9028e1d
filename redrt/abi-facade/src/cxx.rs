//! A callback of C++ that cannot be served. The families' libraries for the C++ bindings of MPI-2 (`libmpi_cxx.so.40`,
//! `libmpicxx.so.12`) stay unchanged: their functions call those of C. To pass on a callback of C++ they call functions
//! of their own MPI, which façades have (`cxx.rs` of each). Open MPI's also reads objects that do not exist, if it
//! finds its own functions first; such a program is ended with one line.

use crate::core::core;
use std::ffi::c_int;

/// `MPI_COMM_WORLD` of the standard ABI.
const WORLD: usize = 0x101;

/// Ends the job: the program has a callback of this kind in C++.
pub fn refuse(what: &str) -> ! {
    eprintln!(
        "redrt: {what} of MPI-2's C++ bindings cannot be served; use the function of C, or rebuild with redrt's mpicxx"
    );
    // SAFETY: - the call takes numbers.
    unsafe { (core().abort)(WORLD, REFUSED) };
    std::process::exit(REFUSED)
}

const REFUSED: c_int = 2;

/// Functions that are called for callbacks of C++ alone, each with the purpose that the message names.
#[macro_export]
macro_rules! refused_callbacks {
    ($($name:ident: $what:literal;)*) => {$(
        /// Ends the job, as a callback of C++ needs this function.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            $crate::cxx::refuse($what)
        }
    )*};
}
