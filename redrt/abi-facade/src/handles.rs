//! Handles. redrt's are small constants for predefined objects, and numbers below 2^31 for all others.

use std::ffi::c_int;
use std::marker::PhantomData;

/// The first number that redrt gives out; lower ones are the standard's.
pub const FIRST_HANDLE: usize = 0x1000;
/// An invalid handle that is not null.
pub const NO_HANDLE: usize = FIRST_HANDLE - 1;
/// A value that no function returns: the argument stays unchanged.
pub const UNSET: usize = usize::MAX;

/// A handle of a family.
pub trait Handle: Copy + 'static {
    /// The kind of its objects, named as in `redrt/mpi-table`.
    const KIND: &'static str;

    /// redrt's handle of the same object.
    fn core(self) -> usize;
    /// The handle of an object of redrt.
    fn of(core: usize) -> Self;
    /// The handle as a Fortran `INTEGER`.
    fn to_fortran(self) -> c_int;
    /// The handle with this number in Fortran.
    fn of_fortran(number: c_int) -> Self;
}

/// A handle in procedures of Fortran.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Fortran<H>(c_int, PhantomData<H>);

impl<H: Handle> Handle for Fortran<H> {
    const KIND: &'static str = H::KIND;

    fn core(self) -> usize {
        H::of_fortran(self.0).core()
    }

    fn of(core: usize) -> Self {
        Self(H::of(core).to_fortran(), PhantomData)
    }

    fn to_fortran(self) -> c_int {
        self.0
    }

    fn of_fortran(number: c_int) -> Self {
        Self(number, PhantomData)
    }
}

/// A number that redrt gave out, in an `int` with the highest bit set. MPICH also has constants with that bit, whose
/// lower 22 bits are below [`FIRST_HANDLE`]; those of redrt's handles never are.
#[must_use]
#[inline]
pub fn give_out_c_int(value: usize) -> c_int {
    (value as u32 | 1 << 31) as c_int
}

/// The number that [`give_out_c_int`] put into a handle.
#[must_use]
#[inline]
pub fn given_out_c_int(handle: c_int) -> Option<usize> {
    let given = handle < 0 && (handle & ((1 << 22) - 1)) as usize >= FIRST_HANDLE;
    given.then_some((handle & c_int::MAX) as usize)
}

/// A number that redrt gave out, as a pointer. It is odd; addresses of objects are even.
#[must_use]
#[inline]
pub fn give_out_usize(value: usize) -> usize {
    value << 1 | 1
}

/// The number that [`give_out_usize`] put into a handle.
#[must_use]
#[inline]
pub fn given_out_usize(handle: usize) -> Option<usize> {
    (handle & 1 == 1 && handle < 1 << 32).then_some(handle >> 1)
}

/// redrt's handle for one that is an address: the object's first word.
#[must_use]
#[inline]
pub fn core_of_address(handle: usize) -> usize {
    if let Some(value) = given_out_usize(handle) {
        return value;
    }
    if handle < 4096 {
        return NO_HANDLE;
    }
    // SAFETY: - by calling MPI, the program promises that it is a handle: the address of one of the façade's
    //           objects.
    unsafe { std::ptr::with_exposed_provenance::<usize>(handle).read() }
}

/// A predefined object of a family whose handles are addresses.
#[must_use]
pub const fn predefined<const WORDS: usize>(core: usize) -> [usize; WORDS] {
    let mut words = [0; WORDS];
    words[0] = core;
    words
}

/// The handle at a pointer; an invalid one if the pointer is null.
///
/// # Safety
/// Null, or valid for a read.
#[inline]
pub unsafe fn peek_handle<H: Handle>(pointer: *const H) -> usize {
    // SAFETY: - a pointer that is not null is valid for a read: the caller's duty.
    if pointer.is_null() { NO_HANDLE } else { unsafe { (*pointer).core() } }
}

/// The value at a pointer, or `otherwise` if the pointer is null.
///
/// # Safety
/// Null, or valid for a read.
#[inline]
pub unsafe fn peek<T: Copy>(pointer: *const T, otherwise: T) -> T {
    // SAFETY: - a pointer that is not null is valid for a read: the caller's duty.
    if pointer.is_null() { otherwise } else { unsafe { *pointer } }
}

/// The address of a local, or null where the program passed null: then redrt names the missing argument.
#[inline]
pub fn pointer_to<T>(local: &mut T, is_null: bool) -> *mut T {
    if is_null { std::ptr::null_mut() } else { local }
}

/// Returns a handle to the program, if redrt's function returned one.
///
/// # Safety
/// Null, or valid for a write.
#[inline]
pub unsafe fn give_handle<H: Handle>(pointer: *mut H, value: usize) {
    if value != UNSET && !pointer.is_null() {
        // SAFETY: - `pointer` is valid for a write: the caller's duty.
        unsafe { *pointer = H::of(value) };
    }
}
