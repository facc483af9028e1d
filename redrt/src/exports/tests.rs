//! Calls of a C program, through the exports.

use super::*;
use redrt_abi::handle::{CommHandle, DatatypeHandle, ErrhandlerHandle, GroupHandle, InfoHandle, OpHandle};
use redrt_comm::objects::host;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null, null_mut};

/// One call of an export.
macro_rules! unsafe_call {
    ($($call:tt)*) => {
        // SAFETY: - the pointers are valid for reads and writes: they are to locals.
        unsafe { $($call)* }
    };
}

mod tools;

/// Makes the process active, with errors returned. All tests here share it.
fn begin() {
    redrt_abi::phase::set_active();
    call(|| unsafe_call!(MPI_Comm_set_errhandler(CommHandle::SELF, ErrhandlerHandle::ERRORS_RETURN)));
}

#[track_caller]
fn call(function: impl FnOnce() -> c_int) {
    assert_eq!(function(), MPI_SUCCESS);
}

fn vector_of_int() -> DatatypeHandle {
    let mut vector = DatatypeHandle::NULL;
    call(|| unsafe_call!(MPI_Type_vector(3, 1, 2, DatatypeHandle::INT, &mut vector)));
    call(|| unsafe_call!(MPI_Type_commit(&mut vector)));
    vector
}

#[test]
fn both_twins_of_a_constructor_make_the_same_type() {
    begin();
    let small = vector_of_int();
    let mut large = DatatypeHandle::NULL;
    call(|| unsafe_call!(MPI_Type_vector_c(3, 1, 2, DatatypeHandle::INT, &mut large)));
    let (mut int_size, mut count_size) = (0, 0);
    let (mut lower, mut extent) = (0, 0);
    for datatype in [small, large] {
        call(|| unsafe_call!(MPI_Type_size(datatype, &mut int_size)));
        call(|| unsafe_call!(MPI_Type_size_c(datatype, &mut count_size)));
        call(|| unsafe_call!(MPI_Type_get_extent(datatype, &mut lower, &mut extent)));
        assert_eq!((int_size, count_size, lower, extent), (12, 12, 0, 20));
    }
    // Each is decoded by its own query: three C ints for one, three counts for the other.
    let (mut ints, mut addresses, mut counts, mut types, mut combiner) = (0, 0, 0, 0, 0);
    call(|| unsafe_call!(MPI_Type_get_envelope(small, &mut ints, &mut addresses, &mut types, &mut combiner)));
    assert_eq!((ints, addresses, types, combiner), (3, 0, 1, MPI_COMBINER_VECTOR));
    let code = unsafe_call!(MPI_Type_get_envelope(large, &mut ints, &mut addresses, &mut types, &mut combiner));
    assert_eq!(code, MPI_ERR_TYPE);
    let (mut ints, mut addresses, mut types) = (0, 0, 0);
    call(|| {
        unsafe_call!(MPI_Type_get_envelope_c(large, &mut ints, &mut addresses, &mut counts, &mut types, &mut combiner))
    });
    assert_eq!((ints, addresses, counts, types), (0, 0, 3, 1));
    let (mut values, mut inner) = ([0; 3], [DatatypeHandle::NULL]);
    let (none, no_address) = (null_mut(), null_mut());
    call(|| {
        let inner = inner.as_mut_ptr();
        unsafe_call!(MPI_Type_get_contents_c(large, 0, 0, 3, 1, none, no_address, values.as_mut_ptr(), inner))
    });
    assert_eq!((values, inner), ([3, 1, 2], [DatatypeHandle::INT]));
    for mut datatype in [small, large] {
        let freed = datatype;
        call(|| unsafe_call!(MPI_Type_free(&mut datatype)));
        assert_eq!(datatype, DatatypeHandle::NULL);
        assert_eq!(unsafe_call!(MPI_Type_size(freed, &mut int_size)), MPI_ERR_TYPE);
    }
}

#[test]
fn pack_and_unpack_advance_their_position() {
    begin();
    let mut vector = vector_of_int();
    let source = [1, 2, 3, 4, 5];
    let (mut packed, mut position) = ([0u8; 20], 4);
    call(|| {
        let out = packed.as_mut_ptr().cast();
        unsafe_call!(MPI_Pack(source.as_ptr().cast(), 1, vector, out, 20, &mut position, CommHandle::WORLD))
    });
    assert_eq!(position, 16);
    let (mut back, mut position) = ([0; 5], 4i64);
    call(|| {
        let (data, to) = (packed.as_ptr().cast(), back.as_mut_ptr().cast());
        unsafe_call!(MPI_Unpack_c(data, 20, &mut position, to, 1, vector, CommHandle::WORLD))
    });
    assert_eq!((back, position), ([1, 0, 3, 0, 5], 16));
    let code = {
        let (data, to) = (packed.as_ptr().cast(), back.as_mut_ptr().cast());
        unsafe_call!(MPI_Unpack_c(data, 20, &mut position, to, 1, vector, CommHandle::WORLD))
    };
    assert_eq!(code, MPI_ERR_TRUNCATE);
    let (mut external, mut position) = ([0u8; 12], 0);
    call(|| {
        let (from, out) = (source.as_ptr().cast(), external.as_mut_ptr().cast());
        unsafe_call!(MPI_Pack_external(c"external32".as_ptr(), from, 1, vector, out, 12, &mut position))
    });
    assert_eq!(external, [0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 5]);
    call(|| unsafe_call!(MPI_Type_free(&mut vector)));
}

#[test]
fn statuses_count_elements() {
    begin();
    let mut status = Status::new(3, 4, 0);
    let mut count = 0;
    call(|| unsafe_call!(MPI_Status_set_elements_c(&mut status, DatatypeHandle::DOUBLE_INT, 5)));
    assert_eq!(status.byte_count(), 2 * 12 + 8);
    call(|| unsafe_call!(MPI_Get_elements(&status, DatatypeHandle::DOUBLE_INT, &mut count)));
    assert_eq!(count, 5);
    call(|| unsafe_call!(MPI_Get_count(&status, DatatypeHandle::DOUBLE_INT, &mut count)));
    assert_eq!(count, MPI_UNDEFINED);
    // A count above the range of an int is undefined there, and exact in the large-count version.
    status.set_byte_count(1 << 33);
    call(|| unsafe_call!(MPI_Get_count(&status, DatatypeHandle::BYTE, &mut count)));
    assert_eq!(count, MPI_UNDEFINED);
    let mut large = 0;
    call(|| unsafe_call!(MPI_Get_count_c(&status, DatatypeHandle::BYTE, &mut large)));
    assert_eq!(large, 1 << 33);
    let mut fortran = [0; 8];
    call(|| unsafe_call!(MPI_Status_c2f(&status, fortran.as_mut_ptr())));
    let mut back = Status::empty();
    call(|| unsafe_call!(MPI_Status_f2c(fortran.as_ptr(), &mut back)));
    assert_eq!((back, fortran[..2] == [3, 4]), (status, true));
}

#[test]
fn reductions_check_operation_and_type() {
    begin();
    let (input, mut in_out) = ([1, 2, 3], [10, 20, 30]);
    let reduce = |op, datatype, count, to: *mut c_int| {
        unsafe_call!(MPI_Reduce_local(input.as_ptr().cast(), to.cast(), count, datatype, op))
    };
    assert_eq!(reduce(OpHandle::SUM, DatatypeHandle::INT, 3, in_out.as_mut_ptr()), MPI_SUCCESS);
    assert_eq!(in_out, [11, 22, 33]);
    assert_eq!(reduce(OpHandle::SUM, DatatypeHandle::WCHAR, 3, in_out.as_mut_ptr()), MPI_ERR_OP);
    assert_eq!(reduce(OpHandle::NULL, DatatypeHandle::INT, 3, in_out.as_mut_ptr()), MPI_ERR_OP);
    assert_eq!(reduce(OpHandle::SUM, DatatypeHandle::NULL, 3, in_out.as_mut_ptr()), MPI_ERR_TYPE);
    assert_eq!(reduce(OpHandle::SUM, DatatypeHandle::INT, -1, in_out.as_mut_ptr()), MPI_ERR_COUNT);
    assert_eq!(in_out, [11, 22, 33]);
}

#[test]
fn attributes_are_found_again_and_predefined_ones_are_there() {
    begin();
    let (mut keyval, mut flag, mut value): (c_int, c_int, *mut c_void) = (0, -1, null_mut());
    call(|| {
        let (copy, delete) = (MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN);
        unsafe_call!(MPI_Type_create_keyval(copy, delete, &mut keyval, null_mut()))
    });
    let mut datatype = vector_of_int();
    let mut attribute = 7;
    let out: *mut c_void = from_mut(&mut value).cast();
    call(|| unsafe_call!(MPI_Type_get_attr(datatype, keyval, out, &mut flag)));
    assert_eq!(flag, 0);
    call(|| unsafe_call!(MPI_Type_set_attr(datatype, keyval, from_mut(&mut attribute).cast())));
    call(|| unsafe_call!(MPI_Type_get_attr(datatype, keyval, out, &mut flag)));
    assert_eq!((flag, value.cast()), (1, from_mut(&mut attribute)));
    call(|| unsafe_call!(MPI_Type_free(&mut datatype)));
    call(|| unsafe_call!(MPI_Type_free_keyval(&mut keyval)));
    assert_eq!(keyval, MPI_KEYVAL_INVALID);
    call(|| unsafe_call!(MPI_Comm_get_attr(CommHandle::WORLD, MPI_TAG_UB, out, &mut flag)));
    assert_eq!(flag, 1);
    // SAFETY: - valid for reads: the value of MPI_TAG_UB is the address of an int that stays.
    assert!(unsafe { *value.cast::<c_int>() } >= 32767);
    let code = unsafe_call!(MPI_Comm_set_attr(CommHandle::WORLD, MPI_TAG_UB, null_mut()));
    assert_eq!(code, MPI_ERR_KEYVAL);
}

thread_local! {
    static SEEN: Cell<Option<(usize, c_int)>> = const { Cell::new(None) };
}

/// Records its arguments. Rust cannot define a function with `...`; the ABI is the same here.
unsafe extern "C" fn remember(handle: *mut usize, code: *mut c_int) {
    // SAFETY: - valid for reads: the library passes pointers to its local variables.
    SEEN.set(Some(unsafe { (*handle, *code) }));
    // SAFETY: - valid for writes: the library passes pointers to its local variables.
    unsafe { *code = 0 };
}

#[test]
fn error_handlers_are_called_with_the_handle_and_the_code() {
    use redrt_abi::error::{Error, Scope};
    use redrt_comm::objects::errhandler::{Errhandler, ErrhandlerKind, create, free, handle_of, raise, resolve};
    use redrt_comm::objects::error_codes::described;
    let handle = create(ErrhandlerKind::Comm, Callback(remember as *const () as usize).into());
    let errhandler = resolve(handle, ErrhandlerKind::Comm).unwrap();
    assert!(resolve(handle, ErrhandlerKind::File).is_err(), "a handler is for one kind of object");
    let Errhandler::User(user) = &*errhandler else { panic!("{errhandler:?}") };
    assert_eq!(user.call(Scope::Comm(CommHandle::WORLD), MPI_ERR_RANK), 0);
    assert_eq!(SEEN.take(), Some((257, MPI_ERR_RANK)));
    // The program has two references and frees both; objects that use the handler have their own.
    assert_eq!(handle_of(&errhandler), handle);
    free(handle).unwrap();
    free(handle).unwrap();
    assert!(free(handle).is_err());
    let again = handle_of(&errhandler);
    assert!(again != handle && resolve(again, ErrhandlerKind::Comm).is_ok());
    free(again).unwrap();
    begin();
    let error = Error::new(MPI_ERR_RANK, "rank 9 in a communicator of 4");
    assert_eq!(described(&error), "MPI_ERR_RANK: rank 9 in a communicator of 4");
    assert_eq!(raise("MPI_Send", error, Scope::Comm(CommHandle::WORLD)), MPI_ERR_RANK);
}

/// An adapter of a façade: records the binding's function, and the code.
unsafe extern "C" fn remember_by(_function: usize, by: usize, _handle: usize, code: c_int) -> c_int {
    SEEN.set(Some((by, code)));
    code
}

#[test]
fn error_handlers_of_cxx_are_called_by_what_goes_with_them() {
    use redrt_abi::error::{Error, Scope};
    use redrt_comm::objects::errhandler::{Errhandler, ErrhandlerKind};
    use redrt_comm::objects::errhandler::{change_function, create, free, handle_of, on_exception, raise, resolve};
    use redrt_runtime::callbacks::UserFunction;
    begin();
    let adapter = Callback(remember_by as *const () as usize);
    let handle = create(ErrhandlerKind::Comm, UserFunction::adapted(Callback(8), adapter));
    change_function(handle, |function| function.called_by(Callback(7)));
    let errhandler = resolve(handle, ErrhandlerKind::Comm).unwrap();
    let Errhandler::User(user) = &*errhandler else { panic!("{errhandler:?}") };
    assert_eq!(user.call(Scope::Comm(CommHandle::WORLD), MPI_ERR_RANK), MPI_ERR_RANK);
    assert_eq!(SEEN.take(), Some((7, MPI_ERR_RANK)));
    // The exchange keeps the number of references.
    free(handle).unwrap();
    assert!(free(handle).is_err());

    // The façade makes exceptions from the returned code, and may have a function called before.
    let thrown = ErrhandlerHandle::ERRORS_THROW_EXCEPTIONS;
    assert_eq!(handle_of(&resolve(thrown, ErrhandlerKind::File).unwrap()), thrown);
    call(|| unsafe_call!(MPI_Comm_set_errhandler(CommHandle::SELF, thrown)));
    let failed = || raise("MPI_Send", Error::new(MPI_ERR_RANK, "rank 9"), Scope::Comm(CommHandle::SELF));
    assert_eq!((failed(), SEEN.take()), (MPI_ERR_RANK, None));
    on_exception(UserFunction::adapted(Callback(8), adapter));
    assert_eq!((failed(), SEEN.take()), (MPI_ERR_RANK, Some((0, MPI_ERR_RANK))));
    call(|| unsafe_call!(MPI_Comm_set_errhandler(CommHandle::SELF, ErrhandlerHandle::ERRORS_RETURN)));
}

#[test]
fn data_representations_report_wrong_arguments() {
    begin();
    let none = Callback(0);
    let register = |name: &std::ffi::CStr, extent| {
        unsafe_call!(MPI_Register_datarep(name.as_ptr(), none, none, extent, null_mut()))
    };
    assert_eq!(register(c"own", none), MPI_ERR_ARG);
    let extent = Callback(remember as *const () as usize);
    assert_eq!(register(c"", extent), MPI_ERR_ARG);
    assert_eq!(register(c"external32", extent), MPI_ERR_DUP_DATAREP);
    assert_eq!(register(c"own", extent), MPI_SUCCESS);
    assert_eq!(register(c"own", extent), MPI_ERR_DUP_DATAREP);
}

#[test]
fn groups_and_infos_report_wrong_arguments() {
    begin();
    let (mut group, mut size) = (GroupHandle::NULL, 0);
    let ranks = [0];
    call(|| unsafe_call!(MPI_Group_incl(GroupHandle::EMPTY, 0, null(), &mut group)));
    assert_eq!(group, GroupHandle::EMPTY);
    let code = unsafe_call!(MPI_Group_incl(GroupHandle::EMPTY, 1, ranks.as_ptr(), &mut group));
    assert_eq!(code, MPI_ERR_RANK);
    assert_eq!(unsafe_call!(MPI_Group_size(GroupHandle::NULL, &mut size)), MPI_ERR_GROUP);
    assert_eq!(unsafe_call!(MPI_Group_size(GroupHandle::EMPTY, null_mut())), MPI_ERR_ARG);
    let long = std::ffi::CString::new("k".repeat(MPI_MAX_INFO_KEY as usize)).unwrap();
    let mut info = InfoHandle::NULL;
    call(|| unsafe_call!(MPI_Info_create(&mut info)));
    assert_eq!(unsafe_call!(MPI_Info_set(info, long.as_ptr(), c"v".as_ptr())), MPI_ERR_INFO_KEY);
    assert_eq!(unsafe_call!(MPI_Info_delete(info, c"k".as_ptr())), MPI_ERR_INFO_NOKEY);
    assert_eq!(unsafe_call!(MPI_Info_set(InfoHandle::NULL, c"k".as_ptr(), c"v".as_ptr())), MPI_ERR_INFO);
    call(|| unsafe_call!(MPI_Info_free(&mut info)));
}
