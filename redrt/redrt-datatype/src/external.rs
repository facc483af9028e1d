//! The representation `external32` (MPI-5.0 section 14.5.2): big-endian, IEEE, with sizes that do not depend on the
//! machine. The conversion is between packed streams, so it does not depend on where the bytes lie in memory.

use crate::basic::{Basic, Class, Scalar};
use crate::error::{Error, Result};
use crate::map::TypeMap;

/// Bytes of `count` elements in external32.
#[must_use]
pub fn external_size(datatype: &TypeMap, count: u64) -> u64 {
    let totals = datatype.sequence().totals();
    totals.iter().map(|(basic, length)| u64::from(basic.external_size) * length).sum::<u64>() * count
}

/// Converts the packed stream of `count` elements.
///
/// # Errors
/// [`Error::Conversion`] when a value does not fit its external32 representation.
pub fn to_external(datatype: &TypeMap, count: u64, native: &[u8]) -> Result<Vec<u8>> {
    let mut external = Vec::with_capacity(external_size(datatype, count) as usize);
    let mut rest = native;
    for _ in 0..count {
        datatype.sequence().try_for_each(&mut |basic, length| {
            for _ in 0..length * parts(basic) {
                let (value, after) = rest.split_at(basic.scalar.size() as usize);
                rest = after;
                write_external(basic, value, &mut external)?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(external)
}

/// Converts `count` elements from the beginning of `external` into a packed stream. Returns it and the bytes read.
///
/// # Errors
/// [`Error::Truncated`] when `external` is too short.
pub fn from_external(datatype: &TypeMap, count: u64, external: &[u8]) -> Result<(Vec<u8>, usize)> {
    let mut native = Vec::with_capacity(datatype.packed_size(count as i64) as usize);
    let mut rest = external;
    for _ in 0..count {
        datatype.sequence().try_for_each(&mut |basic, length| {
            for _ in 0..length * parts(basic) {
                let Some((value, after)) = rest.split_at_checked(external_part_size(basic)) else {
                    return Err(Error::Truncated);
                };
                rest = after;
                read_external(basic, value, &mut native);
            }
            Ok(())
        })?;
    }
    Ok((native, external.len() - rest.len()))
}

/// Complex numbers are two scalars.
fn parts(basic: Basic) -> u64 {
    if basic.class == Class::Complex { 2 } else { 1 }
}

fn external_part_size(basic: Basic) -> usize {
    usize::from(basic.external_size) / parts(basic) as usize
}

fn write_external(basic: Basic, value: &[u8], out: &mut Vec<u8>) -> Result {
    if is_x87(basic.scalar) {
        out.extend_from_slice(&quadruple_from_x87(value).to_be_bytes());
        return Ok(());
    }
    let size = external_part_size(basic);
    let (kept, cut) = value.split_at(size);
    let filler = filler(basic.scalar, kept);
    if cut.iter().any(|byte| *byte != filler) {
        return Err(Error::Conversion { native_bytes: value.len(), external_bytes: size });
    }
    out.extend(kept.iter().rev());
    Ok(())
}

fn read_external(basic: Basic, value: &[u8], out: &mut Vec<u8>) {
    if is_x87(basic.scalar) {
        let value = u128::from_be_bytes(value.try_into().expect("external_part_size is 16"));
        out.extend_from_slice(&x87_from_quadruple(value));
        return;
    }
    let start = out.len();
    out.extend(value.iter().rev());
    let filler = filler(basic.scalar, &out[start..]);
    out.resize(start + basic.scalar.size() as usize, filler);
}

/// The value that the bytes behind `kept` must have, which are the low ones of a little-endian integer.
fn filler(scalar: Scalar, kept: &[u8]) -> u8 {
    let signed = matches!(scalar, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 | Scalar::I128);
    if signed && kept.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 }
}

fn is_x87(scalar: Scalar) -> bool {
    scalar == Scalar::LongDouble && cfg!(target_arch = "x86_64")
}

/// Both formats have a sign and a 15-bit exponent of the same bias; x87 writes out the leading bit of its 64-bit
/// significand, quadruple has 112 bits after an implied one.
fn quadruple_from_x87(value: &[u8]) -> u128 {
    let significand = u64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
    let head = u16::from_le_bytes([value[8], value[9]]);
    u128::from(head) << 112 | u128::from(significand & (u64::MAX >> 1)) << 49
}

fn x87_from_quadruple(value: u128) -> [u8; 16] {
    let head = (value >> 112) as u16;
    let fraction = ((value >> 49) as u64) & (u64::MAX >> 1);
    // Subnormal numbers, and zero, have no leading bit.
    let leading = if head & 0x7fff == 0 { 0 } else { 1 << 63 };
    let mut out = [0; 16];
    out[..8].copy_from_slice(&(fraction | leading).to_le_bytes());
    out[8..10].copy_from_slice(&head.to_le_bytes());
    out
}
