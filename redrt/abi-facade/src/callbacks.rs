//! Callbacks of the program, which take handles, statuses and codes of its family.
//!
//! redrt gets one of the functions here. Where callbacks have a state, that is a [`Context`]: the functions of the
//! program, and its own state. Reductions and error handlers have none: redrt gets the function of this module that
//! calls the program's (`Own::create_op`).
//!
//! A function of MPI-2's bindings for C++ has other arguments. The family's library for those has a function that knows
//! them and calls the program's.

use crate::Family;
use crate::core::CoreStatus;
use crate::handles::Handle;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Functions of the program, by address, and the program's extra state for them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Context {
    functions: [usize; 3],
    state: usize,
    /// Functions of MPICH's library for C++ that call the program's to copy and delete an attribute; 0 for functions of
    /// C.
    by: [usize; 2],
}

static SHARED: Mutex<Option<HashMap<Context, &'static Context>>> = Mutex::new(None);

impl Context {
    fn of(functions: &[usize], state: *mut c_void) -> Self {
        let mut all = [0; 3];
        all[..functions.len()].copy_from_slice(functions);
        Self { functions: all, state: state.expose_provenance(), by: [0; 2] }
    }

    /// A context that lives for good: the end of a key's last attribute is unknown. Equal ones are shared.
    #[must_use]
    pub fn shared(functions: &[usize], state: *mut c_void) -> *mut c_void {
        Self::of(functions, state).keep()
    }

    fn keep(self) -> *mut c_void {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = shared.get_or_insert_default().entry(self).or_insert_with(|| Box::leak(Box::new(self)));
        std::ptr::from_ref(*place).cast_mut().cast()
    }

    /// The same for attributes with functions of C++, which these functions of the family's library call.
    ///
    /// # Safety
    /// `context` is one of [`Context::shared`].
    #[must_use]
    pub unsafe fn called_by(context: *mut c_void, copy: usize, delete: usize) -> *mut c_void {
        // SAFETY: - `context` is one of `shared`: the caller's duty.
        let context = unsafe { Self::of_core(context) };
        Self { by: [copy, delete], ..context }.keep()
    }

    /// A context for one request, freed with it ([`free_request`]).
    #[must_use]
    pub fn own(functions: &[usize], state: *mut c_void) -> *mut c_void {
        Box::into_raw(Box::new(Self::of(functions, state))).cast()
    }

    /// # Safety
    /// `context` is a pointer that redrt got from [`Context::shared`] or [`Context::own`].
    unsafe fn of_core(context: *mut c_void) -> Self {
        // SAFETY: - the pointer is to a context of `shared` or `own` that was not freed: the caller's duty.
        unsafe { *context.cast::<Self>() }
    }

    fn state(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.state)
    }

    /// A function of the program.
    ///
    /// # Safety
    /// `F` is the type of function `index`.
    unsafe fn function<F: Copy>(&self, index: usize) -> F {
        // SAFETY: - `F` is the type of function `index`: the caller's duty.
        unsafe { function(self.functions[index]) }
    }
}

/// A function by its address.
///
/// # Safety
/// `address` is that of a function of this type.
pub unsafe fn function<F: Copy>(address: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: - same size; `F` is the function's type: the caller's duty.
    unsafe { std::mem::transmute_copy(&address) }
}

/// The function that redrt gets for a callback: none if the program passed none.
#[must_use]
pub fn unless_null(function: usize, stand_in: usize) -> usize {
    if function == 0 { 0 } else { stand_in }
}

/// Calls a reduction of the program.
///
/// # Safety
/// Called by redrt with the function that the operation was created with.
pub unsafe extern "C" fn call_operation<F: Family, D: Handle, const LARGE: bool>(
    address: usize,
    by: usize,
    input: *const c_void,
    in_out: *mut c_void,
    mut count: i64,
    datatype: usize,
) {
    let mut datatype = D::of(datatype);
    if by != 0 {
        // SAFETY: - the buffers are those of the call under way; both functions come from one creation.
        unsafe { F::call_cxx_operation(address, by, input, in_out, count as c_int, datatype) };
    } else if LARGE {
        // SAFETY: - the program created the operation with MPI_Op_create_c, so it has this type.
        let function =
            unsafe { function::<unsafe extern "C" fn(*const c_void, *mut c_void, *mut i64, *mut D)>(address) };
        // SAFETY: - the buffers are those of the call under way; the other pointers are to locals.
        unsafe { function(input, in_out, &mut count, &mut datatype) };
    } else {
        let mut count = count as c_int;
        // SAFETY: - the program created the operation with MPI_Op_create, so it has this type.
        let function =
            unsafe { function::<unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_int, *mut D)>(address) };
        // SAFETY: - the buffers are those of the call under way; the other pointers are to locals.
        unsafe { function(input, in_out, &mut count, &mut datatype) };
    }
}

/// Calls an error handler of the program. Returns the code that the failed function returns.
///
/// # Safety
/// Called by redrt with the function that the error handler was created with.
pub unsafe extern "C" fn call_errhandler<F: Family, H: Handle>(
    address: usize,
    by: usize,
    handle: usize,
    code: c_int,
) -> c_int {
    let (mut handle, mut code) = (H::of(handle), F::error_out(code));
    if by != 0 {
        // SAFETY: - both functions come from one creation.
        return F::error_in(unsafe { F::call_cxx_errhandler(address, by, handle, code) });
    }
    // SAFETY: - the program created the error handler with it, so it has this type.
    let function = unsafe { function::<unsafe extern "C" fn(*mut H, *mut c_int, ...)>(address) };
    // SAFETY: - both pointers are to locals.
    unsafe { function(&mut handle, &mut code) };
    F::error_in(code)
}

/// For MPICH's functions of C++, an attribute that is a pointer. Other values are for Fortran's attributes.
const POINTER: c_int = 0;

/// Copies an attribute.
///
/// # Safety
/// Called by redrt with a context.
pub unsafe extern "C" fn copy_attribute<F: Family, H: Handle>(
    object: usize,
    keyval: c_int,
    context: *mut c_void,
    value: *mut c_void,
    copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    type Copy<H> = unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
    // SAFETY: - redrt passes a context that it got from here, and that was not freed.
    let context = unsafe { Context::of_core(context) };
    if context.by[0] != 0 {
        type By<H> =
            unsafe extern "C" fn(usize, H, c_int, *mut c_void, c_int, *const c_void, *mut c_void, *mut c_int) -> c_int;
        // SAFETY: - a function given to `MPII_Keyval_set_proxy` for copies has this type.
        let by = unsafe { function::<By<H>>(context.by[0]) };
        let value = value.cast_const();
        // SAFETY: - the program gave its copy function first; the pointers are redrt's, the value the
        //           program's.
        let code =
            unsafe { by(context.functions[0], H::of(object), keyval, context.state(), POINTER, value, copied, flag) };
        return F::error_in(code);
    }
    // SAFETY: - the copy function is the first of the context.
    let function = unsafe { context.function::<Copy<H>>(0) };
    // SAFETY: - the pointers are redrt's, the value the program's.
    F::error_in(unsafe { function(H::of(object), keyval, context.state(), value, copied, flag) })
}

/// Deletes an attribute.
///
/// # Safety
/// Called by redrt with a context.
pub unsafe extern "C" fn delete_attribute<F: Family, H: Handle>(
    object: usize,
    keyval: c_int,
    value: *mut c_void,
    context: *mut c_void,
) -> c_int {
    type Delete<H> = unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;
    // SAFETY: - redrt passes a context that it got from here, and that was not freed.
    let context = unsafe { Context::of_core(context) };
    if context.by[1] != 0 {
        type By<H> = unsafe extern "C" fn(usize, H, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
        // SAFETY: - a function given to `MPII_Keyval_set_proxy` for deletions has this type.
        let by = unsafe { function::<By<H>>(context.by[1]) };
        // SAFETY: - the program gave its delete function second; the values are the program's.
        let code = unsafe { by(context.functions[1], H::of(object), keyval, POINTER, value, context.state()) };
        return F::error_in(code);
    }
    // SAFETY: - the delete function is the second of the context.
    let function = unsafe { context.function::<Delete<H>>(1) };
    // SAFETY: - the values are the program's.
    F::error_in(unsafe { function(H::of(object), keyval, value, context.state()) })
}

/// Fills in the status of a generalized request.
///
/// # Safety
/// Called by redrt with a context.
pub unsafe extern "C" fn query_request<F: Family>(context: *mut c_void, status: *mut CoreStatus) -> c_int {
    // SAFETY: - redrt passes a context that it got from here, and that was not freed.
    let context = unsafe { Context::of_core(context) };
    // SAFETY: - the query function is the first of the context.
    let function = unsafe { context.function::<unsafe extern "C" fn(*mut c_void, *mut F::Status) -> c_int>(0) };
    // SAFETY: - redrt passes a valid status.
    let mut own = F::status_out(unsafe { &*status });
    // SAFETY: - the status is a local, the state the program's.
    let code = unsafe { function(context.state(), &mut own) };
    // SAFETY: - redrt passes a valid status.
    unsafe { *status = F::status_in(&own) };
    F::error_in(code)
}

/// Frees a generalized request, and its context with it.
///
/// # Safety
/// Called by redrt with a context of [`Context::own`], once.
pub unsafe extern "C" fn free_request<F: Family>(context: *mut c_void) -> c_int {
    // SAFETY: - made by Context::own; redrt calls this last, and once (MPI-5.0 section 13.2).
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    if context.functions[1] == 0 {
        return 0;
    }
    // SAFETY: - the free function is the second of the context.
    let function = unsafe { context.function::<unsafe extern "C" fn(*mut c_void) -> c_int>(1) };
    // SAFETY: - the state is the program's.
    F::error_in(unsafe { function(context.state()) })
}

/// Cancels a generalized request.
///
/// # Safety
/// Called by redrt with a context.
pub unsafe extern "C" fn cancel_request<F: Family>(context: *mut c_void, complete: c_int) -> c_int {
    // SAFETY: - redrt passes a context that it got from here, and that was not freed.
    let context = unsafe { Context::of_core(context) };
    // SAFETY: - the cancel function is the third of the context.
    let function = unsafe { context.function::<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>(2) };
    // SAFETY: - the state is the program's.
    F::error_in(unsafe { function(context.state(), complete) })
}

/// The extent of a datatype in a file of a data representation of the program.
///
/// # Safety
/// Called by redrt with a context.
pub unsafe extern "C" fn file_extent<F: Family, D: Handle>(
    datatype: usize,
    extent: *mut isize,
    context: *mut c_void,
) -> c_int {
    // SAFETY: - redrt passes a context that it got from here, and that was not freed.
    let context = unsafe { Context::of_core(context) };
    // SAFETY: - the extent function is the third of the context.
    let function = unsafe { context.function::<unsafe extern "C" fn(D, *mut isize, *mut c_void) -> c_int>(2) };
    // SAFETY: - `extent` is valid for a write: redrt passes it for the result.
    F::error_in(unsafe { function(D::of(datatype), extent, context.state()) })
}

/// Converts elements between memory and a file; function `INDEX` of the context, for counts of type `C`.
///
/// # Safety
/// Called by redrt with a context.
pub unsafe extern "C" fn convert<F: Family, D: Handle, C, const INDEX: usize>(
    memory: *mut c_void,
    datatype: usize,
    count: C,
    file: *mut c_void,
    position: i64,
    context: *mut c_void,
) -> c_int {
    type Conversion<D, C> = unsafe extern "C" fn(*mut c_void, D, C, *mut c_void, i64, *mut c_void) -> c_int;
    // SAFETY: - redrt passes a context that it got from here, and that was not freed.
    let context = unsafe { Context::of_core(context) };
    // SAFETY: - the context has its functions in this order.
    let function = unsafe { context.function::<Conversion<D, C>>(INDEX) };
    // SAFETY: - redrt passes two valid buffers.
    F::error_in(unsafe { function(memory, D::of(datatype), count, file, position, context.state()) })
}
