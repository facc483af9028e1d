//! The operations on every type they are defined on.

use super::*;
use crate::abi::{DATATYPE_NAMES, MPI_ERR_OP};
use crate::handle::DatatypeHandle;
use proptest::prelude::*;
use std::ffi::c_void;

fn apply<T: Copy>(op: OpHandle, datatype: DatatypeHandle, input: &[T], in_out: &mut [T]) -> Result {
    let datatype = datatype::resolve(datatype).unwrap();
    assert_eq!(datatype.extent() as usize, size_of::<T>());
    resolve(op)?.reduce(&datatype, input.len() as i64, input.as_ptr().cast(), in_out.as_mut_ptr().cast())
}

fn applied<T: Copy>(op: OpHandle, datatype: DatatypeHandle, a: &[T], b: &[T]) -> Vec<T> {
    let mut in_out = b.to_vec();
    apply(op, datatype, a, &mut in_out).unwrap();
    in_out
}

proptest! {
    #[test]
    fn integers_and_floats_agree_with_rust(
        pairs in prop::collection::vec((any::<i32>(), any::<i32>(), any::<f64>(), any::<f64>()), 0..70),
    ) {
        let a: Vec<_> = pairs.iter().map(|p| p.0).collect();
        let b: Vec<_> = pairs.iter().map(|p| p.1).collect();
        let of = |op| applied(op, DatatypeHandle::INT, &a, &b);
        let model = |f: fn(i32, i32) -> i32| a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect::<Vec<_>>();
        prop_assert_eq!(of(OpHandle::SUM), model(i32::wrapping_add));
        prop_assert_eq!(of(OpHandle::PROD), model(i32::wrapping_mul));
        prop_assert_eq!(of(OpHandle::MIN), model(i32::min));
        prop_assert_eq!(of(OpHandle::BXOR), model(|a, b| a ^ b));
        prop_assert_eq!(of(OpHandle::LXOR), model(|a, b| i32::from((a != 0) != (b != 0))));
        let a: Vec<_> = pairs.iter().map(|p| p.2).collect();
        let b: Vec<_> = pairs.iter().map(|p| p.3).collect();
        let of = |op| applied(op, DatatypeHandle::DOUBLE, &a, &b);
        let model = |f: fn(f64, f64) -> f64| a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect::<Vec<_>>();
        prop_assert_eq!(of(OpHandle::SUM), model(|a, b| a + b));
        prop_assert_eq!(of(OpHandle::MAX), model(f64::max));
    }

    #[test]
    fn long_doubles_agree_with_doubles_that_they_hold_exactly(a in -1e6..1e6f64, b in -1e6..1e6f64) {
        let long = |value: f64| long_double(value);
        for (op, expected) in [(OpHandle::MIN, a.min(b)), (OpHandle::MAX, a.max(b))] {
            prop_assert_eq!(applied(op, DatatypeHandle::LONG_DOUBLE, &[long(a)], &[long(b)]), vec![long(expected)]);
        }
        // Integers have exact sums and products in both formats.
        let (a, b) = (a.trunc(), b.trunc());
        if cfg!(target_arch = "x86_64") {
            for (op, expected) in [(OpHandle::SUM, a + b), (OpHandle::PROD, a * b)] {
                let found = applied(op, DatatypeHandle::LONG_DOUBLE, &[long(a)], &[long(b)]);
                prop_assert_eq!(found, vec![long(expected + 0.0)]);
            }
        }
    }
}

/// A double as x87 extended, with zero padding.
fn long_double(value: f64) -> [u8; 16] {
    let bits = value.to_bits();
    let mut out = [0; 16];
    let exponent = (bits >> 52 & 0x7ff) as u16;
    let sign = (bits >> 63) as u16;
    if exponent != 0 {
        let significand = 1 << 63 | (bits & ((1 << 52) - 1)) << 11;
        out[..8].copy_from_slice(&significand.to_le_bytes());
        out[8..10].copy_from_slice(&(sign << 15 | (exponent + 16383 - 1023)).to_le_bytes());
    }
    out
}

/// Quadruple precision has the same exponent as x87 and more digits, the first one implied.
fn quadruple(value: f64) -> [u8; 16] {
    let x87 = long_double(value);
    let significand = u128::from(u64::from_le_bytes(x87[..8].try_into().unwrap()) & (u64::MAX >> 1));
    (u128::from(u16::from_le_bytes([x87[8], x87[9]])) << 112 | significand << 49).to_le_bytes()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn quadruple_and_half_precision_add_and_multiply() {
    let (a, b) = (quadruple(1.5), quadruple(-4.0));
    for (op, expected) in [(OpHandle::SUM, -2.5), (OpHandle::PROD, -6.0), (OpHandle::MAX, 1.5)] {
        assert_eq!(applied(op, DatatypeHandle::REAL16, &[a], &[b]), [quadruple(expected)]);
    }
    let (a, b) = ([1.0, 2.0].map(quadruple), [3.0, -4.0].map(quadruple));
    assert_eq!(applied(OpHandle::PROD, DatatypeHandle::COMPLEX32, &[a], &[b]), [[11.0, 2.0].map(quadruple)]);
    // 1.5, -4, and their sum and product in half precision.
    let (a, b) = (0x3e00u16, 0xc400);
    for (op, expected) in [(OpHandle::SUM, 0xc100), (OpHandle::PROD, 0xc600), (OpHandle::MIN, 0xc400)] {
        assert_eq!(applied(op, DatatypeHandle::REAL2, &[a], &[b]), [expected]);
    }
    let (a, b) = ([0x3c00u16, 0x4000], [0x4200, 0xc400]);
    assert_eq!(applied(OpHandle::PROD, DatatypeHandle::COMPLEX4, &[a], &[b]), [[0x4980, 0x4000]]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn complex_numbers_multiply() {
    let (a, b) = ([1.0f64, 2.0], [3.0, -4.0]);
    assert_eq!(applied(OpHandle::PROD, DatatypeHandle::C_DOUBLE_COMPLEX, &[a], &[b]), [[11.0, 2.0]]);
    assert_eq!(applied(OpHandle::SUM, DatatypeHandle::C_DOUBLE_COMPLEX, &[a], &[b]), [[4.0, -2.0]]);
    let long = |value: [f64; 2]| value.map(long_double);
    let handle = DatatypeHandle::C_LONG_DOUBLE_COMPLEX;
    assert_eq!(applied(OpHandle::PROD, handle, &[long(a)], &[long(b)]), [long([11.0, 2.0])]);
    assert_eq!(applied(OpHandle::SUM, handle, &[long(a)], &[long(b)]), [long([4.0, -2.0])]);
}

#[test]
fn locations_prefer_the_smaller_index_on_ties() {
    let pairs = |values: &[(f64, i32)]| -> Vec<[u8; 16]> {
        let bytes = |(value, index): &(f64, i32)| {
            let mut out = [0; 16];
            out[..8].copy_from_slice(&value.to_ne_bytes());
            out[8..12].copy_from_slice(&index.to_ne_bytes());
            out
        };
        values.iter().map(bytes).collect()
    };
    let (a, b) = (pairs(&[(1.0, 5), (2.0, 1), (7.0, 3)]), pairs(&[(1.0, 4), (3.0, 0), (7.0, 9)]));
    let of = |op| applied(op, DatatypeHandle::DOUBLE_INT, &a, &b);
    assert_eq!(of(OpHandle::MINLOC), pairs(&[(1.0, 4), (2.0, 1), (7.0, 3)]));
    assert_eq!(of(OpHandle::MAXLOC), pairs(&[(1.0, 4), (3.0, 0), (7.0, 3)]));
    assert_eq!(applied(OpHandle::MAXLOC, DatatypeHandle::_2REAL, &[[1f32, 2.0]], &[[1f32, 3.0]]), [[1.0, 2.0]]);
    let long = |value, index: u8| {
        let mut out = [0; 32];
        out[..16].copy_from_slice(&long_double(value));
        out[16] = index;
        out
    };
    let found = applied(OpHandle::MINLOC, DatatypeHandle::LONG_DOUBLE_INT, &[long(-2.0, 7)], &[long(1.0, 1)]);
    assert_eq!(found, [long(-2.0, 7)]);
}

#[test]
fn every_defined_combination_runs_and_every_other_is_refused() {
    let mut defined_count = 0;
    for (name, value) in DATATYPE_NAMES {
        let Ok(datatype) = datatype::resolve(DatatypeHandle::from_int(*value)) else { continue };
        for (handle, standard) in STANDARD {
            let op = resolve(*handle).unwrap();
            let (input, mut in_out) = ([1u8; 64], [1u8; 64]);
            let result = op.reduce(&datatype, 2, input.as_ptr(), in_out.as_mut_ptr());
            assert_eq!(result.is_ok(), op.check(&datatype).is_ok(), "{name} {standard:?}");
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
    // SAFETY: - the library passes a valid count.
    for index in 0..unsafe { *count } as usize {
        // SAFETY: - and as many ints.
        let left = unsafe { *input.cast::<i32>().add(index) };
        // SAFETY: - as above.
        unsafe { *in_out.cast::<i32>().add(index) = left - *in_out.cast::<i32>().add(index) };
    }
}

#[test]
fn operations_of_the_program_are_called_with_input_on_the_left() {
    let handle = create(Callback(subtract as *const () as usize), false, false);
    assert!(!resolve(handle).unwrap().is_commutative());
    assert_eq!(applied(handle, DatatypeHandle::INT, &[10, 20, 30], &[1, 2, 3]), [9, 18, 27]);
    free(handle).unwrap();
    assert!(resolve(handle).is_err() && free(handle).is_err());
}

#[test]
fn unaligned_operands_are_fine() {
    let datatype = datatype::resolve(DatatypeHandle::DOUBLE).unwrap();
    let (mut a, mut b) = ([0u8; 25], [0u8; 25]);
    a[1..9].copy_from_slice(&1.5f64.to_ne_bytes());
    b[3..11].copy_from_slice(&2.5f64.to_ne_bytes());
    resolve(OpHandle::SUM).unwrap().reduce(&datatype, 1, a[1..].as_ptr(), b[3..].as_mut_ptr()).unwrap();
    assert_eq!(b[3..11], 4.0f64.to_ne_bytes());
}
