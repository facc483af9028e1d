//! Constructors of derived datatypes (MPI-5.0 section 5.1.2).
//!
//! All counts are checked by the caller not to be negative. Sizes and extents that 64 bits cannot hold are an error.

use super::layout::{Builder, Layout};
use super::sequence::Sequence;
use super::{Bounds, Datatype, Envelope};
use crate::abi::{MPI_COMBINER_DUP, MPI_ERR_ARG};
use crate::error::{Error, Result};
use std::sync::Arc;

/// `length` elements of `datatype` at byte `displacement`: what every constructor lays out.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Bytes from the beginning of the new type.
    pub displacement: i64,
    /// Number of elements.
    pub length: i64,
    /// Their type.
    pub datatype: &'a Datatype,
}

fn overflow() -> Error {
    Error::new(MPI_ERR_ARG, "the datatype would be larger than 64 bits can count")
}

fn times(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or_else(overflow)
}

fn plus(a: i64, b: i64) -> Result<i64> {
    a.checked_add(b).ok_or_else(overflow)
}

impl Block<'_> {
    /// Whether the block has anything to say about bounds.
    fn is_present(&self) -> bool {
        self.length > 0 && (self.datatype.size() > 0 || self.datatype.bounds.explicit)
    }

    /// Lower and upper bound.
    fn bounds(&self) -> Result<(i64, i64)> {
        let Bounds { lower, upper, .. } = self.datatype.bounds;
        let last = times(self.datatype.extent(), self.length - 1)?;
        let lower = plus(plus(self.displacement, lower)?, last.min(0))?;
        let upper = plus(plus(self.displacement, upper)?, last.max(0))?;
        times(self.datatype.size() as i64, self.length)?;
        Ok((lower, upper))
    }
}

/// Lower and upper bound over several blocks; (0, 0) without any.
fn span(bounds: impl IntoIterator<Item = (i64, i64)>) -> (i64, i64) {
    bounds.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
}

/// `count` blocks of `length` elements, `stride` bytes from one to the next: contiguous, vector and hvector.
///
/// # Errors
/// `MPI_ERR_ARG` when 64 bits do not suffice.
pub fn hvector(count: i64, length: i64, stride: i64, old: &Arc<Datatype>, envelope: Envelope) -> Result<Datatype> {
    // One of them 0, and the other says nothing.
    let (count, length) = if count == 0 || length == 0 { (0, 0) } else { (count, length) };
    let block = Block { displacement: 0, length, datatype: old };
    let mut bounds = (0, 0);
    if count > 0 && block.is_present() {
        let last = times(stride, count - 1)?;
        times(times(old.size() as i64, length)?, count)?;
        bounds = span([block.bounds()?, Block { displacement: last, ..block }.bounds()?]);
    }
    let layout = old.layout.repeated(length as u64, old.extent()).repeated(count as u64, stride);
    let sequence = Sequence::concatenated([(&old.sequence, count.saturating_mul(length) as u64)]);
    let bounds = Bounds { lower: bounds.0, upper: bounds.1, ..old.bounds };
    Ok(Datatype::new(layout, sequence, bounds, envelope))
}

/// `count` elements, each at the extent of the one before.
///
/// # Errors
/// `MPI_ERR_ARG` when 64 bits do not suffice.
pub fn contiguous(count: i64, old: &Arc<Datatype>, envelope: Envelope) -> Result<Datatype> {
    hvector(1, count, 0, old, envelope)
}

/// Blocks of one type, at displacements in bytes.
///
/// # Errors
/// `MPI_ERR_ARG` when 64 bits do not suffice.
pub fn hindexed(blocks: &[(i64, i64)], old: &Arc<Datatype>, envelope: Envelope) -> Result<Datatype> {
    let block = |&(displacement, length): &(i64, i64)| Block { displacement, length, datatype: old };
    let blocks: Vec<_> = blocks.iter().map(block).collect();
    let (layout, sequence) = lay_out(&blocks)?;
    let bounds: Vec<_> = blocks.iter().filter(|block| block.is_present()).map(Block::bounds).collect::<Result<_>>()?;
    let (lower, upper) = span(bounds);
    Ok(Datatype::new(layout, sequence, Bounds { lower, upper, ..old.bounds }, envelope))
}

/// Blocks of one type, at displacements counted in its extent.
///
/// # Errors
/// `MPI_ERR_ARG` when 64 bits do not suffice.
pub fn indexed(blocks: &[(i64, i64)], old: &Arc<Datatype>, envelope: Envelope) -> Result<Datatype> {
    let to_bytes = |&(displacement, length): &(i64, i64)| Ok((times(displacement, old.extent())?, length));
    let blocks: Vec<_> = blocks.iter().map(to_bytes).collect::<Result<_>>()?;
    hindexed(&blocks, old, envelope)
}

/// Blocks of different types, at displacements in bytes.
///
/// # Errors
/// `MPI_ERR_ARG` when 64 bits do not suffice.
pub fn struct_of(blocks: &[Block<'_>], envelope: Envelope) -> Result<Datatype> {
    let (layout, sequence) = lay_out(blocks)?;
    let present = || blocks.iter().filter(|block| block.is_present());
    // Section 5.1.6: bounds that were set prevail over those of data.
    let explicit = present().any(|block| block.datatype.bounds.explicit);
    let deciding = present().filter(|block| block.datatype.bounds.explicit == explicit);
    let bounds: Vec<_> = deciding.map(Block::bounds).collect::<Result<_>>()?;
    let (lower, mut upper) = span(bounds);
    let alignment = present().map(|block| block.datatype.bounds.alignment).max().unwrap_or(1);
    if !explicit {
        // Section 5.1: the extent is rounded up so that the next element is aligned.
        let padding = -(upper - lower) & (alignment - 1);
        upper = plus(upper, padding)?;
    }
    Ok(Datatype::new(layout, sequence, Bounds { lower, upper, explicit, alignment }, envelope))
}

fn lay_out(blocks: &[Block<'_>]) -> Result<(Layout, Sequence)> {
    let mut builder = Builder::default();
    let mut size: i64 = 0;
    for block in blocks.iter().filter(|block| block.length > 0) {
        block.bounds()?;
        size = plus(size, times(block.datatype.size() as i64, block.length)?)?;
        let datatype = block.datatype;
        builder.push_repeated(block.displacement, block.length as u64, datatype.extent(), &datatype.layout);
    }
    let parts = blocks.iter().map(|block| (&block.datatype.sequence, block.length.max(0) as u64));
    Ok((builder.finish(), Sequence::concatenated(parts)))
}

/// The same data with other bounds.
///
/// # Errors
/// `MPI_ERR_ARG` when 64 bits do not suffice.
pub fn resized(old: &Arc<Datatype>, lower: i64, extent: i64, envelope: Envelope) -> Result<Datatype> {
    let bounds = Bounds { lower, upper: plus(lower, extent)?, explicit: true, ..old.bounds };
    Ok(Datatype::new(old.layout.clone(), old.sequence.clone(), bounds, envelope))
}

/// The same type once more, committed if the old one is. The attributes are the caller's business.
#[must_use]
pub fn duplicate(old: &Arc<Datatype>) -> Datatype {
    let envelope = Envelope::new(MPI_COMBINER_DUP, false).datatype(old);
    let new = Datatype::new(old.layout.clone(), old.sequence.clone(), old.bounds, envelope);
    if old.is_committed() {
        new.commit();
    }
    new
}
