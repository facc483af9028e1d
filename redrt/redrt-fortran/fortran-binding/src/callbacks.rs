//! Callbacks of the program whose arguments in Fortran differ from those in C.
//!
//! C gets one of the functions here, and as its extra state a [`Context`]: the procedures of the program that it stands
//! for, and the program's own extra state. Reductions and error handlers need none of this. In C too they take all
//! arguments by reference, so the MPI library calls the program's procedure itself.

use crate::attributes::{attribute_from_c, attribute_to_c};
use crate::{Aint, Count, Handle, Offset};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Procedures of the program, by address, and the program's extra state for them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Context {
    procedures: [usize; 3],
    state: Aint,
}

static SHARED: Mutex<Option<HashMap<Context, &'static Context>>> = Mutex::new(None);

impl Context {
    fn of(procedures: &[usize], state: Aint) -> Self {
        let mut all = [0; 3];
        all[..procedures.len()].copy_from_slice(procedures);
        Self { procedures: all, state }
    }

    /// A context that lives for good: the end of a key's last attribute is unknown. Equal ones are shared.
    #[must_use]
    pub fn shared(procedures: &[usize], state: Aint) -> *mut c_void {
        let context = Self::of(procedures, state);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = shared.get_or_insert_default().entry(context).or_insert_with(|| Box::leak(Box::new(context)));
        std::ptr::from_ref(*place).cast_mut().cast()
    }

    /// A context for one request, freed with it ([`free_request`]).
    #[must_use]
    pub fn own(procedures: &[usize], state: Aint) -> *mut c_void {
        Box::into_raw(Box::new(Self::of(procedures, state))).cast()
    }

    /// # Safety
    /// `context` is a pointer that C got from [`Context::shared`] or [`Context::own`].
    unsafe fn from_c(context: *mut c_void) -> Self {
        // SAFETY: - the pointer is to a context of `shared` or `own` that was not freed: the caller's duty.
        unsafe { *context.cast::<Self>() }
    }

    /// A procedure of the program.
    ///
    /// # Safety
    /// `F` is the type of a Fortran procedure with the arguments of procedure `index`.
    unsafe fn procedure<F: Copy>(&self, index: usize) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: - same size; `F` is the procedure's type: the caller's duty.
        unsafe { std::mem::transmute_copy(&self.procedures[index]) }
    }
}

macro_rules! attribute_callbacks {
    ($copy:ident, $delete:ident, $value:ty) => {
        /// Copies an attribute.
        ///
        /// # Safety
        /// Called by the MPI library with a context.
        pub unsafe extern "C" fn $copy<H: Handle>(
            object: H,
            keyval: c_int,
            context: *mut c_void,
            value: *mut c_void,
            copied: *mut *mut c_void,
            flag: *mut c_int,
        ) -> c_int {
            type Copy = unsafe extern "C" fn(
                *const c_int,
                *const c_int,
                *const $value,
                *const $value,
                *mut $value,
                *mut c_int,
                *mut c_int,
            );
            // SAFETY: - the library passes a context that C got here, and that was not freed.
            let context = unsafe { Context::from_c(context) };
            // SAFETY: - the copy procedure is the first of the context.
            let procedure = unsafe { context.procedure::<Copy>(0) };
            let (object, state, value) =
                (object.to_fortran(), context.state as $value, attribute_from_c(value) as $value);
            let (mut out, mut wanted, mut code) = (0, 0, 0);
            // SAFETY: - all arguments are locals.
            unsafe { procedure(&object, &keyval, &state, &value, &mut out, &mut wanted, &mut code) };
            if wanted != 0 {
                // SAFETY: - `copied` is valid for a write: the library passes it for the copy.
                unsafe { *copied = attribute_to_c(out as Aint) };
            }
            // SAFETY: - `flag` is valid for a write: the library passes it for the answer.
            unsafe { *flag = c_int::from(wanted != 0) };
            code
        }

        /// Deletes an attribute.
        ///
        /// # Safety
        /// Called by the MPI library with a context.
        pub unsafe extern "C" fn $delete<H: Handle>(
            object: H,
            keyval: c_int,
            value: *mut c_void,
            context: *mut c_void,
        ) -> c_int {
            type Delete = unsafe extern "C" fn(*const c_int, *const c_int, *const $value, *const $value, *mut c_int);
            // SAFETY: - the library passes a context that C got here, and that was not freed.
            let context = unsafe { Context::from_c(context) };
            // SAFETY: - the delete procedure is the second of the context.
            let procedure = unsafe { context.procedure::<Delete>(1) };
            let (object, state, value) =
                (object.to_fortran(), context.state as $value, attribute_from_c(value) as $value);
            let mut code = 0;
            // SAFETY: - all arguments are locals.
            unsafe { procedure(&object, &keyval, &value, &state, &mut code) };
            code
        }
    };
}

attribute_callbacks!(copy_attribute, delete_attribute, Aint);
// MPI_Keyval_create, of MPI-1, has attributes of the size of an INTEGER.
attribute_callbacks!(copy_attribute_int, delete_attribute_int, c_int);

/// Fills in the status of a generalized request.
///
/// # Safety
/// Called by the MPI library with a context.
pub unsafe extern "C" fn query_request<S>(context: *mut c_void, status: *mut S) -> c_int {
    // SAFETY: - the library passes a context that C got here, and that was not freed.
    let context = unsafe { Context::from_c(context) };
    // SAFETY: - the query procedure is the first of the context.
    let procedure = unsafe { context.procedure::<unsafe extern "C" fn(*const Aint, *mut S, *mut c_int)>(0) };
    let mut code = 0;
    // SAFETY: - the library passes a valid status; the other arguments are locals.
    unsafe { procedure(&context.state, status, &mut code) };
    code
}

/// Frees a generalized request, and its context with it.
///
/// # Safety
/// Called by the MPI library with a context of [`Context::own`], once.
pub unsafe extern "C" fn free_request(context: *mut c_void) -> c_int {
    // SAFETY: - made by Context::own; the library calls this last, and once (MPI-5.0 section 13.2).
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    // SAFETY: - the free procedure is the second of the context.
    let procedure = unsafe { context.procedure::<unsafe extern "C" fn(*const Aint, *mut c_int)>(1) };
    let mut code = 0;
    // SAFETY: - all arguments are locals.
    unsafe { procedure(&context.state, &mut code) };
    code
}

/// Cancels a generalized request.
///
/// # Safety
/// Called by the MPI library with a context.
pub unsafe extern "C" fn cancel_request(context: *mut c_void, complete: c_int) -> c_int {
    // SAFETY: - the library passes a context that C got here, and that was not freed.
    let context = unsafe { Context::from_c(context) };
    // SAFETY: - the cancel procedure is the third of the context.
    let procedure = unsafe { context.procedure::<unsafe extern "C" fn(*const Aint, *const c_int, *mut c_int)>(2) };
    let mut code = 0;
    // SAFETY: - all arguments are locals.
    unsafe { procedure(&context.state, &complete, &mut code) };
    code
}

/// The extent of a datatype in a file of a data representation of the program.
///
/// # Safety
/// Called by the MPI library with a context.
pub unsafe extern "C" fn file_extent<H: Handle>(datatype: H, extent: *mut Aint, context: *mut c_void) -> c_int {
    // SAFETY: - the library passes a context that C got here, and that was not freed.
    let context = unsafe { Context::from_c(context) };
    type Extent = unsafe extern "C" fn(*const c_int, *mut Aint, *const Aint, *mut c_int);
    // SAFETY: - the extent procedure is the third of the context.
    let procedure = unsafe { context.procedure::<Extent>(2) };
    let (datatype, mut code) = (datatype.to_fortran(), 0);
    // SAFETY: - `extent` is valid for a write, as the library passes it for the result; the other arguments
    //           are locals.
    unsafe { procedure(&datatype, extent, &context.state, &mut code) };
    code
}

macro_rules! conversions {
    ($($name:ident: $index:literal, $count:ty;)*) => {$(
        /// Converts elements between memory and a file.
        ///
        /// # Safety
        /// Called by the MPI library with a context.
        pub unsafe extern "C" fn $name<H: Handle>(
            memory: *mut c_void,
            datatype: H,
            count: $count,
            file: *mut c_void,
            position: Offset,
            context: *mut c_void,
        ) -> c_int {
            type Conversion = unsafe extern "C" fn(
                *mut c_void,
                *const c_int,
                *const $count,
                *mut c_void,
                *const Offset,
                *const Aint,
                *mut c_int,
            );
            // SAFETY: - the library passes a context that C got here, and that was not freed.
            let context = unsafe { Context::from_c(context) };
            // SAFETY: - the context has its procedures in this order.
            let procedure = unsafe { context.procedure::<Conversion>($index) };
            let (datatype, mut code) = (datatype.to_fortran(), 0);
            // SAFETY: - the library passes two valid buffers; the other arguments are locals.
            unsafe { procedure(memory, &datatype, &count, file, &position, &context.state, &mut code) };
            code
        }
    )*};
}

conversions! {
    read_converted: 0, c_int;
    write_converted: 1, c_int;
    read_converted_large: 0, Count;
    write_converted_large: 1, Count;
}

/// The function that C gets for a conversion: none for `MPI_CONVERSION_FN_NULL`, which C knows as a null pointer.
#[must_use]
pub fn conversion(procedure: usize, stand_in: usize) -> usize {
    let null = [mpi_conversion_fn_null_ as *const () as usize, mpi_conversion_fn_null_c_ as *const () as usize];
    if null.contains(&procedure) { 0 } else { stand_in }
}

macro_rules! predefined {
    ($value:ty: $($duplicate:ident, $no_copy:ident, $no_delete:ident;)*) => {$(
        /// Copies the attribute unchanged.
        ///
        /// # Safety
        /// The arguments of the Fortran call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $duplicate(
            _object: *const c_int,
            _keyval: *const c_int,
            _state: *const $value,
            value: *const $value,
            copied: *mut $value,
            flag: *mut c_int,
            ierror: *mut c_int,
        ) {
            // SAFETY: - Fortran passes the addresses of variables.
            unsafe { *copied = *value };
            // SAFETY: - `flag` is valid for a write: the library passes it for the answer.
            unsafe { *flag = 1 };
            // SAFETY: - `ierror` is valid for a write: the library passes it for the code.
            unsafe { *ierror = 0 };
        }

        /// Does not copy the attribute.
        ///
        /// # Safety
        /// The arguments of the Fortran call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $no_copy(
            _object: *const c_int,
            _keyval: *const c_int,
            _state: *const $value,
            _value: *const $value,
            _copied: *mut $value,
            flag: *mut c_int,
            ierror: *mut c_int,
        ) {
            // SAFETY: - `flag` is valid for a write: the library passes it for the answer.
            unsafe { *flag = 0 };
            // SAFETY: - `ierror` is valid for a write: the library passes it for the code.
            unsafe { *ierror = 0 };
        }

        /// Deletes the attribute, for which nothing is to be done.
        ///
        /// # Safety
        /// The arguments of the Fortran call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $no_delete(
            _object: *const c_int,
            _keyval: *const c_int,
            _value: *const $value,
            _state: *const $value,
            ierror: *mut c_int,
        ) {
            // SAFETY: - `ierror` is valid for a write: the library passes it for the code.
            unsafe { *ierror = 0 };
        }
    )*};
}

predefined! { Aint:
    mpi_comm_dup_fn_, mpi_comm_null_copy_fn_, mpi_comm_null_delete_fn_;
    mpi_type_dup_fn_, mpi_type_null_copy_fn_, mpi_type_null_delete_fn_;
    mpi_win_dup_fn_, mpi_win_null_copy_fn_, mpi_win_null_delete_fn_;
}
predefined! { c_int: mpi_dup_fn_, mpi_null_copy_fn_, mpi_null_delete_fn_; }

/// `MPI_CONVERSION_FN_NULL`, which is never called: only its address is compared.
#[unsafe(no_mangle)]
pub extern "C" fn mpi_conversion_fn_null_() {}

/// `MPI_CONVERSION_FN_NULL_C`, which is never called: only its address is compared.
#[unsafe(no_mangle)]
pub extern "C" fn mpi_conversion_fn_null_c_() {}
