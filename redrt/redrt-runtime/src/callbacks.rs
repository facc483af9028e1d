//! Calls into the program. Each is a safe function: a callback has the type that the standard prescribes, by the
//! contract of the MPI call that took it. The caller holds no lock of the library. If replicas agree on the moment of a
//! callback, clocks and random bytes are agreed on within it, as outside of MPI calls.

use crate::threads;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{Callback, Count, Offset, Status, ToolHandle};
use std::ffi::{c_int, c_void};

type ErrhandlerFunction = unsafe extern "C" fn(*mut usize, *mut c_int, ...);
type CopyFunction = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type DeleteFunction = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;
type OperationFunction = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_int, *mut DatatypeHandle);
type OperationFunctionLarge = unsafe extern "C" fn(*const c_void, *mut c_void, *mut Count, *mut DatatypeHandle);

type ConversionFunction =
    unsafe extern "C" fn(*mut c_void, DatatypeHandle, c_int, *mut c_void, Offset, *mut c_void) -> c_int;
type ConversionFunctionLarge =
    unsafe extern "C" fn(*mut c_void, DatatypeHandle, Count, *mut c_void, Offset, *mut c_void) -> c_int;
type ExtentFunction = unsafe extern "C" fn(DatatypeHandle, *mut isize, *mut c_void) -> c_int;

/// A function of the program without an extra state: a reduction or an error handler.
///
/// In a program with another family's ABI, the façade's adapter is called, with the function as its first argument. The
/// adapter knows the types.
#[derive(Clone, Copy, Debug)]
pub struct UserFunction {
    function: Callback,
    adapter: Option<Callback>,
    by: Callback,
}

impl From<Callback> for UserFunction {
    fn from(function: Callback) -> Self {
        Self { function, adapter: None, by: Callback(0) }
    }
}

impl UserFunction {
    /// A function that is called through an adapter.
    #[must_use]
    pub fn adapted(function: Callback, adapter: Callback) -> Self {
        Self { function, adapter: Some(adapter), by: Callback(0) }
    }

    /// Adds a further function for the adapter, as MPI-2's bindings for C++ need it.
    #[must_use]
    pub fn called_by(self, by: Callback) -> Self {
        Self { by, ..self }
    }
}

type OperationAdapter = unsafe extern "C" fn(usize, usize, *const c_void, *mut c_void, Count, usize);
type ErrhandlerAdapter = unsafe extern "C" fn(usize, usize, usize, c_int) -> c_int;

/// Calls an error handler with a handle and an error code.
pub fn call_errhandler(user: UserFunction, mut handle: usize, mut code: c_int) -> c_int {
    let _calling_back = threads::call_back();
    let UserFunction { function, adapter, by } = user;
    if let Some(adapter) = adapter {
        // SAFETY: - the type is that of a façade's `call_errhandler`.
        let adapter = unsafe { adapter.function::<ErrhandlerAdapter>() };
        // SAFETY: - the function fits the adapter: both came together from the façade.
        return unsafe { adapter(function.0, by.0, handle, code) };
    }
    // SAFETY: - the type is that of MPI_Comm_errhandler_function and its siblings, whose handles are all pointer-sized.
    let function = unsafe { function.function::<ErrhandlerFunction>() };
    // MPI-5.0 section 9.3.1: handle and code go by reference, so that Fortran can use them.
    // SAFETY: - both pointers are valid for reads and writes: they are to locals.
    unsafe { function(&mut handle, &mut code) };
    code
}

/// Calls an attribute copy function. Returns its code, and the copied value if it wants the attribute copied.
pub fn call_copy_attribute(
    function: Callback,
    object: usize,
    keyval: c_int,
    extra_state: usize,
    value: usize,
) -> (c_int, Option<usize>) {
    let _calling_back = threads::call_back();
    let (mut copied, mut flag) = (0usize, 0);
    // SAFETY: - the type is that of MPI_Comm_copy_attr_function and its siblings, whose handles are all pointer-sized.
    let function = unsafe { function.function::<CopyFunction>() };
    let (extra_state, value) = (pointer(extra_state), pointer(value));
    // SAFETY: - the out pointers are valid for writes: they are to locals. The others are the program's own values.
    let code = unsafe { function(object, keyval, extra_state, value, (&raw mut copied).cast(), &mut flag) };
    (code, (flag != 0).then_some(copied))
}

/// Calls an attribute delete function. Returns its code.
pub fn call_delete_attribute(
    function: Callback,
    object: usize,
    keyval: c_int,
    value: usize,
    extra_state: usize,
) -> c_int {
    let _calling_back = threads::call_back();
    // SAFETY: - the type is that of MPI_Comm_delete_attr_function and its siblings, whose handles are all
    //           pointer-sized.
    let function = unsafe { function.function::<DeleteFunction>() };
    // SAFETY: - the pointers are the program's own values, which only its function uses.
    unsafe { function(object, keyval, pointer(value), pointer(extra_state)) }
}

/// Calls a reduction function of the program, of the `int` or the large-count type (`wide`). Both buffers hold `count`
/// elements of `datatype`, by the contract of the MPI call that is served.
pub fn call_user_operation(
    user: UserFunction,
    wide: bool,
    input: *const u8,
    in_out: *mut u8,
    count: i64,
    mut datatype: DatatypeHandle,
) {
    let _calling_back = threads::call_back();
    let UserFunction { function, adapter, by } = user;
    if let Some(adapter) = adapter {
        // SAFETY: - the type is that of a façade's `call_operation`.
        let adapter = unsafe { adapter.function::<OperationAdapter>() };
        // SAFETY: - the buffers hold count elements: the contract of the MPI call. The function came with the adapter.
        unsafe { adapter(function.0, by.0, input.cast(), in_out.cast(), count, datatype.0) };
    } else if wide {
        let mut count = count;
        // SAFETY: - the type is that of MPI_Op_create_c, which created the operation.
        let function = unsafe { function.function::<OperationFunctionLarge>() };
        // SAFETY: - the buffers hold count elements: the contract of the MPI call. The other pointers are to locals.
        unsafe { function(input.cast(), in_out.cast(), &mut count, &mut datatype) };
    } else {
        let mut count = c_int::try_from(count).expect("Op::reduce splits counts that do not fit an int");
        // SAFETY: - the type is that of MPI_Op_create, which created the operation.
        let function = unsafe { function.function::<OperationFunction>() };
        // SAFETY: - the buffers hold count elements: the contract of the MPI call. The other pointers are to locals.
        unsafe { function(input.cast(), in_out.cast(), &mut count, &mut datatype) };
    }
}

/// Arguments of a conversion function.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// The program's buffer (`userbuf` of MPI-5.0 §14.5.3).
    pub memory: *mut c_void,
    /// Type of the elements.
    pub handle: DatatypeHandle,
    /// Number of basic elements.
    pub count: i64,
    /// The bytes of the file.
    pub file: *mut c_void,
    /// Index of the first basic element in the buffer.
    pub position: i64,
}

/// Calls a conversion function of a data representation, of the `int` or the large-count type (`wide`). Returns its
/// code. The program's buffer has room for the elements, by the contract of the MPI call that is served; `file` has
/// room for them.
pub fn call_conversion(function: Callback, wide: bool, conversion: Conversion, extra_state: usize) -> c_int {
    let _calling_back = threads::call_back();
    let Conversion { memory, handle, count, file, position } = conversion;
    let state = pointer(extra_state);
    if wide {
        // SAFETY: - the type is that of MPI_Register_datarep_c, which took the function.
        let function = unsafe { function.function::<ConversionFunctionLarge>() };
        // SAFETY: - memory and file have room for the elements: the contract of the MPI call, and the caller.
        unsafe { function(memory, handle, count, file, position, state) }
    } else {
        let count = c_int::try_from(count).expect("counts that do not fit an int are split");
        // SAFETY: - the type is that of MPI_Register_datarep, which took the function.
        let function = unsafe { function.function::<ConversionFunction>() };
        // SAFETY: - memory and file have room for the elements: the contract of the MPI call, and the caller.
        unsafe { function(memory, handle, count, file, position, state) }
    }
}

/// Calls the extent function of a data representation. Returns its code and the extent.
pub fn call_datarep_extent(function: Callback, datatype: DatatypeHandle, extra_state: usize) -> (c_int, isize) {
    let _calling_back = threads::call_back();
    let mut extent = 0;
    // SAFETY: - the type is that of MPI_Datarep_extent_function.
    let function = unsafe { function.function::<ExtentFunction>() };
    // SAFETY: - the extent is valid for writes: a local. The state is the program's own value.
    let code = unsafe { function(datatype, &mut extent, pointer(extra_state)) };
    (code, extent)
}

/// Calls a generalized request's query function. Returns its code.
pub fn call_request_query(function: Callback, extra_state: usize, status: &mut Status) -> c_int {
    // SAFETY: - the type is that of MPI_Grequest_query_function.
    let function = unsafe { function.function::<unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int>() };
    // SAFETY: - the status is valid for writes: a reference. The other pointer is the program's own value.
    unsafe { function(pointer(extra_state), status) }
}

/// Calls a generalized request's free function. Returns its code.
pub fn call_request_free(function: Callback, extra_state: usize) -> c_int {
    // SAFETY: - the type is that of MPI_Grequest_free_function.
    let function = unsafe { function.function::<unsafe extern "C" fn(*mut c_void) -> c_int>() };
    // SAFETY: - the pointer is the program's own value, which only its function uses.
    unsafe { function(pointer(extra_state)) }
}

/// Calls a generalized request's cancel function. Returns its code.
pub fn call_request_cancel(function: Callback, extra_state: usize, complete: bool) -> c_int {
    // SAFETY: - the type is that of MPI_Grequest_cancel_function.
    let function = unsafe { function.function::<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>() };
    // SAFETY: - the pointer is the program's own value, which only its function uses.
    unsafe { function(pointer(extra_state), c_int::from(complete)) }
}

/// Calls a tool's function for an event.
pub fn call_event(function: Callback, instance: ToolHandle, registration: ToolHandle, safety: c_int, user_data: usize) {
    type Function = unsafe extern "C" fn(ToolHandle, ToolHandle, c_int, *mut c_void);
    // SAFETY: - the type is that of MPI_T_event_cb_function.
    let function = unsafe { function.function::<Function>() };
    // SAFETY: - the pointer is the program's own value, which only its function uses.
    unsafe { function(instance, registration, safety, pointer(user_data)) }
}

/// Calls a tool's function for `count` dropped events.
pub fn call_dropped(
    function: Callback,
    count: Count,
    registration: ToolHandle,
    source: c_int,
    safety: c_int,
    user_data: usize,
) {
    type Function = unsafe extern "C" fn(Count, ToolHandle, c_int, c_int, *mut c_void);
    // SAFETY: - the type is that of MPI_T_event_dropped_cb_function.
    let function = unsafe { function.function::<Function>() };
    // SAFETY: - the pointer is the program's own value, which only its function uses.
    unsafe { function(count, registration, source, safety, pointer(user_data)) }
}

/// Calls a tool's function for a freed registration, of which no callback runs any more.
pub fn call_freed(function: Callback, registration: ToolHandle, safety: c_int, user_data: usize) {
    type Function = unsafe extern "C" fn(ToolHandle, c_int, *mut c_void);
    // SAFETY: - the type is that of MPI_T_event_free_cb_function.
    let function = unsafe { function.function::<Function>() };
    // SAFETY: - the pointer is the program's own value, which only its function uses.
    unsafe { function(registration, safety, pointer(user_data)) }
}

fn pointer(value: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(value)
}
