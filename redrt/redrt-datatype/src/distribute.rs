//! Subarrays and distributed arrays (MPI-5.0 sections 5.1.3 and 5.1.4).

use crate::error::{Error, Result};
use crate::layout::{Builder, Layout};
use crate::map::{Bounds, TypeMap};
use crate::sequence::Sequence;

/// Order of an array's elements in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The last dimension is the fastest.
    C,
    /// The first dimension is the fastest.
    Fortran,
}

/// Distribution of one dimension of an array over the processes of the grid in that dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// All of it belongs to one process.
    None,
    /// A block of this many elements for each process. Without a number the blocks are as equal as they can be.
    Block(Option<i64>),
    /// Blocks of this many elements, dealt out in turn; of one element without a number.
    Cyclic(Option<i64>),
}

/// One dimension of an array, and the indices taken from it: `count` blocks of `block` indices from `first` on, each
/// `step` after the one before, and `rest` indices where the next block would begin.
struct Dimension {
    length: i64,
    first: i64,
    block: i64,
    step: i64,
    count: i64,
    rest: i64,
}

impl Dimension {
    /// Blocks of `block` indices, as many as begin within the dimension. The last block is cut at the dimension's end.
    fn blocks(length: i64, first: i64, block: i64, step: i64) -> Self {
        let begun = if first < length { (length - first - 1) / step + 1 } else { 0 };
        let cut = begun > 0 && length - first - (begun - 1) * step < block;
        let count = if cut { begun - 1 } else { begun };
        let rest = if cut { length - first - count * step } else { 0 };
        Self { length, first, block, step, count, rest }
    }

    /// Number of indices that are taken.
    fn taken(&self) -> i64 {
        self.count * self.block + self.rest
    }

    /// The taken ones of `length` elements of `layout`, which are `stride` bytes apart. All displacements fit 64 bits.
    fn lay_out(&self, stride: i64, layout: &Layout) -> Layout {
        let mut builder = Builder::default();
        if self.count > 0 {
            let block = layout.repeated(self.block as u64, stride);
            // A single block has no step; the computed one may not fit.
            let step = if self.count > 1 { self.step * stride } else { 0 };
            builder.push_repeated(self.first * stride, self.count as u64, step, &block);
        }
        if self.rest > 0 {
            builder.push_repeated((self.first + self.count * self.step) * stride, self.rest as u64, stride, layout);
        }
        builder.finish()
    }
}

/// Lays out the taken elements of an array, its fastest dimension first.
fn lay_out(dimensions: &[Dimension], old: &TypeMap) -> Result<TypeMap> {
    let mut stride = old.extent();
    let mut count: i64 = 1;
    let mut layout = old.layout().clone();
    for dimension in dimensions {
        let next_stride = stride.checked_mul(dimension.length).ok_or(Error::TooLarge)?;
        // The last element begins here. Its data may lie outside of an explicitly set extent.
        let last = next_stride - old.extent();
        let (first, past) = (old.data.0.checked_add(last.min(0)), old.data.1.checked_add(last.max(0)));
        past.zip(first).and_then(|(past, first)| past.checked_sub(first)).ok_or(Error::TooLarge)?;
        count = count.checked_mul(dimension.taken()).ok_or(Error::TooLarge)?;
        (old.size() as i64).checked_mul(count).ok_or(Error::TooLarge)?;
        layout = dimension.lay_out(stride, &layout);
        stride = next_stride;
    }
    let sequence = Sequence::concatenated([(old.sequence(), count as u64)]);
    // The bounds are those of the whole array: in memory, elements of the new type are whole arrays apart.
    let bounds = Bounds { lower: 0, upper: stride, explicit: true, alignment: old.bounds.alignment };
    Ok(TypeMap::new(layout, sequence, bounds))
}

fn fastest_first(mut dimensions: Vec<Dimension>, order: Order) -> Vec<Dimension> {
    if order == Order::C {
        dimensions.reverse();
    }
    dimensions
}

/// `subsizes` elements from `starts` on in each dimension of an array of `sizes`.
///
/// # Errors
/// [`Error::OutsideArray`] when the subarray is not within the array or has no elements, [`Error::TooLarge`].
///
/// # Panics
/// When the three slices are not of one length.
pub fn subarray(sizes: &[i64], subsizes: &[i64], starts: &[i64], order: Order, old: &TypeMap) -> Result<TypeMap> {
    let mut dimensions = Vec::with_capacity(sizes.len());
    for (dimension, length) in sizes.iter().enumerate() {
        let (first, count, length) = (starts[dimension], subsizes[dimension], *length);
        if length < 1 || count < 1 || first < 0 || first > length - count {
            return Err(Error::OutsideArray { dimension, first, count, length });
        }
        dimensions.push(Dimension { length, first, block: count, step: length, count: 1, rest: 0 });
    }
    lay_out(&fastest_first(dimensions, order), old)
}

/// The arguments of `MPI_Type_create_darray`. The slices have an entry for each dimension of the array.
#[derive(Clone, Copy, Debug)]
pub struct DistributedArray<'a> {
    /// Number of processes.
    pub size: i32,
    /// Rank of this process.
    pub rank: i32,
    /// Length of each dimension of the array.
    pub lengths: &'a [i64],
    /// Distribution of each dimension.
    pub distributions: &'a [Distribution],
    /// Number of processes in each dimension.
    pub process_counts: &'a [i32],
    /// Order of the array in memory.
    pub order: Order,
}

/// One process's part of an array that is distributed over a grid of processes.
///
/// # Errors
/// The variant that names the contradicting arguments, or [`Error::TooLarge`].
///
/// # Panics
/// When the slices are not of one length.
pub fn darray(array: &DistributedArray<'_>, old: &TypeMap) -> Result<TypeMap> {
    let (size, rank) = (array.size, array.rank);
    let product = array.process_counts.iter().try_fold(1, |product: i32, count| product.checked_mul(*count));
    if product != Some(size) || array.process_counts.iter().any(|count| *count < 1) {
        return Err(Error::Grid { grid: array.process_counts.to_vec(), size });
    }
    if !(0..size).contains(&rank) {
        return Err(Error::OutsideGrid { rank, size });
    }
    // MPI-5.0 §5.1.4: the grid of processes is in C order, for either order of the array.
    let mut rest = rank;
    let mut coordinates = vec![0; array.lengths.len()];
    for (coordinate, count) in coordinates.iter_mut().zip(array.process_counts).rev() {
        (*coordinate, rest) = (rest % count, rest / count);
    }
    let dimension = |index: usize| {
        let place = (i64::from(coordinates[index]), i64::from(array.process_counts[index]));
        share(index, array.lengths[index], array.distributions[index], place)
    };
    let dimensions = (0..array.lengths.len()).map(dimension).collect::<Result<Vec<_>>>()?;
    lay_out(&fastest_first(dimensions, array.order), old)
}

/// The indices of one dimension that belong to coordinate `place.0` of `place.1`.
fn share(dimension: usize, length: i64, distribution: Distribution, place: (i64, i64)) -> Result<Dimension> {
    let (coordinate, process_count) = place;
    if length < 1 {
        return Err(Error::Length { dimension, length });
    }
    let block = match distribution {
        Distribution::Block(Some(argument)) | Distribution::Cyclic(Some(argument)) if argument < 1 => {
            return Err(Error::BlockLength { dimension, argument });
        }
        Distribution::None if process_count == 1 => length,
        Distribution::None => return Err(Error::Undistributed { dimension, process_count }),
        Distribution::Block(None) => (length - 1) / process_count + 1,
        Distribution::Block(Some(argument)) if argument.saturating_mul(process_count) < length => {
            return Err(Error::Uncovered { dimension, process_count, argument, length });
        }
        Distribution::Cyclic(None) => 1,
        Distribution::Block(Some(argument)) | Distribution::Cyclic(Some(argument)) => argument,
    };
    // An index beyond 64 bits is beyond the end of the array.
    let (first, step) = (coordinate.saturating_mul(block), process_count.saturating_mul(block));
    Ok(Dimension::blocks(length, first, block, step))
}
