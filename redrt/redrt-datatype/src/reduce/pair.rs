//! `MPI_MINLOC` and `MPI_MAXLOC` on value-index pairs (MPI-5.0 section 6.9.4).

use super::operator::Operator;
use super::wide_float;
use crate::basic::Scalar;
use std::cmp::Ordering;

/// A pair as C lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<V, I> {
    value: V,
    index: I,
}

/// C's `long double` by its bits. The alignment places the index where C has it.
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

/// Types of value and index of all pairs in C and Fortran.
const PAIRS: [(Scalar, Scalar); 8] = [
    (Scalar::F32, Scalar::I32),
    (Scalar::F64, Scalar::I32),
    (Scalar::I64, Scalar::I32),
    (Scalar::I32, Scalar::I32),
    (Scalar::I16, Scalar::I32),
    (Scalar::LongDouble, Scalar::I32),
    (Scalar::F32, Scalar::F32),
    (Scalar::F64, Scalar::F64),
];

/// True when C or Fortran has pairs of such a value and such an index.
pub(super) fn is_known(value: Scalar, index: Scalar) -> bool {
    PAIRS.contains(&(value, index))
}

/// Applies the operator to `count` pairs.
pub(super) fn reduce(op: Operator, pair: (Scalar, Scalar), count: usize, input: *const u8, in_out: *mut u8) {
    assert!(op.is_location(), "Operator::support excludes {op:?} on pairs");
    match pair {
        (Scalar::F32, Scalar::I32) => locate::<f32, i32>(op, count, input, in_out),
        (Scalar::F64, Scalar::I32) => locate::<f64, i32>(op, count, input, in_out),
        (Scalar::I64, Scalar::I32) => locate::<i64, i32>(op, count, input, in_out),
        (Scalar::I32, Scalar::I32) => locate::<i32, i32>(op, count, input, in_out),
        (Scalar::I16, Scalar::I32) => locate::<i16, i32>(op, count, input, in_out),
        (Scalar::LongDouble, Scalar::I32) => locate::<LongDouble, i32>(op, count, input, in_out),
        (Scalar::F32, Scalar::F32) => locate::<f32, f32>(op, count, input, in_out),
        (Scalar::F64, Scalar::F64) => locate::<f64, f64>(op, count, input, in_out),
        other => unreachable!("Operator::support excludes pairs of {other:?}"),
    }
}

/// Value and index of the pair at `place`, at any alignment. They are read one by one, because the padding behind the
/// last pair need not be memory of the program.
///
/// # Safety
/// Both fields must be valid for reads.
unsafe fn read<V: Copy, I: Copy>(place: *const Pair<V, I>) -> Pair<V, I> {
    // SAFETY: - the value is valid for reads: the caller's duty; only its address is computed, and the pair is not
    //           read.
    let value = unsafe { (&raw const (*place).value).read_unaligned() };
    // SAFETY: - the index is valid for reads: the caller's duty; only its address is computed, and the pair is not
    //           read.
    let index = unsafe { (&raw const (*place).index).read_unaligned() };
    Pair { value, index }
}

/// The winner's value and index are written one by one. The padding of a pair in memory must not change, or replicas of
/// a rank would differ in bytes that the program has never written.
fn locate<V: Copy + PartialOrd, I: Copy + PartialOrd>(op: Operator, count: usize, input: *const u8, in_out: *mut u8) {
    let wanted = if op == Operator::MinimumLocation { Ordering::Less } else { Ordering::Greater };
    let (input, in_out) = (input.cast::<Pair<V, I>>(), in_out.cast::<Pair<V, I>>());
    for index in 0..count {
        let place = in_out.wrapping_add(index);
        // SAFETY: - `input` holds `count` pairs, of which `index` is one: the promise of the MPI call.
        let left = unsafe { read(input.wrapping_add(index)) };
        // SAFETY: - `in_out` holds as many: they are the other operand of the MPI call.
        let right = unsafe { read(place) };
        let left_wins = match left.value.partial_cmp(&right.value) {
            Some(Ordering::Equal) => left.index < right.index,
            ordering => ordering == Some(wanted),
        };
        if left_wins {
            // SAFETY: - the value belongs to the pair that was just read, which the MPI call allows to be written.
            unsafe { (&raw mut (*place).value).write_unaligned(left.value) };
            // SAFETY: - the index of the same pair.
            unsafe { (&raw mut (*place).index).write_unaligned(left.index) };
        }
    }
}
