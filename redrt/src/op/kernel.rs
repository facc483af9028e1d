//! Element-wise loops for the operations of the standard. Operands may lie at any address: messages arrive packed.

use super::Standard;
use super::wide_float;
use redrt_datatype::basic::{Basic, Class, Scalar};
use std::ops::{Add, Mul, Sub};

/// `in_out[i] = f(input[i], in_out[i])`.
///
/// Both buffers hold `count` elements, which is the promise of the MPI call that is being served.
#[inline(always)]
pub(super) fn each<T: Copy>(count: usize, input: *const u8, in_out: *mut u8, f: impl Fn(T, T) -> T) {
    let (input, in_out) = (input.cast::<T>(), in_out.cast::<T>());
    for index in 0..count {
        let (input, in_out) = (input.wrapping_add(index), in_out.wrapping_add(index));
        // SAFETY: - element `index` is there to be read: the C call's promise; at any alignment.
        let left = unsafe { input.read_unaligned() };
        // SAFETY: - as above.
        let right = unsafe { in_out.read_unaligned() };
        // SAFETY: - as above, and in_out may be written.
        unsafe { in_out.write_unaligned(f(left, right)) };
    }
}

macro_rules! integer {
    ($type:ty, $op:expr, $count:expr, $input:expr, $in_out:expr) => {
        match $op {
            Standard::Sum => each::<$type>($count, $input, $in_out, |a, b| a.wrapping_add(b)),
            Standard::Product => each::<$type>($count, $input, $in_out, |a, b| a.wrapping_mul(b)),
            Standard::Minimum => each::<$type>($count, $input, $in_out, |a, b| a.min(b)),
            Standard::Maximum => each::<$type>($count, $input, $in_out, |a, b| a.max(b)),
            Standard::BitAnd => each::<$type>($count, $input, $in_out, |a, b| a & b),
            Standard::BitOr => each::<$type>($count, $input, $in_out, |a, b| a | b),
            Standard::BitXor => each::<$type>($count, $input, $in_out, |a, b| a ^ b),
            Standard::LogicalAnd => each::<$type>($count, $input, $in_out, |a, b| <$type>::from(a != 0 && b != 0)),
            Standard::LogicalOr => each::<$type>($count, $input, $in_out, |a, b| <$type>::from(a != 0 || b != 0)),
            Standard::LogicalXor => {
                each::<$type>($count, $input, $in_out, |a, b| <$type>::from((a != 0) != (b != 0)));
            }
            other => unreachable!("Op::check refuses {other:?} on integers"),
        }
    };
}

/// Applies an operation that [`super::Op::check`] has let pass.
pub(super) fn reduce(op: Standard, basic: Basic, count: usize, input: *const u8, in_out: *mut u8) {
    if basic.class == Class::Complex {
        return complex(op, basic.scalar, count, input, in_out);
    }
    match basic.scalar {
        Scalar::I8 => integer!(i8, op, count, input, in_out),
        Scalar::U8 => integer!(u8, op, count, input, in_out),
        Scalar::I16 => integer!(i16, op, count, input, in_out),
        Scalar::U16 => integer!(u16, op, count, input, in_out),
        Scalar::I32 => integer!(i32, op, count, input, in_out),
        Scalar::U32 => integer!(u32, op, count, input, in_out),
        Scalar::I64 => integer!(i64, op, count, input, in_out),
        Scalar::U64 => integer!(u64, op, count, input, in_out),
        Scalar::I128 => integer!(i128, op, count, input, in_out),
        Scalar::F32 => float::<f32>(op, count, input, in_out),
        Scalar::F64 => float::<f64>(op, count, input, in_out),
        Scalar::LongDouble | Scalar::F16 | Scalar::F128 => {
            wide_float::reduce(op, basic.scalar, count, input, in_out);
        }
    }
}

fn float<T: Copy + PartialOrd + Add<Output = T> + Mul<Output = T>>(
    op: Standard,
    count: usize,
    input: *const u8,
    in_out: *mut u8,
) {
    match op {
        Standard::Sum => each::<T>(count, input, in_out, |a, b| a + b),
        Standard::Product => each::<T>(count, input, in_out, |a, b| a * b),
        // A comparison with a NaN is false, so the right operand stays: the same on every machine.
        Standard::Minimum => each::<T>(count, input, in_out, |a, b| if a < b { a } else { b }),
        Standard::Maximum => each::<T>(count, input, in_out, |a, b| if a > b { a } else { b }),
        other => unreachable!("Op::check refuses {other:?} on floating point"),
    }
}

fn complex(op: Standard, scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8) {
    match (op, scalar) {
        (Standard::Sum, scalar) => {
            let part = Basic::new(scalar, Class::Float);
            reduce(op, part, 2 * count, input, in_out);
        }
        (_, Scalar::F32) => each::<[f32; 2]>(count, input, in_out, multiply),
        (_, Scalar::F64) => each::<[f64; 2]>(count, input, in_out, multiply),
        (_, scalar) => wide_float::multiply_complex(scalar, count, input, in_out),
    }
}

fn multiply<T: Copy + Add<Output = T> + Sub<Output = T> + Mul<Output = T>>(a: [T; 2], b: [T; 2]) -> [T; 2] {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}
