//! The kinds of gfortran.

use crate::basic::Scalar;

/// The type of `selected_int_kind(range)`: an integer with this many decimal digits. `None` when there is no such kind.
#[must_use]
pub fn integer_kind(range: i32) -> Option<Scalar> {
    match range {
        ..=2 => Some(Scalar::I8),
        3..=4 => Some(Scalar::I16),
        5..=9 => Some(Scalar::I32),
        10..=18 => Some(Scalar::I64),
        19..=38 => Some(Scalar::I128),
        _ => None,
    }
}

/// The type of `selected_real_kind(precision, range)`: a real with this many decimal digits and decimal exponents. A
/// negative argument makes no demand. `None` when there is no such kind.
#[must_use]
pub fn real_kind(precision: i32, range: i32) -> Option<Scalar> {
    match (precision, range) {
        (..=6, ..=37) => Some(Scalar::F32),
        (..=15, ..=307) => Some(Scalar::F64),
        // gfortran's kind 10 is C's long double.
        (..=18, ..=4931) if cfg!(target_arch = "x86_64") => Some(Scalar::LongDouble),
        (..=33, ..=4931) => Some(Scalar::F128),
        _ => None,
    }
}
