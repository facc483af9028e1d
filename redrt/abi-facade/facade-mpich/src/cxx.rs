//! Functions for MPICH's library of the C++ bindings of MPI-2 (`libmpicxx.so.12`, Debian's `libmpichcxx.so.12`), which
//! it calls in the library below besides functions of C.
//!
//! It creates an operation, an error handler or a key with functions of C++ in place of those of C. Then it names the
//! function of its own that has C's arguments and calls the one of C++. These are the calls that name it.
//!
//! `MPI::ERRORS_THROW_EXCEPTIONS` is an error handler that returns the code. On that code the library throws.

use super::{Context, Errhandler, Handle, Op, core, keyval_in};
use abi_facade::callbacks::function;
use std::ffi::{c_int, c_void};

/// Names `by`, which calls an operation's function of C++.
///
/// # Safety
/// `by` has the arguments of [`call_operation`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Op_set_cxx(op: Op, by: usize) {
    // SAFETY: - the call takes numbers; redrt returns `by` to `call_operation`.
    unsafe { (core().own.call_op_by)(op.core(), by) };
}

/// Names `by`, which calls an error handler's function of C++.
///
/// # Safety
/// `by` has the arguments of [`call_errhandler`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Errhandler_set_cxx(errhandler: Errhandler, by: usize) {
    // SAFETY: - the call takes numbers; redrt returns `by` to `call_errhandler`.
    unsafe { (core().own.call_errhandler_by)(errhandler.core(), by) };
}

/// Names the functions that call a key's functions of C++.
///
/// # Safety
/// `copy` and `delete` have the arguments of `abi_facade::callbacks::copy_attribute` and `delete_attribute`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Keyval_set_proxy(keyval: c_int, copy: usize, delete: usize) {
    let (exchange, keyval) = (core().own.exchange_keyval_state, keyval_in(keyval));
    // SAFETY: - the call takes numbers.
    let former = unsafe { exchange(keyval, 0) };
    if former != 0 {
        // SAFETY: - the state of every key of this library is a context.
        let context = unsafe { Context::called_by(std::ptr::with_exposed_provenance_mut(former), copy, delete) };
        // SAFETY: - the new state is a context, like the one before.
        unsafe { exchange(keyval, context.expose_provenance()) };
    }
}

/// Calls an operator of C++.
///
/// # Safety
/// Same duties as `abi_facade::Family::call_cxx_operation`.
pub unsafe fn call_operation<D: Handle>(
    program: usize,
    by: usize,
    input: *const c_void,
    in_out: *mut c_void,
    count: c_int,
    datatype: D,
) {
    type By<D> = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, D, usize);
    // SAFETY: - a function given to MPII_Op_set_cxx has this type.
    let by = unsafe { function::<By<D>>(by) };
    // SAFETY: - buffers of `count` elements, and functions that belong together: the caller's duty.
    unsafe { by(input, in_out, count, datatype, program) };
}

/// Calls an error handler of C++. The code that it leaves is dropped: to C the function has succeeded, so that the
/// library for C++ does not call the handler a second time.
///
/// # Safety
/// Same duties as `abi_facade::Family::call_cxx_errhandler`.
pub unsafe fn call_errhandler<H: Handle>(program: usize, by: usize, mut handle: H, mut code: c_int) -> c_int {
    type By<H> = unsafe extern "C" fn(c_int, *mut H, *mut c_int, usize);
    let kind = match H::KIND {
        "comm" => 0,
        "file" => 1,
        "win" => 2,
        other => unreachable!("MPI-2 has no error handlers of a {other}"),
    };
    // SAFETY: - a function given to MPII_Errhandler_set_cxx has this type.
    let by = unsafe { function::<By<H>>(by) };
    // SAFETY: - both pointers are to locals.
    unsafe { by(kind, &mut handle, &mut code, program) };
    0
}
