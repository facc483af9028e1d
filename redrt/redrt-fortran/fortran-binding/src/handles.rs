//! Handles, which are integers in Fortran, and the few integers that Fortran counts differently.

use crate::Binding;
use crate::sentinels::is_in_place;
use std::ffi::{c_int, c_void};

/// A handle in C.
pub trait Handle: Copy + PartialEq + 'static {
    /// A value that no C function returns: the argument stays unchanged.
    const UNSET: Self;
    /// The handle with this number in Fortran.
    fn of_fortran(number: c_int) -> Self;
    /// The handle as an `INTEGER`.
    fn to_fortran(self) -> c_int;
}

/// Handles that the C functions `MPI_X_f2c` and `MPI_X_c2f` convert to numbers and back.
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

/// The handles in an array; none if the length is negative, which the C function refuses.
///
/// # Safety
/// There are `length` integers at `values`.
pub unsafe fn handles<H: Handle>(values: *const c_int, length: impl TryInto<usize>) -> Vec<H> {
    let length = length.try_into().unwrap_or(0);
    // SAFETY: - index is below length, and the array has that length: the caller's duty.
    (0..length).map(|index| H::of_fortran(unsafe { *values.add(index) })).collect()
}

/// Room for an array of outgoing handles.
pub fn unset_handles<H: Handle>(length: impl TryInto<usize>) -> Vec<H> {
    vec![H::UNSET; length.try_into().unwrap_or(0)]
}

/// Returns a handle to the program, if the C function returned one.
///
/// # Safety
/// `argument` is valid for a write.
pub unsafe fn give_handle<H: Handle>(argument: *mut c_int, value: H) {
    if value != H::UNSET {
        // SAFETY: - `argument` is valid for a write: the caller's duty.
        unsafe { *argument = value.to_fortran() };
    }
}

/// Returns the handles of an array to the program.
///
/// # Safety
/// `arguments` is valid for as many writes as there are values.
pub unsafe fn give_handles<H: Handle>(arguments: *mut c_int, values: &[H]) {
    for (index, value) in values.iter().enumerate() {
        // SAFETY: - index is below the number of values, for which the array is valid: the caller's duty.
        unsafe { give_handle(arguments.add(index), *value) };
    }
}

/// Returns the error code to the program, unless it has left out that argument.
///
/// # Safety
/// `argument` is null or valid for a write.
pub unsafe fn give_error(argument: *mut c_int, code: c_int) {
    if !argument.is_null() {
        // SAFETY: - `argument` is valid for a write: the caller's duty.
        unsafe { *argument = code };
    }
}

/// True when a call that ended with this code has set its counts.
#[must_use]
pub fn is_set<B: Binding>(code: c_int) -> bool {
    code == 0 || code == B::ERR_IN_STATUS
}

/// Converts indices, which count from 0 in C, to Fortran's, which count from 1.
///
/// # Safety
/// There are `length` integers at `indices`.
pub unsafe fn count_from_one<B: Binding>(indices: *mut c_int, length: c_int) {
    for index in 0..usize::try_from(length).unwrap_or(0) {
        // SAFETY: - index is below length, for which the array is valid: the caller's duty.
        let index = unsafe { &mut *indices.add(index) };
        if *index != B::UNDEFINED {
            *index += 1;
        }
    }
}

/// The length, or 0 if the buffer is `MPI_IN_PLACE`: then the array is not read.
#[must_use]
pub fn unless_in_place<B: Binding>(buffer: *mut c_void, length: usize) -> usize {
    if is_in_place::<B>(buffer) { 0 } else { length }
}

/// Converts displacements of the size of an `INTEGER` to C's, which are as wide as addresses.
///
/// # Safety
/// There are `length` integers at `values`.
pub unsafe fn widened(values: *const c_int, length: c_int) -> Vec<isize> {
    // SAFETY: - index is below length, and the array has that length: the caller's duty.
    (0..usize::try_from(length).unwrap_or(0)).map(|index| unsafe { *values.add(index) } as isize).collect()
}
