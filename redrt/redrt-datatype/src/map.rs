//! The type map of one element, and the functions that query it.

use crate::basic::{Basic, Class, Operand};
use crate::layout::Layout;
use crate::pack;
use crate::sequence::Sequence;
use crate::signature::Signature;
use sdc_detect::Element;

/// The basic elements of one element of a datatype, the places of their bytes, and the bounds (MPI-5.0 section 5.1).
///
/// The two halves are kept apart: the [`Layout`] has the bytes without their types, for copying; the [`Sequence`] has
/// the types without their places, for counting and conversion. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TypeMap {
    layout: Layout,
    sequence: Sequence,
    element: Element,
    operand: Option<Operand>,
    pub(crate) bounds: Bounds,
    /// First and one past the last byte of data.
    pub(crate) data: (i64, i64),
}

/// Lower and upper bound, and further facts that decide the extent of types made from this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub(crate) lower: i64,
    pub(crate) upper: i64,
    /// True when `MPI_Type_create_resized` set the bounds. Then they prevail over those of the data.
    pub(crate) explicit: bool,
    /// The strictest alignment of a basic element, in bytes.
    pub(crate) alignment: i64,
}

impl TypeMap {
    /// A type map whose extent and data fit 64 bits; the constructors have checked that.
    pub(crate) fn new(layout: Layout, sequence: Sequence, bounds: Bounds) -> Self {
        let element = sequence.uniform().map_or(Element::Unknown, |basic| basic.element());
        let data = layout.bounds();
        Self { layout, sequence, element, operand: None, bounds, data }
    }

    /// The same type map, with elements that reductions accept.
    pub(crate) fn with_operand(self, operand: Operand) -> Self {
        Self { operand: Some(operand), ..self }
    }

    /// Bytes of data in one element.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u64 {
        self.layout.size()
    }

    /// Distance in memory from one element to the next.
    #[must_use]
    #[inline]
    pub fn extent(&self) -> i64 {
        self.bounds.upper - self.bounds.lower
    }

    /// Lower bound.
    #[must_use]
    #[inline]
    pub fn lower_bound(&self) -> i64 {
        self.bounds.lower
    }

    /// First byte of data relative to the beginning, and the distance from there to the end of the last one.
    #[must_use]
    pub fn true_bounds(&self) -> (i64, i64) {
        (self.data.0, self.data.1 - self.data.0)
    }

    /// The places of the bytes in memory.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The basic elements in order.
    #[must_use]
    #[inline]
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Form in which a report shows payloads of this type.
    #[must_use]
    #[inline]
    pub fn element(&self) -> Element {
        self.element
    }

    /// The basic elements of a message of `count` elements, made comparable.
    #[must_use]
    pub fn signature(&self, count: i64) -> Signature {
        let is_packed = self.sequence.uniform().is_some_and(|basic| basic.class == Class::Packed);
        let elements = || self.sequence.word().repeated(count.max(0) as u64).digest();
        Signature { bytes: self.packed_size(count), elements: (!is_packed).then(elements) }
    }

    /// The basic type, if an element is a single basic element.
    #[must_use]
    #[inline]
    pub fn basic(&self) -> Option<Basic> {
        self.sequence.single()
    }

    /// The element, seen by a reduction; `None` for elements of a derived type.
    #[must_use]
    #[inline]
    pub fn operand(&self) -> Option<Operand> {
        self.operand
    }

    /// Bytes of data in `count` elements.
    #[must_use]
    #[inline]
    pub fn packed_size(&self, count: i64) -> u64 {
        self.size() * count.max(0) as u64
    }

    /// The places of the bytes of `count` elements. Make it once for a message, and hand it to [`pack`] for each part.
    #[must_use]
    #[inline]
    pub fn message_layout(&self, count: i64) -> Layout {
        self.layout.repeated(count.max(0) as u64, self.extent())
    }

    /// Offset of the first byte from the buffer, if the bytes of `count` elements are adjacent and in order.
    #[must_use]
    #[inline]
    pub fn contiguous_offset(&self, count: i64) -> Option<i64> {
        let offset = self.layout.single_block()?;
        (count <= 1 || self.size() as i64 == self.extent()).then_some(offset)
    }

    /// True when the bytes of `count` elements are adjacent and begin at the buffer: then the buffer is the message.
    #[must_use]
    #[inline]
    pub fn is_contiguous(&self, count: i64) -> bool {
        self.contiguous_offset(count) == Some(0)
    }

    /// Packs `count` elements at `source` into the beginning of `out`. Returns the bytes written: all, or as many as
    /// `out` has room for.
    #[inline]
    pub fn pack(&self, source: *const u8, count: i64, out: &mut [u8]) -> usize {
        self.pack_range(source, count, 0, out)
    }

    /// Packs bytes `position..` of the packed stream of `count` elements at `source` into `out`, as many as there are
    /// or as `out` has room for. Returns that number.
    pub fn pack_range(&self, source: *const u8, count: i64, position: u64, out: &mut [u8]) -> usize {
        let length = self.range_length(count, position, out.len());
        pack::pack(&self.message_layout(count), source, position, &mut out[..length]);
        length
    }

    /// Unpacks `data` into `count` elements at `destination`; `data` may be shorter or longer than these. Returns the
    /// bytes used.
    #[inline]
    pub fn unpack(&self, destination: *mut u8, count: i64, data: &[u8]) -> usize {
        self.unpack_range(destination, count, 0, data)
    }

    /// Unpacks `data` as bytes `position..` of the packed stream of `count` elements at `destination`. Returns the
    /// bytes used.
    pub fn unpack_range(&self, destination: *mut u8, count: i64, position: u64, data: &[u8]) -> usize {
        let length = self.range_length(count, position, data.len());
        pack::unpack(&self.message_layout(count), destination, position, &data[..length]);
        length
    }

    fn range_length(&self, count: i64, position: u64, available: usize) -> usize {
        self.packed_size(count).saturating_sub(position).min(available as u64) as usize
    }

    /// Number of whole elements in `byte_count` bytes; `None` when they are not a whole number (`MPI_Get_count`).
    #[must_use]
    #[inline]
    pub fn count_of(&self, byte_count: u64) -> Option<i64> {
        match self.size() {
            0 => Some(0).filter(|_| byte_count == 0),
            size => byte_count.is_multiple_of(size).then_some((byte_count / size) as i64),
        }
    }

    /// Number of basic elements in `byte_count` bytes; `None` when they are not a whole number (`MPI_Get_elements`).
    #[must_use]
    pub fn elements_of(&self, byte_count: u64) -> Option<i64> {
        if self.size() == 0 {
            return Some(0).filter(|_| byte_count == 0);
        }
        let rest = byte_count % self.size();
        let (elements, bytes) = self.sequence.elements_in(rest);
        (bytes == rest).then_some((byte_count / self.size() * self.sequence.element_count + elements) as i64)
    }

    /// Bytes of `element_count` basic elements (`MPI_Status_set_elements`).
    #[must_use]
    pub fn bytes_of_elements(&self, element_count: u64) -> u64 {
        if self.sequence.element_count == 0 {
            return 0;
        }
        let whole = element_count / self.sequence.element_count;
        whole * self.size() + self.sequence.size_of_elements(element_count % self.sequence.element_count)
    }
}
