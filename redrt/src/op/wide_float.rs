//! Floating point that Rust has no type for: C's `long double`, half and quadruple precision.
//!
//! Comparing needs no arithmetic: all these formats are a sign and a magnitude that orders as an integer. Sums and
//! products are done by the x87 unit, for the format that is its own; [`super::Op::check`] refuses them elsewhere.

use super::Standard;
use super::kernel::each;
use crate::datatype::basic::Scalar;

type Bits = [u8; 16];

/// Reduces elements of a format that is compared by its bits.
pub(super) fn reduce(op: Standard, scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8) {
    let left_wins = |ordering: Option<std::cmp::Ordering>| match op {
        Standard::Minimum => ordering.is_some_and(std::cmp::Ordering::is_lt),
        _ => ordering.is_some_and(std::cmp::Ordering::is_gt),
    };
    match (op, scalar) {
        (Standard::Minimum | Standard::Maximum, Scalar::F16) => {
            let widen = |bytes: [u8; 2]| {
                let mut wide = Bits::default();
                wide[..2].copy_from_slice(&bytes);
                wide
            };
            each::<[u8; 2]>(
                count,
                input,
                in_out,
                |a, b| if left_wins(compare(scalar, widen(a), widen(b))) { a } else { b },
            );
        }
        (Standard::Minimum | Standard::Maximum, _) => {
            each::<Bits>(count, input, in_out, |a, b| if left_wins(compare(scalar, a, b)) { a } else { b });
        }
        (Standard::Sum, Scalar::LongDouble) => each::<Bits>(count, input, in_out, x87::add),
        (Standard::Product, Scalar::LongDouble) => each::<Bits>(count, input, in_out, x87::multiply),
        (other, _) => unreachable!("Op::check refuses {other:?} on {scalar:?}"),
    }
}

/// Multiplies complex numbers of `long double`.
pub(super) fn multiply_complex(scalar: Scalar, count: usize, input: *const u8, in_out: *mut u8) {
    assert_eq!(scalar, Scalar::LongDouble, "Op::check refuses products of other wide formats");
    each::<[Bits; 2]>(count, input, in_out, |a, b| {
        let real = x87::subtract(x87::multiply(a[0], b[0]), x87::multiply(a[1], b[1]));
        let imaginary = x87::add(x87::multiply(a[0], b[1]), x87::multiply(a[1], b[0]));
        [real, imaginary]
    });
}

/// Orders two numbers; `None` when one is not a number.
pub(super) fn compare(scalar: Scalar, a: Bits, b: Bits) -> Option<std::cmp::Ordering> {
    Some(key(scalar, a)?.cmp(&key(scalar, b)?))
}

/// An integer that orders as the number does; `None` for NaN.
fn key(scalar: Scalar, bits: Bits) -> Option<i128> {
    let bits = u128::from_le_bytes(bits);
    // Bits in all, and the largest magnitude, infinity.
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

#[cfg(target_arch = "x86_64")]
mod x87 {
    use super::Bits;
    use std::arch::asm;

    macro_rules! operation {
        ($name:ident, $instruction:literal) => {
            /// One operation on two numbers. The padding of the result is zero.
            pub(in super::super) fn $name(a: Bits, b: Bits) -> Bits {
                let mut result = Bits::default();
                // SAFETY: - the three pointers are to 16 bytes each, of which 10 are used.
                //         - the stack of the unit is empty before, as the ABI demands, and after.
                unsafe {
                    asm!(
                        "fld tbyte ptr [{a}]",
                        "fld tbyte ptr [{b}]",
                        $instruction,
                        "fstp tbyte ptr [{result}]",
                        a = in(reg) &raw const a,
                        b = in(reg) &raw const b,
                        result = in(reg) &raw mut result,
                        out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                        out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                        options(nostack)
                    );
                }
                result
            }
        };
    }

    operation!(add, "faddp st(1), st");
    operation!(subtract, "fsubp st(1), st");
    operation!(multiply, "fmulp st(1), st");
}

#[cfg(not(target_arch = "x86_64"))]
mod x87 {
    use super::Bits;

    fn missing() -> Bits {
        unreachable!("Op::check refuses arithmetic on long double here")
    }

    pub(in super::super) fn add(_: Bits, _: Bits) -> Bits {
        missing()
    }

    pub(in super::super) fn subtract(_: Bits, _: Bits) -> Bits {
        missing()
    }

    pub(in super::super) fn multiply(_: Bits, _: Bits) -> Bits {
        missing()
    }
}
