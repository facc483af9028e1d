//! Constructors of type maps (MPI-5.0 section 5.1.2).
//!
//! The caller has checked that no count is negative. A size or an extent that 64 bits cannot hold is an error.

use crate::basic::{Basic, Operand};
use crate::error::{Error, Result};
use crate::layout::{Builder, Layout};
use crate::map::{Bounds, TypeMap};
use crate::sequence::Sequence;

/// `length` elements of `datatype` at byte `displacement`.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Distance from the beginning of the new type.
    pub displacement: i64,
    /// Number of elements.
    pub length: i64,
    /// Type of the elements.
    pub datatype: &'a TypeMap,
}

fn times(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or(Error::TooLarge)
}

fn plus(a: i64, b: i64) -> Result<i64> {
    a.checked_add(b).ok_or(Error::TooLarge)
}

impl Block<'_> {
    /// True when the bounds of the new type depend on this block.
    fn is_present(&self) -> bool {
        self.length > 0 && (self.datatype.size() > 0 || self.datatype.bounds.explicit)
    }

    /// `(first, past)` of one element, over all elements of the block.
    fn over_all(&self, (first, past): (i64, i64)) -> Result<(i64, i64)> {
        let last = times(self.datatype.extent(), self.length - 1)?;
        let first = plus(plus(self.displacement, first)?, last.min(0))?;
        let past = plus(plus(self.displacement, past)?, last.max(0))?;
        Ok((first, past))
    }

    /// Lower and upper bound.
    fn bounds(&self) -> Result<(i64, i64)> {
        self.over_all((self.datatype.bounds.lower, self.datatype.bounds.upper))
    }

    /// First and one past the last byte of data. Resizing may have placed data outside of the bounds.
    fn data(&self) -> Result<(i64, i64)> {
        self.over_all(self.datatype.data)
    }

    /// Bytes of data.
    fn size(&self) -> Result<i64> {
        times(self.datatype.size() as i64, self.length)
    }
}

/// From the first of all firsts to the last of all pasts; (0, 0) without any. Their distance fits 64 bits.
fn span(ranges: impl IntoIterator<Item = Result<(i64, i64)>>) -> Result<(i64, i64)> {
    let mut all: Option<(i64, i64)> = None;
    for range in ranges {
        let (first, past) = range?;
        all = Some(all.map_or((first, past), |all| (all.0.min(first), all.1.max(past))));
    }
    let (first, past) = all.unwrap_or((0, 0));
    past.checked_sub(first).ok_or(Error::TooLarge)?;
    Ok((first, past))
}

/// One basic element at the beginning.
#[must_use]
pub fn single(basic: Basic) -> TypeMap {
    let bounds = Bounds { lower: 0, upper: basic.size() as i64, explicit: false, alignment: basic.alignment() };
    TypeMap::new(Layout::block(basic.size()), Sequence::basic(basic), bounds).with_operand(Operand::Basic(basic))
}

/// A value and its index, laid out as a C struct of the two.
#[must_use]
pub fn pair(value: Basic, index: Basic) -> TypeMap {
    let at_alignment = value.size().next_multiple_of(index.alignment() as u64) as i64;
    let (first, second) = (single(value), single(index));
    let block = |displacement, datatype| Block { displacement, length: 1, datatype };
    let blocks = [block(0, &first), block(at_alignment, &second)];
    struct_of(&blocks).expect("a pair is small").with_operand(Operand::Pair { value, index })
}

/// `count` blocks of `length` elements, `stride` bytes from one to the next: contiguous, vector and hvector.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn hvector(count: i64, length: i64, stride: i64, old: &TypeMap) -> Result<TypeMap> {
    // With one of the numbers 0 the other has no meaning.
    let (count, length) = if count == 0 || length == 0 { (0, 0) } else { (count, length) };
    let block = Block { displacement: 0, length, datatype: old };
    let mut bounds = (0, 0);
    if count > 0 && block.is_present() {
        let last = Block { displacement: times(stride, count - 1)?, ..block };
        times(block.size()?, count)?;
        span([block.data(), last.data()])?;
        bounds = span([block.bounds(), last.bounds()])?;
    }
    let layout = old.layout().repeated(length as u64, old.extent()).repeated(count as u64, stride);
    let sequence = Sequence::concatenated([(old.sequence(), count.saturating_mul(length) as u64)]);
    let bounds = Bounds { lower: bounds.0, upper: bounds.1, ..old.bounds };
    Ok(TypeMap::new(layout, sequence, bounds))
}

/// `count` elements, each at the extent of the one before.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn contiguous(count: i64, old: &TypeMap) -> Result<TypeMap> {
    hvector(1, count, 0, old)
}

/// Blocks of one type: displacements in bytes, and lengths.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn hindexed(blocks: &[(i64, i64)], old: &TypeMap) -> Result<TypeMap> {
    let block = |&(displacement, length): &(i64, i64)| Block { displacement, length, datatype: old };
    let blocks: Vec<_> = blocks.iter().map(block).collect();
    let (lower, upper) = span(blocks.iter().filter(|block| block.is_present()).map(Block::bounds))?;
    let (layout, sequence) = lay_out(&blocks)?;
    Ok(TypeMap::new(layout, sequence, Bounds { lower, upper, ..old.bounds }))
}

/// Blocks of one type: displacements counted in its extent, and lengths.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn indexed(blocks: &[(i64, i64)], old: &TypeMap) -> Result<TypeMap> {
    let to_bytes = |&(displacement, length): &(i64, i64)| Ok((times(displacement, old.extent())?, length));
    let blocks: Vec<_> = blocks.iter().map(to_bytes).collect::<Result<_>>()?;
    hindexed(&blocks, old)
}

/// Blocks of different types, at displacements in bytes.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn struct_of(blocks: &[Block<'_>]) -> Result<TypeMap> {
    let present = || blocks.iter().filter(|block| block.is_present());
    // MPI-5.0 §5.1.6: bounds set explicitly prevail over those of data.
    let explicit = present().any(|block| block.datatype.bounds.explicit);
    let deciding = present().filter(|block| block.datatype.bounds.explicit == explicit);
    let (lower, mut upper) = span(deciding.map(Block::bounds))?;
    let alignment = present().map(|block| block.datatype.bounds.alignment).max().unwrap_or(1);
    if !explicit {
        // MPI-5.0 §5.1: the extent is rounded up so that the next element is aligned.
        let padding = -(upper - lower) & (alignment - 1);
        upper = plus(upper, padding)?;
        span([Ok((lower, upper))])?;
    }
    let (layout, sequence) = lay_out(blocks)?;
    Ok(TypeMap::new(layout, sequence, Bounds { lower, upper, explicit, alignment }))
}

fn lay_out(blocks: &[Block<'_>]) -> Result<(Layout, Sequence)> {
    let present = || blocks.iter().filter(|block| block.length > 0);
    span(present().filter(|block| block.datatype.size() > 0).map(Block::data))?;
    let mut builder = Builder::default();
    let mut size: i64 = 0;
    for block in present() {
        size = plus(size, block.size()?)?;
        let datatype = block.datatype;
        builder.push_repeated(block.displacement, block.length as u64, datatype.extent(), datatype.layout());
    }
    let parts = present().map(|block| (block.datatype.sequence(), block.length as u64));
    Ok((builder.finish(), Sequence::concatenated(parts)))
}

/// The same data with other bounds.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn resized(old: &TypeMap, lower: i64, extent: i64) -> Result<TypeMap> {
    let bounds = Bounds { lower, upper: plus(lower, extent)?, explicit: true, ..old.bounds };
    Ok(TypeMap::new(old.layout().clone(), old.sequence().clone(), bounds))
}
