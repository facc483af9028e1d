//! Reductions in floating-point formats without a Rust type: C's `long double`, half and quadruple precision.
//!
//! A comparison needs no arithmetic: in each of these formats a number is a sign, and a magnitude whose bits order as
//! an integer does.

use super::arithmetic::{self, Arithmetic, Bits};
use super::each::each;
use super::operator::Operator;
use crate::basic::Scalar;
use std::cmp::Ordering;

/// True when this machine can compute sums and products.
pub(super) fn has_arithmetic(scalar: Scalar) -> bool {
    arithmetic::of(scalar).is_some()
}

/// Applies an operator that is available on the format.
pub(super) fn reduce(op: Operator, scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8) {
    match op {
        Operator::Minimum => apply(scalar, count, input, in_out, |a, b| prefer(Ordering::Less, scalar, a, b)),
        Operator::Maximum => apply(scalar, count, input, in_out, |a, b| prefer(Ordering::Greater, scalar, a, b)),
        Operator::Sum => apply(scalar, count, input, in_out, arithmetic_of(scalar).add),
        Operator::Product => apply(scalar, count, input, in_out, arithmetic_of(scalar).multiply),
        other => unreachable!("Operator::support excludes {other:?} on {scalar:?}"),
    }
}

/// Multiplies complex numbers.
pub(super) fn multiply_complex(scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8) {
    let Arithmetic { add, subtract, multiply } = arithmetic_of(scalar);
    let product = |a: [Bits; 2], b: [Bits; 2]| {
        let real = subtract(multiply(a[0], b[0]), multiply(a[1], b[1]));
        let imaginary = add(multiply(a[0], b[1]), multiply(a[1], b[0]));
        [real, imaginary]
    };
    if scalar == Scalar::F16 {
        each::<[[u8; 2]; 2]>(count, input, in_out, |a, b| product(a.map(widen), b.map(widen)).map(narrow));
    } else {
        each::<[Bits; 2]>(count, input, in_out, product);
    }
}

fn arithmetic_of(scalar: Scalar) -> Arithmetic {
    arithmetic::of(scalar).expect("Operator::support excludes formats without arithmetic")
}

fn widen(half: [u8; 2]) -> Bits {
    let mut bits = Bits::default();
    bits[..2].copy_from_slice(&half);
    bits
}

fn narrow(bits: Bits) -> [u8; 2] {
    [bits[0], bits[1]]
}

#[inline(always)]
fn apply(scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8, f: impl Fn(Bits, Bits) -> Bits) {
    if scalar == Scalar::F16 {
        each::<[u8; 2]>(count, input, in_out, |a, b| narrow(f(widen(a), widen(b))));
    } else {
        each::<Bits>(count, input, in_out, f);
    }
}

/// The left operand if it compares as `wanted`, else the right one. If one is NaN, the right one.
fn prefer(wanted: Ordering, scalar: Scalar, a: Bits, b: Bits) -> Bits {
    if compare(scalar, a, b) == Some(wanted) { a } else { b }
}

/// Orders two numbers; `None` when one is NaN.
pub(super) fn compare(scalar: Scalar, a: Bits, b: Bits) -> Option<Ordering> {
    Some(key(scalar, a)?.cmp(&key(scalar, b)?))
}

/// An integer with the order of the numbers; `None` for NaN.
fn key(scalar: Scalar, bits: Bits) -> Option<i128> {
    let bits = u128::from_le_bytes(bits);
    // Number of bits, and the largest magnitude, which is infinity.
    let (width, infinity) = match scalar {
        Scalar::F16 => (16, 0x7c00),
        Scalar::LongDouble if cfg!(target_arch = "x86_64") => (80, 0x7fff_8000_0000_0000_0000),
        _ => (128, 0x7fff << 112),
    };
    let magnitude = bits & ((1 << (width - 1)) - 1);
    let negative = bits >> (width - 1) & 1 == 1;
    if magnitude > infinity {
        return None;
    }
    // Both zeros have the key 0.
    Some(if negative { -(magnitude as i128) } else { magnitude as i128 })
}
