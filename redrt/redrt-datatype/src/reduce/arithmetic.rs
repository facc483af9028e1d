//! Sums and products in floating-point formats without a Rust type, on the bits of the operands.

use crate::basic::Scalar;

/// A number of up to 16 bytes, in the low ones; all others are zero.
pub(super) type Bits = [u8; 16];

/// The three operations that make sums and products, those of complex numbers included.
#[derive(Clone, Copy)]
pub(super) struct Arithmetic {
    pub(super) add: fn(Bits, Bits) -> Bits,
    pub(super) subtract: fn(Bits, Bits) -> Bits,
    pub(super) multiply: fn(Bits, Bits) -> Bits,
}

/// The arithmetic of a format; `None` where there is none on this machine.
pub(super) fn of(scalar: Scalar) -> Option<Arithmetic> {
    match scalar {
        Scalar::F16 => Some(Arithmetic { add: half::add, subtract: half::subtract, multiply: half::multiply }),
        #[cfg(target_arch = "x86_64")]
        Scalar::LongDouble => Some(Arithmetic { add: x87::add, subtract: x87::subtract, multiply: x87::multiply }),
        #[cfg(target_arch = "x86_64")]
        Scalar::F128 => {
            let (add, subtract, multiply) = (quadruple::add, quadruple::subtract, quadruple::multiply);
            Some(Arithmetic { add, subtract, multiply })
        }
        _ => None,
    }
}

/// Half precision, computed in single precision. That has more than twice the digits, so a second rounding of the
/// result gives the same as a single one.
mod half {
    use super::Bits;

    pub(super) fn add(a: Bits, b: Bits) -> Bits {
        narrow(widen(a) + widen(b))
    }

    pub(super) fn subtract(a: Bits, b: Bits) -> Bits {
        narrow(widen(a) - widen(b))
    }

    pub(super) fn multiply(a: Bits, b: Bits) -> Bits {
        narrow(widen(a) * widen(b))
    }

    pub(in super::super) fn widen(half: Bits) -> f32 {
        let half = u16::from_le_bytes([half[0], half[1]]);
        let fraction = f32::from(half & 0x3ff);
        let magnitude = match half >> 10 & 0x1f {
            0 => fraction * 2f32.powi(-24),
            0x1f if fraction == 0.0 => f32::INFINITY,
            0x1f => f32::NAN,
            exponent => (fraction + 1024.0) * 2f32.powi(i32::from(exponent) - 25),
        };
        if half >> 15 == 1 { -magnitude } else { magnitude }
    }

    pub(in super::super) fn narrow(single: f32) -> Bits {
        let sign = (single.to_bits() >> 16 & 0x8000) as u16;
        let magnitude = single.abs();
        let half = if magnitude.is_nan() {
            0x7e00
        } else if magnitude >= 65520.0 {
            // Beyond the middle between the largest half and the next power of two.
            0x7c00
        } else if magnitude < 2f32.powi(-14) {
            (magnitude * 2f32.powi(24)).round_ties_even() as u16
        } else {
            // Round the 23 bits of the fraction to 10, ties to even; a carry goes into the exponent by itself.
            let bits = magnitude.to_bits();
            let rounded = bits + 0xfff + (bits >> 13 & 1);
            ((rounded >> 13) - (112 << 10)) as u16
        };
        let mut out = Bits::default();
        out[..2].copy_from_slice(&(half | sign).to_le_bytes());
        out
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_half_comes_back_from_single() {
            for half in 0..=u16::MAX {
                let mut bits = Bits::default();
                bits[..2].copy_from_slice(&half.to_le_bytes());
                let single = widen(bits);
                assert!(single.is_nan() || narrow(single) == bits, "{half:#x}");
            }
        }

        #[test]
        fn rounding_is_to_nearest_ties_to_even() {
            let half = |single| u16::from_le_bytes(narrow(single)[..2].try_into().unwrap());
            assert_eq!(half(1.0 + 1.0 / 2048.0), 0x3c00);
            assert_eq!(half(1.0 + 3.0 / 2048.0), 0x3c02);
            assert_eq!((half(65519.0), half(65520.0), half(-1e9)), (0x7bff, 0x7c00, 0xfc00));
            assert_eq!((half(2f32.powi(-25)), half(2f32.powi(-24))), (0, 1));
        }
    }
}

/// Extended precision, by the x87 unit.
#[cfg(target_arch = "x86_64")]
mod x87 {
    use super::Bits;
    use std::arch::asm;

    macro_rules! operation {
        ($name:ident, $instruction:literal) => {
            /// One operation on two numbers. The padding of the result is zero.
            pub(super) fn $name(a: Bits, b: Bits) -> Bits {
                let mut result = Bits::default();
                // SAFETY: - the three pointers are to locals of 16 bytes, of which 10 are read or written.
                //         - the ABI has the register stack of the unit empty at a call; two are pushed, and both are
                //           popped.
                //         - all registers of the unit are declared as changed.
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

/// IEEE quadruple precision, by the functions of libgcc that compilers call for it.
#[cfg(target_arch = "x86_64")]
mod quadruple {
    use super::Bits;
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};

    #[link(name = "gcc_s")]
    unsafe extern "C" {
        // Rust has no type for their operands, so they are called from assembly only.
        fn __addtf3();
        fn __subtf3();
        fn __multf3();
    }

    macro_rules! operation {
        ($name:ident, $function:ident) => {
            /// One operation on two numbers.
            pub(super) fn $name(a: Bits, b: Bits) -> Bits {
                // SAFETY: - `a` is an array of 16 bytes; the load takes any alignment.
                let a: __m128i = unsafe { _mm_loadu_si128(a.as_ptr().cast()) };
                // SAFETY: - `b` is an array of 16 bytes; the load takes any alignment.
                let b: __m128i = unsafe { _mm_loadu_si128(b.as_ptr().cast()) };
                let mut result = Bits::default();
                let value: __m128i;
                // SAFETY: - operands and result are in the registers where the ABI has numbers of this type.
                //         - everything else that a C function may change is declared as changed.
                unsafe {
                    asm!(
                        "call {function}@PLT",
                        function = sym $function,
                        inout("xmm0") a => value,
                        inout("xmm1") b => _,
                        clobber_abi("C"),
                    );
                }
                // SAFETY: - `result` is an array of 16 bytes; the store takes any alignment.
                unsafe { _mm_storeu_si128(result.as_mut_ptr().cast(), value) };
                result
            }
        };
    }

    operation!(add, __addtf3);
    operation!(subtract, __subtf3);
    operation!(multiply, __multf3);
}
