//! The operators on basic elements: a loop for each type.

use super::each::each;
use super::operator::Operator;
use super::wide_float;
use crate::basic::{Basic, Class, Scalar};
use std::ops::{Add, Mul, Sub};

macro_rules! integer {
    ($type:ty, $op:expr, $count:expr, $input:expr, $in_out:expr) => {
        match $op {
            Operator::Sum => each::<$type>($count, $input, $in_out, |a, b| a.wrapping_add(b)),
            Operator::Product => each::<$type>($count, $input, $in_out, |a, b| a.wrapping_mul(b)),
            Operator::Minimum => each::<$type>($count, $input, $in_out, |a, b| a.min(b)),
            Operator::Maximum => each::<$type>($count, $input, $in_out, |a, b| a.max(b)),
            Operator::BitAnd => each::<$type>($count, $input, $in_out, |a, b| a & b),
            Operator::BitOr => each::<$type>($count, $input, $in_out, |a, b| a | b),
            Operator::BitXor => each::<$type>($count, $input, $in_out, |a, b| a ^ b),
            Operator::LogicalAnd => each::<$type>($count, $input, $in_out, |a, b| <$type>::from(a != 0 && b != 0)),
            Operator::LogicalOr => each::<$type>($count, $input, $in_out, |a, b| <$type>::from(a != 0 || b != 0)),
            Operator::LogicalXor => {
                each::<$type>($count, $input, $in_out, |a, b| <$type>::from((a != 0) != (b != 0)));
            }
            other => unreachable!("Operator::support excludes {other:?} on integers"),
        }
    };
}

/// Applies an operator that is available on the type.
pub(super) fn reduce(op: Operator, basic: Basic, count: usize, input: *const u8, in_out: *mut u8) {
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
    op: Operator,
    count: usize,
    input: *const u8,
    in_out: *mut u8,
) {
    match op {
        Operator::Sum => each::<T>(count, input, in_out, |a, b| a + b),
        Operator::Product => each::<T>(count, input, in_out, |a, b| a * b),
        // A comparison with a NaN is false, so the right operand stays: the same on every machine.
        Operator::Minimum => each::<T>(count, input, in_out, |a, b| if a < b { a } else { b }),
        Operator::Maximum => each::<T>(count, input, in_out, |a, b| if a > b { a } else { b }),
        other => unreachable!("Operator::support excludes {other:?} on floating point"),
    }
}

fn complex(op: Operator, scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8) {
    match (op, scalar) {
        (Operator::Sum, scalar) => {
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
