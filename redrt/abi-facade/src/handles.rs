//! Handles. redrt's are small constants for predefined objects, and numbers below 2^31 for all others.

use std::ffi::c_int;
use std::marker::PhantomData;

/// The first number that redrt gives out; those below are the standard's.
pub const FIRST_HANDLE: usize = 0x1000;
/// What is no handle, and not null either.
pub const NO_HANDLE: usize = FIRST_HANDLE - 1;
/// What no function hands out: the argument stays as it is.
pub const UNSET: usize = usize::MAX;

/// A handle of a family.
pub trait Handle: Copy + 'static {
    /// What it is a handle of, as `redrt/mpi-table` calls it.
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

/// A handle as procedures of Fortran have it.
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

/// A number that redrt gave out, in an `int` whose highest bit says so. MPICH has constants there, too, whose lower 22
/// bits are below [`FIRST_HANDLE`]; of redrt's handles those are never.
#[must_use]
#[inline]
pub fn give_out_c_int(value: usize) -> c_int {
    (value as u32 | 1 << 31) as c_int
}

/// What [`give_out_c_int`] made of a number.
#[must_use]
#[inline]
pub fn given_out_c_int(handle: c_int) -> Option<usize> {
    let given = handle < 0 && (handle & ((1 << 22) - 1)) as usize >= FIRST_HANDLE;
    given.then_some((handle & c_int::MAX) as usize)
}

/// A number that redrt gave out, as a pointer. It is odd, as the address of no object is.
#[must_use]
#[inline]
pub fn give_out_usize(value: usize) -> usize {
    value << 1 | 1
}

/// What [`give_out_usize`] made of a number.
#[must_use]
#[inline]
pub fn given_out_usize(handle: usize) -> Option<usize> {
    (handle & 1 == 1 && handle < 1 << 32).then_some(handle >> 1)
}

/// redrt's handle of one that is an address: the object begins with it.
#[must_use]
#[inline]
pub fn core_of_address(handle: usize) -> usize {
    if let Some(value) = given_out_usize(handle) {
        return value;
    }
    if handle < 4096 {
        return NO_HANDLE;
    }
    // SAFETY: - the program promises, by calling MPI, that it is a handle: the address of one of the façade's objects.
    unsafe { std::ptr::with_exposed_provenance::<usize>(handle).read() }
}

/// An object that is predefined in a family whose handles are addresses.
#[must_use]
pub const fn predefined<const WORDS: usize>(core: usize) -> [usize; WORDS] {
    let mut words = [0; WORDS];
    words[0] = core;
    words
}

/// The handle that a pointer points to; none if it points to nothing.
///
/// # Safety
/// Null, or valid for a read.
#[inline]
pub unsafe fn peek_handle<H: Handle>(pointer: *const H) -> usize {
    // SAFETY: - the caller's promise.
    if pointer.is_null() { NO_HANDLE } else { unsafe { (*pointer).core() } }
}

/// The value that a pointer points to, or another one if it points to nothing.
///
/// # Safety
/// Null, or valid for a read.
#[inline]
pub unsafe fn peek<T: Copy>(pointer: *const T, otherwise: T) -> T {
    // SAFETY: - the caller's promise.
    if pointer.is_null() { otherwise } else { unsafe { *pointer } }
}

/// The address of a local, or null where the program gave null: redrt says then what is missing.
#[inline]
pub fn pointer_to<T>(local: &mut T, is_null: bool) -> *mut T {
    if is_null { std::ptr::null_mut() } else { local }
}

/// Hands out a handle, if one came out.
///
/// # Safety
/// Null, or valid for a write.
#[inline]
pub unsafe fn give_handle<H: Handle>(pointer: *mut H, value: usize) {
    if value != UNSET && !pointer.is_null() {
        // SAFETY: - the caller's promise.
        unsafe { *pointer = H::of(value) };
    }
}
