//! `MPI_MINLOC` and `MPI_MAXLOC` on value-index pairs (MPI-5.0 section 6.9.4).

use super::{Standard, wide_float};
use crate::handle::DatatypeHandle;
use redrt_datatype::basic::Scalar;
use std::cmp::Ordering;

/// A pair as C lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<V, I> {
    value: V,
    index: I,
}

/// C's `long double` by its bits; the alignment places the index where C does.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct LongDouble([u8; 16]);

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        wide_float::compare(Scalar::LongDouble, self.0, other.0)
    }
}

const _: () = assert!(size_of::<Pair<f64, i32>>() == 16 && size_of::<Pair<i16, i32>>() == 8);
const _: () = assert!(size_of::<Pair<LongDouble, i32>>() == 32);

const PAIRS: &[DatatypeHandle] = &[
    DatatypeHandle::FLOAT_INT,
    DatatypeHandle::DOUBLE_INT,
    DatatypeHandle::LONG_INT,
    DatatypeHandle::_2INT,
    DatatypeHandle::SHORT_INT,
    DatatypeHandle::LONG_DOUBLE_INT,
    DatatypeHandle::_2REAL,
    DatatypeHandle::_2DOUBLE_PRECISION,
    DatatypeHandle::_2INTEGER,
];

/// Whether the type is a value-index pair.
pub(super) fn is_pair(datatype: DatatypeHandle) -> bool {
    PAIRS.contains(&datatype)
}

/// Applies the operation to `count` pairs.
pub(super) fn reduce(op: Standard, datatype: DatatypeHandle, count: usize, input: *const u8, in_out: *mut u8) {
    match datatype {
        DatatypeHandle::FLOAT_INT => locate::<f32, i32>(op, count, input, in_out),
        DatatypeHandle::DOUBLE_INT => locate::<f64, i32>(op, count, input, in_out),
        DatatypeHandle::LONG_INT => locate::<i64, i32>(op, count, input, in_out),
        DatatypeHandle::_2INT | DatatypeHandle::_2INTEGER => locate::<i32, i32>(op, count, input, in_out),
        DatatypeHandle::SHORT_INT => locate::<i16, i32>(op, count, input, in_out),
        DatatypeHandle::LONG_DOUBLE_INT => locate::<LongDouble, i32>(op, count, input, in_out),
        DatatypeHandle::_2REAL => locate::<f32, f32>(op, count, input, in_out),
        DatatypeHandle::_2DOUBLE_PRECISION => locate::<f64, f64>(op, count, input, in_out),
        other => unreachable!("Op::check refuses {other:?}"),
    }
}

/// Value and index of the pair at `place`. One by one: what pads the last pair need not be memory of the program.
///
/// # Safety
/// Both must be valid for reads, at any alignment.
unsafe fn read<V: Copy, I: Copy>(place: *const Pair<V, I>) -> Pair<V, I> {
    // SAFETY: - a field of a pair that may be read: the caller's promise.
    let value = unsafe { (&raw const (*place).value).read_unaligned() };
    // SAFETY: - as above.
    let index = unsafe { (&raw const (*place).index).read_unaligned() };
    Pair { value, index }
}

/// The winner's value and index are written one by one: the padding of a struct in memory must not change, or replicas
/// of a rank would differ in bytes that no one wrote.
fn locate<V: Copy + PartialOrd, I: Copy + PartialOrd>(op: Standard, count: usize, input: *const u8, in_out: *mut u8) {
    let wanted = if op == Standard::MinimumLocation { Ordering::Less } else { Ordering::Greater };
    let (input, in_out) = (input.cast::<Pair<V, I>>(), in_out.cast::<Pair<V, I>>());
    for index in 0..count {
        let place = in_out.wrapping_add(index);
        // SAFETY: - element `index` is there to be read: the C call's promise; at any alignment.
        let left = unsafe { read(input.wrapping_add(index)) };
        // SAFETY: - as above.
        let right = unsafe { read(place) };
        let left_wins = match left.value.partial_cmp(&right.value) {
            Some(Ordering::Equal) => left.index < right.index,
            ordering => ordering == Some(wanted),
        };
        if left_wins {
            // SAFETY: - a field of element `index`, which may be written.
            unsafe { (&raw mut (*place).value).write_unaligned(left.value) };
            // SAFETY: - as above.
            unsafe { (&raw mut (*place).index).write_unaligned(left.index) };
        }
    }
}
