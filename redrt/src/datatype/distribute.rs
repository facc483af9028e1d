//! Subarrays and distributed arrays (MPI-5.0 sections 5.1.3 and 5.1.4).

use super::layout::{Builder, Layout};
use super::sequence::Sequence;
use super::{Bounds, Datatype, Envelope};
use crate::abi::{
    MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_NONE, MPI_ERR_ARG,
    MPI_ORDER_C,
};
use crate::error::{Error, Result};
use crate::fail;
use std::ffi::c_int;
use std::sync::Arc;

/// One dimension of an array: how long it is, and which index ranges (first, length) are taken.
struct Dimension {
    length: i64,
    ranges: Vec<(i64, i64)>,
}

/// Lays out the taken elements of an array, its fastest dimension first.
fn lay_out(dimensions: &[Dimension], old: &Arc<Datatype>, envelope: Envelope) -> Result<Datatype> {
    let overflow = || Error::new(MPI_ERR_ARG, "the array is larger than 64 bits can count");
    let mut stride = old.extent();
    let mut count: i64 = 1;
    let mut layout: Layout = old.layout.clone();
    for dimension in dimensions {
        let mut builder = Builder::default();
        let next_stride = stride.checked_mul(dimension.length).ok_or_else(overflow)?;
        for (first, length) in &dimension.ranges {
            builder.push_repeated(first * stride, *length as u64, stride, &layout);
        }
        layout = builder.finish();
        count = count.checked_mul(dimension.ranges.iter().map(|range| range.1).sum()).ok_or_else(overflow)?;
        stride = next_stride;
    }
    let sequence = Sequence::concatenated([(&old.sequence, count as u64)]);
    // The bounds are those of the whole array, so that elements of the new type are whole arrays.
    let bounds = Bounds { lower: 0, upper: stride, explicit: true, alignment: old.bounds.alignment };
    Ok(Datatype::new(layout, sequence, bounds, envelope))
}

fn fastest_first(mut dimensions: Vec<Dimension>, order: c_int) -> Vec<Dimension> {
    if order == MPI_ORDER_C {
        dimensions.reverse();
    }
    dimensions
}

/// `subsizes` elements from `starts` on in each dimension of an array of `sizes`.
///
/// # Errors
/// `MPI_ERR_ARG` when the subarray is not within the array.
pub fn subarray(
    sizes: &[i64],
    subsizes: &[i64],
    starts: &[i64],
    order: c_int,
    old: &Arc<Datatype>,
    envelope: Envelope,
) -> Result<Datatype> {
    let mut dimensions = Vec::with_capacity(sizes.len());
    for (index, length) in sizes.iter().enumerate() {
        let (first, count) = (starts[index], subsizes[index]);
        if *length < 1 || count < 1 || first < 0 || first > length - count {
            fail!(MPI_ERR_ARG, "dimension {index}: elements {first}.. ({count}) of {length}");
        }
        dimensions.push(Dimension { length: *length, ranges: vec![(first, count)] });
    }
    lay_out(&fastest_first(dimensions, order), old, envelope)
}

/// The arguments of `MPI_Type_create_darray`.
#[derive(Clone, Copy, Debug)]
pub struct DistributedArray<'a> {
    /// Number of processes.
    pub size: c_int,
    /// This process.
    pub rank: c_int,
    /// Length of each dimension of the array.
    pub lengths: &'a [i64],
    /// `MPI_DISTRIBUTE_...` of each dimension.
    pub distributions: &'a [c_int],
    /// Argument of each distribution.
    pub arguments: &'a [c_int],
    /// Number of processes in each dimension.
    pub process_counts: &'a [c_int],
    /// `MPI_ORDER_C` or `MPI_ORDER_FORTRAN`.
    pub order: c_int,
}

/// One process's part of an array that is distributed over a grid of processes.
///
/// # Errors
/// `MPI_ERR_ARG` when the arguments contradict each other.
pub fn darray(array: &DistributedArray<'_>, old: &Arc<Datatype>, envelope: Envelope) -> Result<Datatype> {
    let product = array.process_counts.iter().try_fold(1, |product: c_int, count| product.checked_mul(*count));
    if product != Some(array.size) || array.process_counts.iter().any(|count| *count < 1) {
        fail!(MPI_ERR_ARG, "a grid of {:?} does not have {} processes", array.process_counts, array.size);
    }
    if !(0..array.size).contains(&array.rank) {
        fail!(MPI_ERR_ARG, "there is no rank {} among {}", array.rank, array.size);
    }
    // Section 5.1.4: the grid of processes is in C order, whatever the order of the array.
    let mut rest = array.rank;
    let mut coordinates = vec![0; array.lengths.len()];
    for (coordinate, count) in coordinates.iter_mut().zip(array.process_counts).rev() {
        (*coordinate, rest) = (rest % count, rest / count);
    }
    let dimension = |index: usize| {
        let place = (i64::from(coordinates[index]), i64::from(array.process_counts[index]));
        let ranges = ranges(array.lengths[index], array.distributions[index], array.arguments[index], place)?;
        Ok(Dimension { length: array.lengths[index], ranges })
    };
    let dimensions = (0..array.lengths.len()).map(dimension).collect::<Result<Vec<_>>>()?;
    lay_out(&fastest_first(dimensions, array.order), old, envelope)
}

/// The index ranges of one dimension that fall to coordinate `place.0` of `place.1`.
fn ranges(length: i64, distribution: c_int, argument: c_int, place: (i64, i64)) -> Result<Vec<(i64, i64)>> {
    let (coordinate, process_count) = place;
    let default = argument == MPI_DISTRIBUTE_DFLT_DARG;
    if length < 1 || (!default && argument < 1 && distribution != MPI_DISTRIBUTE_NONE) {
        fail!(MPI_ERR_ARG, "length {length}, distribution argument {argument}");
    }
    let block = match distribution {
        MPI_DISTRIBUTE_NONE if process_count == 1 => length,
        MPI_DISTRIBUTE_NONE => fail!(MPI_ERR_ARG, "{process_count} processes in a dimension that is not distributed"),
        MPI_DISTRIBUTE_BLOCK if default => (length + process_count - 1) / process_count,
        MPI_DISTRIBUTE_BLOCK if i64::from(argument) * process_count < length => {
            fail!(MPI_ERR_ARG, "{process_count} blocks of {argument} do not cover {length}")
        }
        MPI_DISTRIBUTE_CYCLIC if default => 1,
        MPI_DISTRIBUTE_BLOCK | MPI_DISTRIBUTE_CYCLIC => i64::from(argument),
        other => fail!(MPI_ERR_ARG, "{other} is not a distribution"),
    };
    let firsts = (coordinate * block..length).step_by((process_count * block) as usize);
    Ok(firsts.map(|first| (first, block.min(length - first))).collect())
}
