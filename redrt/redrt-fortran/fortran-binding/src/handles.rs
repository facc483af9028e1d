//! Handles, which are integers in Fortran, and the few integers that count otherwise.

use crate::Binding;
use crate::sentinels::is_in_place;
use std::ffi::{c_int, c_void};

/// A handle as C has it.
pub trait Handle: Copy + PartialEq + 'static {
    /// What no C function hands out: the argument stays as it is.
    const UNSET: Self;
    /// The handle with this number in Fortran.
    fn of_fortran(number: c_int) -> Self;
    /// The handle as an `INTEGER`.
    fn to_fortran(self) -> c_int;
}

/// Handles that the C functions `MPI_X_f2c` and `MPI_X_c2f` turn into numbers and back.
#[macro_export]
macro_rules! handles_by_c {
    ($($name:ident($value:ty): $of:ident, $to:ident;)*) => {$(
        /// A handle of the façade.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(transparent)]
        pub struct $name($value);

        unsafe extern "C" {
            safe fn $of(number: std::ffi::c_int) -> $name;
            safe fn $to(handle: $name) -> std::ffi::c_int;
        }

        impl $crate::Handle for $name {
            const UNSET: Self = Self(<$value>::MAX);

            #[inline]
            fn of_fortran(number: std::ffi::c_int) -> Self {
                $of(number)
            }

            #[inline]
            fn to_fortran(self) -> std::ffi::c_int {
                $to(self)
            }
        }
    )*};
}

/// An array of handles; none if the length is negative, which the C function refuses.
///
/// # Safety
/// There are `length` integers at `values`.
pub unsafe fn handles<H: Handle>(values: *const c_int, length: impl TryInto<usize>) -> Vec<H> {
    let length = length.try_into().unwrap_or(0);
    // SAFETY: - index is below length, and the caller promises an array of that length.
    (0..length).map(|index| H::of_fortran(unsafe { *values.add(index) })).collect()
}

/// Room for an array of handles that comes out.
pub fn unset_handles<H: Handle>(length: impl TryInto<usize>) -> Vec<H> {
    vec![H::UNSET; length.try_into().unwrap_or(0)]
}

/// Hands out a handle, if one came out.
///
/// # Safety
/// The argument of a call, by reference.
pub unsafe fn give_handle<H: Handle>(argument: *mut c_int, value: H) {
    if value != H::UNSET {
        // SAFETY: - valid for one write: the caller's promise.
        unsafe { *argument = value.to_fortran() };
    }
}

/// Hands out the handles of an array that came out.
///
/// # Safety
/// There are as many integers at `arguments`.
pub unsafe fn give_handles<H: Handle>(arguments: *mut c_int, values: &[H]) {
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
pub fn is_set<B: Binding>(code: c_int) -> bool {
    code == 0 || code == B::ERR_IN_STATUS
}

/// Indices count from 0 in C and from 1 in Fortran.
///
/// # Safety
/// There are `length` integers at `indices`.
pub unsafe fn count_from_one<B: Binding>(indices: *mut c_int, length: c_int) {
    for index in 0..usize::try_from(length).unwrap_or(0) {
        // SAFETY: - within the array: the caller's promise.
        let index = unsafe { &mut *indices.add(index) };
        if *index != B::UNDEFINED {
            *index += 1;
        }
    }
}

/// 0 if the buffer is `MPI_IN_PLACE`, beside which the array is not looked at.
#[must_use]
pub fn unless_in_place<B: Binding>(buffer: *mut c_void, length: usize) -> usize {
    if is_in_place::<B>(buffer) { 0 } else { length }
}

/// Displacements, which are as wide as addresses in C.
///
/// # Safety
/// There are `length` integers at `values`.
pub unsafe fn widened(values: *const c_int, length: c_int) -> Vec<isize> {
    // SAFETY: - index is below length, and the caller promises an array of that length.
    (0..usize::try_from(length).unwrap_or(0)).map(|index| unsafe { *values.add(index) } as isize).collect()
}
