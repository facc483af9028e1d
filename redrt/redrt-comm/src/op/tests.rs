//! Operations as objects: the types on which they are defined, and functions of the program.

use super::*;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{Callback, DATATYPE_NAMES, MPI_ERR_OP};
use std::ffi::c_void;

fn applied<T: Copy>(op: OpHandle, datatype: DatatypeHandle, a: &[T], b: &[T]) -> Vec<T> {
    let (datatype, mut in_out) = (datatype::resolve(datatype).unwrap(), b.to_vec());
    assert_eq!(datatype.extent() as usize, size_of::<T>());
    let op = resolve(op).unwrap();
    op.reduce(&datatype, a.len() as i64, a.as_ptr().cast(), in_out.as_mut_ptr().cast()).unwrap();
    in_out
}

#[test]
fn each_handle_is_its_operation() {
    let of = |op| applied(op, DatatypeHandle::INT, &[6, 0], &[3, 5]);
    for (op, expected) in [
        (OpHandle::SUM, [9, 5]),
        (OpHandle::PROD, [18, 0]),
        (OpHandle::MIN, [3, 0]),
        (OpHandle::MAX, [6, 5]),
        (OpHandle::BAND, [2, 0]),
        (OpHandle::BOR, [7, 5]),
        (OpHandle::BXOR, [5, 5]),
        (OpHandle::LAND, [1, 0]),
        (OpHandle::LOR, [1, 1]),
        (OpHandle::LXOR, [0, 1]),
    ] {
        assert_eq!(of(op), expected, "{}", resolve(op).unwrap().name());
    }
    for (op, expected) in [(OpHandle::MINLOC, [3, 7]), (OpHandle::MAXLOC, [6, 8])] {
        assert_eq!(applied(op, DatatypeHandle::_2INT, &[[6, 8]], &[[3, 7]]), [expected]);
    }
    let mut codes: Vec<_> = STANDARD.iter().map(|(op, _)| resolve(*op).unwrap().code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), STANDARD.len());
    assert!(codes.iter().all(|code| *code < USER_CODE));
}

#[test]
fn every_defined_combination_runs_and_every_other_is_refused() {
    let mut defined_count = 0;
    for (name, value) in DATATYPE_NAMES {
        let Ok(datatype) = datatype::resolve(DatatypeHandle::from_int(*value)) else { continue };
        for (handle, kind) in STANDARD {
            let op = resolve(*handle).unwrap();
            let (input, mut in_out) = ([1u8; 64], [1u8; 64]);
            let result = op.reduce(&datatype, 2, input.as_ptr(), in_out.as_mut_ptr());
            assert_eq!(result.is_ok(), op.check(&datatype).is_ok(), "{name} {kind:?}");
            match result {
                Ok(()) => defined_count += 1,
                Err(error) => assert_eq!((error.code(), in_out), (MPI_ERR_OP, [1; 64])),
            }
        }
    }
    assert!(defined_count > 300, "{defined_count}");
    let int = datatype::resolve(DatatypeHandle::INT).unwrap();
    let derived = Arc::new(Datatype::duplicate(&int));
    assert!(resolve(OpHandle::SUM).unwrap().check(&derived).is_err());
    assert!(resolve(OpHandle::NULL).is_err() && free(OpHandle::SUM).is_err());
}

unsafe extern "C" fn subtract(input: *const c_void, in_out: *mut c_void, count: *mut c_int, _: *mut DatatypeHandle) {
    // SAFETY: - valid for reads: the library passes the address of its count.
    for index in 0..unsafe { *count } as usize {
        // SAFETY: - in bounds: `input` has `count` ints.
        let left = unsafe { *input.cast::<i32>().add(index) };
        // SAFETY: - in bounds: `in_out` has `count` ints, and nothing else refers to them.
        unsafe { *in_out.cast::<i32>().add(index) = left - *in_out.cast::<i32>().add(index) };
    }
}

#[test]
fn operations_of_the_program_are_called_with_input_on_the_left() {
    let handle = create(Callback(subtract as *const () as usize).into(), false, false);
    assert!(!resolve(handle).unwrap().is_commutative());
    assert_eq!(applied(handle, DatatypeHandle::INT, &[10, 20, 30], &[1, 2, 3]), [9, 18, 27]);
    free(handle).unwrap();
    assert!(resolve(handle).is_err() && free(handle).is_err());
}

/// An adapter of a façade: adds the numbers of the program's functions to the first element.
unsafe extern "C" fn add_numbers(function: usize, by: usize, _: *const c_void, in_out: *mut c_void, _: i64, _: usize) {
    // SAFETY: - `in_out` holds an int, and nothing else refers to it.
    unsafe { *in_out.cast::<i32>() += (function + by) as i32 };
}

#[test]
fn the_adapter_of_a_cxx_operator_is_told_what_goes_with_it() {
    let adapted = UserFunction::adapted(Callback(40), Callback(add_numbers as *const () as usize));
    let handle = create(adapted, false, true);
    let held = resolve(handle).unwrap();
    assert_eq!(applied(handle, DatatypeHandle::INT, &[0], &[100]), [140]);
    change_function(handle, |function| function.called_by(Callback(2)));
    assert_eq!(applied(handle, DatatypeHandle::INT, &[0], &[100]), [142]);
    assert!(resolve(handle).unwrap().is_commutative() && !Arc::ptr_eq(&held, &resolve(handle).unwrap()));
    // Predefined operations and invalid handles stay unchanged.
    change_function(OpHandle::SUM, |_| panic!("it is no function of the program"));
    free(handle).unwrap();
    change_function(handle, |_| panic!("it is gone"));
}
