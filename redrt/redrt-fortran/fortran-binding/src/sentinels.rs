//! Arguments with a special meaning: `MPI_BOTTOM`, `MPI_STATUS_IGNORE` and their like.
//!
//! In C they are small numbers in place of an address. A Fortran program can only pass a variable, so each is a place
//! in a common block that the program shares with the library, and is known by its address. The linker merges the
//! program's block and the library's; the program's wins, and so the address must be read each time.

use crate::Binding;
use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;

/// Special meaning of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sentinel {
    /// `MPI_BOTTOM`
    Bottom,
    /// `MPI_IN_PLACE`
    InPlace,
    /// `MPI_BUFFER_AUTOMATIC`
    BufferAutomatic,
    /// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`
    StatusIgnore,
    /// `MPI_ERRCODES_IGNORE`
    ErrcodesIgnore,
    /// `MPI_UNWEIGHTED`
    Unweighted,
    /// `MPI_WEIGHTS_EMPTY`
    WeightsEmpty,
    /// `MPI_ARGV_NULL` and `MPI_ARGVS_NULL`
    NoArguments,
}

/// Addresses with a special meaning in C.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// `MPI_IN_PLACE`
    pub in_place: usize,
    /// `MPI_BUFFER_AUTOMATIC`
    pub buffer_automatic: usize,
    /// `MPI_STATUS_IGNORE`
    pub status_ignore: usize,
    /// `MPI_UNWEIGHTED`
    pub unweighted: usize,
    /// `MPI_WEIGHTS_EMPTY`
    pub weights_empty: usize,
}

/// Common blocks of a library, and the meanings of places in them: the block, its length in bytes, and each sentinel
/// with its distance from the beginning.
#[macro_export]
macro_rules! blocks {
    ($($name:ident: $length:literal { $($sentinel:ident at $place:literal),* })*) => {
        $(
            /// A common block; only addresses within it have a meaning.
            #[unsafe(no_mangle)]
            pub static $name: [std::sync::atomic::AtomicU8; $length] =
                [const { std::sync::atomic::AtomicU8::new(0) }; $length];
        )*

        /// The special meaning of an argument's address, if it has one.
        #[inline]
        fn sentinel(address: usize) -> Option<$crate::sentinels::Sentinel> {
            $($(
                if address == $name.as_ptr().addr() + $place {
                    return Some($crate::sentinels::Sentinel::$sentinel);
                }
            )*)*
            None
        }
    };
}

/// The address of a buffer in C.
#[inline]
#[must_use]
pub fn buffer<B: Binding>(argument: *mut c_void) -> *mut c_void {
    match B::sentinel(argument.addr()) {
        Some(Sentinel::Bottom) => std::ptr::null_mut(),
        Some(Sentinel::InPlace) => with_exposed_provenance_mut(B::ADDRESSES.in_place),
        Some(Sentinel::BufferAutomatic) => with_exposed_provenance_mut(B::ADDRESSES.buffer_automatic),
        _ => argument,
    }
}

/// True when a buffer is `MPI_IN_PLACE`.
#[must_use]
pub fn is_in_place<B: Binding>(argument: *mut c_void) -> bool {
    B::sentinel(argument.addr()) == Some(Sentinel::InPlace)
}

/// The address for statuses in C.
#[inline]
#[must_use]
pub fn status<B: Binding>(argument: *mut B::Status) -> *mut B::Status {
    match B::sentinel(argument.addr()) {
        Some(Sentinel::StatusIgnore) => with_exposed_provenance_mut(B::ADDRESSES.status_ignore),
        _ => argument,
    }
}

/// The address of a graph's weights in C.
#[must_use]
pub fn weights<B: Binding>(argument: *mut c_int) -> *mut c_int {
    match B::sentinel(argument.addr()) {
        Some(Sentinel::Unweighted) => with_exposed_provenance_mut(B::ADDRESSES.unweighted),
        Some(Sentinel::WeightsEmpty) => with_exposed_provenance_mut(B::ADDRESSES.weights_empty),
        _ => argument,
    }
}

/// The address for the error codes of started processes in C.
#[must_use]
pub fn error_codes<B: Binding>(argument: *mut c_int) -> *mut c_int {
    let ignored = B::sentinel(argument.addr()) == Some(Sentinel::ErrcodesIgnore);
    if ignored { std::ptr::null_mut() } else { argument }
}

/// True when the arguments of programs are `MPI_ARGV_NULL` or `MPI_ARGVS_NULL`.
pub fn are_no_arguments<B: Binding, T>(argument: *const T) -> bool {
    B::sentinel(argument.addr()) == Some(Sentinel::NoArguments)
}
