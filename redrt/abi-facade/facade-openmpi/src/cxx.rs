//! Functions for Open MPI's library of the C++ bindings of MPI-2 (`libmpi_cxx.so.40`, which Open MPI 5 does not have),
//! which it calls in the library below besides functions of C.
//!
//! All of that goes through a few functions of its own, `ompi_cxx_...`, which know Open MPI's objects. When this
//! library is loaded first, the linker finds the functions here instead, and these know redrt's objects. Functions that
//! its own would call exist here because they are named, and end the job: a library for C++ that found its own
//! functions would read objects that do not exist.

use super::{Comm, Errhandler, File, Handle, Op, Own, UNSET, Win, core};
use super::{inner_comm_call_errhandler, inner_comm_create_keyval, inner_file_call_errhandler};
use super::{inner_type_create_keyval, inner_win_create_keyval};
use abi_facade::callbacks::{call_errhandler, function};
use abi_facade::cxx::refuse;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicU64;

const LIBRARY: &CStr = c"libmpi_cxx.so.40";
/// `MPI_ERR_UNKNOWN` of Open MPI.
const UNKNOWN: c_int = 14;
/// `MPI_CART` and `MPI_GRAPH` of the standard ABI.
const CART: c_int = 211;
const GRAPH: c_int = 212;

abi_facade::refused_callbacks! {
    ompi_errhandler_create: "an error handler";
    ompi_errhandler_invoke: "an error handler";
    ompi_attr_create_keyval: "a key of attributes";
}

/// A variable of Open MPI that the library refers to.
type Variable<const WORDS: usize> = [AtomicU64; WORDS];
/// `MPI::ERRORS_THROW_EXCEPTIONS`. Its first word is redrt's handle, like that of every predefined object.
#[unsafe(no_mangle)]
pub static ompi_mpi_errors_throw_exceptions: Variable<128> = {
    let mut words = [const { AtomicU64::new(0) }; 128];
    words[0] = AtomicU64::new(super::ERRORS_THROW_EXCEPTIONS);
    words
};
#[unsafe(no_mangle)]
pub static ompi_registered_datareps: Variable<8> = [const { AtomicU64::new(0) }; 8];
#[unsafe(no_mangle)]
pub static ompi_errcode_intern_lastused: Variable<1> = [const { AtomicU64::new(0) }; 1];
#[unsafe(no_mangle)]
pub static ompi_errcodes_intern: Variable<15> = [const { AtomicU64::new(0) }; 15];

/// Names `program`, the function of C++ behind an operation that was created with a function of the library.
///
/// # Safety
/// `program` has the arguments that the library's function passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_op_set_cxx_callback(op: Op, program: usize) {
    // SAFETY: - the call takes numbers; redrt returns `program` to `call_operation`.
    unsafe { (core().own.call_op_by)(op.core(), program) };
}

/// Calls an operator of C++: `by` is the program's, and `library` the library's function that knows its arguments.
///
/// # Safety
/// Same duties as `abi_facade::Family::call_cxx_operation`.
pub unsafe fn call_operation<D: Handle>(
    library: usize,
    by: usize,
    input: *const c_void,
    in_out: *mut c_void,
    mut count: c_int,
    mut datatype: D,
) {
    type Library<D> = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_int, *mut D, usize);
    // SAFETY: - the operation was created with ompi_mpi_cxx_op_intercept, which has this type.
    let library = unsafe { function::<Library<D>>(library) };
    // SAFETY: - buffers of `count` elements: the caller's duty; the other pointers are to locals.
    unsafe { library(input, in_out, &mut count, &mut datatype, by) };
}

/// A new error handler with a function of C++, which the library's function of this name calls.
fn create_errhandler(program: usize, kind: c_int, adapter: usize, by: &CStr) -> Errhandler {
    let mut errhandler = UNSET;
    // SAFETY: - `errhandler` is a local, and the adapter calls the function.
    let code = unsafe { (core().own.create_errhandler)(program, kind, adapter, &mut errhandler) };
    if code != 0 {
        return Errhandler::of(0);
    }
    // SAFETY: - the call takes numbers; redrt returns the function to `call_errhandler`.
    unsafe { (core().own.call_errhandler_by)(errhandler, of_library(by)) };
    Errhandler::of(errhandler)
}

/// A function of the library for C++.
fn of_library(name: &CStr) -> usize {
    // SAFETY: - the name is a string; RTLD_NOLOAD loads no library.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        refuse("an error handler");
    }
    // SAFETY: - the library is open, and the name is a string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { refuse("an error handler") } else { found.expose_provenance() }
}

/// Calls an error handler of C++.
///
/// # Safety
/// Same duties as `abi_facade::Family::call_cxx_errhandler`.
pub unsafe fn call_cxx_errhandler<H: Handle>(program: usize, by: usize, mut handle: H, mut code: c_int) -> c_int {
    type By<H> = unsafe extern "C" fn(*mut H, *mut c_int, *const c_char, usize);
    // SAFETY: - ompi_mpi_cxx_comm_errhandler_invoke and its siblings have this type.
    let by = unsafe { function::<By<H>>(by) };
    // SAFETY: - the pointers are to locals and to a string.
    unsafe { by(&mut handle, &mut code, c"an MPI function".as_ptr(), program) };
    code
}

/// Creates an error handler of communicators.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_cxx_errhandler_create_comm(program: usize) -> Errhandler {
    let adapter = call_errhandler::<Own, Comm> as *const () as usize;
    create_errhandler(program, 0, adapter, c"ompi_mpi_cxx_comm_errhandler_invoke")
}

/// Creates an error handler of windows.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_cxx_errhandler_create_win(program: usize) -> Errhandler {
    let adapter = call_errhandler::<Own, Win> as *const () as usize;
    create_errhandler(program, 1, adapter, c"ompi_mpi_cxx_win_errhandler_invoke")
}

/// Creates an error handler of files.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_cxx_errhandler_create_file(program: usize) -> Errhandler {
    let adapter = call_errhandler::<Own, File> as *const () as usize;
    create_errhandler(program, 2, adapter, c"ompi_mpi_cxx_file_errhandler_invoke")
}

/// Sets the function behind `MPI::ERRORS_THROW_EXCEPTIONS`. Open MPI is built without exceptions: the function prints
/// so, and leaves the code in `MPI::mpi_errno`.
///
/// # Safety
/// `of_comms` is an error handler of communicators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_cxx_errhandler_set_callbacks(_: *mut c_void, of_comms: usize, _file: usize, _win: usize) {
    // All three do the same, and read only the code.
    // SAFETY: - the first is an error handler, and the second calls one.
    unsafe { (core().own.on_exception)(of_comms, call_errhandler::<Own, Comm> as *const () as usize) };
}

/// Codes below 0 are Open MPI's own.
fn known(code: c_int) -> c_int {
    if code < 0 { UNKNOWN } else { code }
}

/// Raises an error of the library on a communicator.
///
/// # Safety
/// No duties: the call takes numbers, and a text that is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_cxx_errhandler_invoke_comm(comm: Comm, code: c_int, _text: *const c_char) -> c_int {
    // SAFETY: - the call takes numbers.
    unsafe { inner_comm_call_errhandler(comm, known(code)) };
    known(code)
}

/// Raises an error of the library on a file.
///
/// # Safety
/// No duties: the call takes numbers, and a text that is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_cxx_errhandler_invoke_file(file: File, code: c_int, _text: *const c_char) -> c_int {
    // SAFETY: - the call takes numbers.
    unsafe { inner_file_call_errhandler(file, known(code)) };
    known(code)
}

macro_rules! keys {
    ($($name:ident, $create:ident;)*) => {$(
        /// Creates a key with functions in C, of the library or of the program.
        ///
        /// # Safety
        /// Functions for attributes of such objects, and a valid pointer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            copy: usize,
            delete: usize,
            keyval: *mut c_int,
            state: *mut c_void,
            _flags: c_int,
            _to_be_freed: *mut c_void,
        ) -> c_int {
            // SAFETY: - functions for such attributes and a valid pointer: the caller's duty.
            unsafe { $create(copy, delete, keyval, state) }
        }
    )*};
}

keys! {
    ompi_cxx_attr_create_keyval_comm, inner_comm_create_keyval;
    ompi_cxx_attr_create_keyval_type, inner_type_create_keyval;
    ompi_cxx_attr_create_keyval_win, inner_win_create_keyval;
}

/// Class of C++ of a communicator: 1 with one group, 2 with two groups, 3 with a Cartesian topology, 4 with a graph.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_cxx_comm_get_type(comm: Comm) -> c_int {
    let (mut is_inter, mut topology) = (0, 0);
    // SAFETY: - `is_inter` is a local.
    unsafe { (core().comm_test_inter)(comm.core(), &mut is_inter) };
    // SAFETY: - `topology` is a local.
    unsafe { (core().topo_test)(comm.core(), &mut topology) };
    match topology {
        CART => 3,
        GRAPH => 4,
        _ => 1 + is_inter,
    }
}

/// Functions and state of a data representation, for the library's functions that call the program's. Like a
/// representation, they stay for good.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_cxx_new_intercept_state(read: usize, write: usize, extent: usize, state: usize) -> *mut usize {
    Box::leak(Box::new([read, write, extent, state])).as_mut_ptr()
}
