//! Datatypes (MPI-5.0 chapter 5): predefined and derived, how they lie in memory, and packing.
//!
//! A [`Datatype`] is immutable but for its name, its attributes and whether it is committed. It holds a [`Layout`] for
//! copying, a [`Sequence`] of basic elements for counting and conversion, and an [`Envelope`] that tells how it was
//! made. It is complete when constructed: `MPI_Type_commit` only marks it.

pub mod basic;
mod construct;
mod distribute;
mod envelope;
mod external;
pub mod layout;
pub mod pack;
mod predefined;
pub mod sequence;
pub mod signature;
#[cfg(test)]
mod tests;

pub use construct::{Block, contiguous, duplicate, hindexed, hvector, indexed, resized, struct_of};
pub use distribute::{DistributedArray, darray, subarray};
pub use envelope::Envelope;
pub use external::{external_size, from_external, to_external};
pub use predefined::{f90_complex, f90_integer, f90_real, match_size, value_index};

use crate::abi::MPI_ERR_TYPE;
use crate::error::{Error, Result};
use crate::handle::{DatatypeHandle, Held, Table};
use crate::objects::attributes::AttributeSet;
use basic::Basic;
use layout::Layout;
use sdc_detect::Element;
use sequence::Sequence;
use signature::Signature;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A datatype.
#[derive(Debug)]
pub struct Datatype {
    layout: Layout,
    sequence: Sequence,
    element: Element,
    bounds: Bounds,
    envelope: Envelope,
    /// For predefined types, and those that behave as such: the handle.
    predefined: Option<DatatypeHandle>,
    /// The first handle that the program was given.
    first_handle: OnceLock<DatatypeHandle>,
    committed: AtomicBool,
    name: Mutex<String>,
    /// Cached attributes.
    pub attributes: AttributeSet,
}

/// Lower and upper bound and what else decides the extent of types made from this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bounds {
    lower: i64,
    upper: i64,
    /// Whether the bounds were set, so that they prevail over those of the data (`MPI_Type_create_resized`).
    explicit: bool,
    /// The strictest alignment of a basic element.
    alignment: i64,
}

impl Datatype {
    fn new(layout: Layout, sequence: Sequence, bounds: Bounds, envelope: Envelope) -> Self {
        let element = sequence.uniform().map_or(Element::Unknown, |basic| basic.element());
        Self {
            layout,
            sequence,
            element,
            bounds,
            envelope,
            predefined: None,
            first_handle: OnceLock::new(),
            committed: AtomicBool::new(false),
            name: Mutex::default(),
            attributes: AttributeSet::new(),
        }
    }

    /// Bytes of data in one element.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.layout.size()
    }

    /// Distance in memory from one element to the next.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.bounds.upper - self.bounds.lower
    }

    /// Lower bound.
    #[must_use]
    pub fn lower_bound(&self) -> i64 {
        self.bounds.lower
    }

    /// First byte of data relative to the beginning, and the distance from there to the end of the last one.
    #[must_use]
    pub fn true_bounds(&self) -> (i64, i64) {
        let (first, past) = self.layout.bounds();
        (first, past - first)
    }

    /// How the bytes lie in memory.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The basic elements in order.
    #[must_use]
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// What a report says of payloads of this type.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// What a message of `count` elements consists of.
    #[must_use]
    pub fn signature(&self, count: i64) -> Signature {
        let is_packed = self.predefined == Some(DatatypeHandle::PACKED);
        let elements = || self.sequence.word().repeated(count.max(0) as u64).digest();
        Signature { bytes: self.packed_size(count), elements: (!is_packed).then(elements) }
    }

    /// How the type was made.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The basic type that one element is, for reductions.
    #[must_use]
    pub fn basic(&self) -> Option<Basic> {
        self.sequence.single()
    }

    /// The handle, if this is a predefined type.
    #[must_use]
    pub fn predefined(&self) -> Option<DatatypeHandle> {
        self.predefined
    }

    /// Bytes of data in `count` elements.
    #[must_use]
    pub fn packed_size(&self, count: i64) -> u64 {
        self.size() * count.max(0) as u64
    }

    /// How `count` elements lie in memory. Make it once for a message and hand it to [`pack`] piecewise.
    #[must_use]
    pub fn message_layout(&self, count: i64) -> Layout {
        self.layout.repeated(count.max(0) as u64, self.extent())
    }

    /// When the bytes of `count` elements are adjacent and in order: where they begin relative to the buffer.
    #[must_use]
    #[inline]
    pub fn contiguous_offset(&self, count: i64) -> Option<i64> {
        let offset = self.layout.single_block()?;
        (count <= 1 || self.size() as i64 == self.extent()).then_some(offset)
    }

    /// Whether the bytes of `count` elements are adjacent and begin at the buffer: the message is the buffer.
    #[must_use]
    #[inline]
    pub fn is_contiguous(&self, count: i64) -> bool {
        self.contiguous_offset(count) == Some(0)
    }

    /// First and one past the last byte that `count` elements occupy, relative to the buffer: what a temporary buffer of
    /// elements must hold.
    #[must_use]
    pub fn span(&self, count: i64) -> (i64, i64) {
        if count <= 0 {
            return (0, 0);
        }
        let (first, past) = self.layout.bounds();
        let last = self.extent() * (count - 1);
        (first + last.min(0), past + last.max(0))
    }

    /// Packs `count` elements at `source` into the beginning of `out`. Returns the bytes written: all, or as many as
    /// `out` has room for.
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

    /// Whether the type may be used in communication.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Marks the type as usable in communication.
    pub fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// The name, empty when none was set.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the name.
    pub fn set_name(&self, name: String) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}

/// One side of a local copy: a buffer, and what lies in it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a, P> {
    /// The program's buffer.
    pub buffer: P,
    /// Number of elements.
    pub count: i64,
    /// Their type.
    pub datatype: &'a Datatype,
}

/// Copies elements within this process, as a message to itself would. Returns the bytes copied: those of the smaller
/// side.
pub fn transfer(source: Side<'_, *const u8>, destination: Side<'_, *mut u8>) -> u64 {
    /// What is packed at a time: a part of the cache.
    const CHUNK_BYTES: usize = 32 << 10;

    let size = source.datatype.packed_size(source.count).min(destination.datatype.packed_size(destination.count));
    let from = source.datatype.message_layout(source.count);
    let to = destination.datatype.message_layout(destination.count);
    if let (Some(first), Some(second)) = (from.single_block(), to.single_block()) {
        let from = source.buffer.wrapping_offset(first as isize);
        pack::copy(from, destination.buffer.wrapping_offset(second as isize), size as usize);
        return size;
    }
    let mut chunk = vec![0; CHUNK_BYTES.min(size as usize)];
    let mut position = 0;
    while position < size {
        let length = (chunk.len() as u64).min(size - position) as usize;
        pack::pack(&from, source.buffer, position, &mut chunk[..length]);
        pack::unpack(&to, destination.buffer, position, &chunk[..length]);
        position += length as u64;
    }
    size
}

static DERIVED: Table<Datatype> = Table::new();

/// Takes a datatype in and returns its handle; a predefined type has its own.
pub fn register(datatype: Arc<Datatype>) -> DatatypeHandle {
    if let Some(handle) = datatype.predefined {
        return handle;
    }
    let handle = DatatypeHandle(DERIVED.insert(Arc::clone(&datatype)));
    datatype.first_handle.get_or_init(|| handle);
    handle
}

/// Calls `f` with a handle of the datatype, for a function of the program. It is the one the program knows, unless that
/// was freed while an operation still uses the type; then it is one that lives as long as the call.
pub fn with_handle(datatype: &Arc<Datatype>, f: impl FnOnce(DatatypeHandle)) {
    if let Some(handle) = datatype.predefined {
        return f(handle);
    }
    let known = datatype.first_handle.get().copied();
    let is_alive = |handle: &DatatypeHandle| DERIVED.get(handle.0).is_some_and(|found| Arc::ptr_eq(&found, datatype));
    if let Some(handle) = known.filter(is_alive) {
        return f(handle);
    }
    let handle = DERIVED.insert(Arc::clone(datatype));
    f(DatatypeHandle(handle));
    DERIVED.remove(handle);
}

/// The datatype behind a handle.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none.
#[inline]
pub fn resolve(handle: DatatypeHandle) -> Result<Held<Datatype>> {
    match predefined::find(handle) {
        Some(datatype) => Ok(Held::Forever(datatype)),
        None => DERIVED.get(handle.0).map(Held::Counted).ok_or_else(invalid),
    }
}

/// The predefined datatype with this handle, which is always committed.
#[inline]
pub fn predefined(handle: DatatypeHandle) -> Option<&'static Datatype> {
    predefined::find(handle).map(|datatype| &**datatype)
}

/// A predefined type that a basic element of `datatype` is: the one that it was made from, if that can be told.
#[must_use]
pub fn handle_of_basic(datatype: &Datatype, basic: Basic) -> DatatypeHandle {
    fn leaf(datatype: &Datatype, basic: Basic) -> Option<DatatypeHandle> {
        match datatype.predefined {
            Some(handle) if datatype.basic() == Some(basic) => Some(handle),
            _ => datatype.envelope.datatypes.iter().find_map(|part| leaf(part, basic)),
        }
    }
    leaf(datatype, basic).or_else(|| predefined::of_basic(basic)).expect("basic types are those of predefined types")
}

/// The datatype behind a handle, for communication.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none or it is not committed.
#[inline]
pub fn resolve_committed(handle: DatatypeHandle) -> Result<Held<Datatype>> {
    let datatype = resolve(handle)?;
    if datatype.is_committed() {
        return Ok(datatype);
    }
    Err(Error::new(MPI_ERR_TYPE, "the datatype is not committed"))
}

/// A datatype that an inactive operation will use: it stays when the program frees its handle (MPI-5.0 §5.1.9).
pub struct Kept {
    handle: DatatypeHandle,
    is_derived: bool,
}

/// Keeps a datatype, under a handle of its own.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none or it is not committed.
pub fn keep(handle: DatatypeHandle) -> Result<Kept> {
    let datatype = resolve_committed(handle)?;
    let is_derived = datatype.predefined.is_none();
    let handle = if is_derived { DatatypeHandle(DERIVED.insert(datatype.shared())) } else { handle };
    Ok(Kept { handle, is_derived })
}

impl Kept {
    /// A handle of it.
    pub fn handle(&self) -> DatatypeHandle {
        self.handle
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_derived {
            DERIVED.remove(self.handle.0);
        }
    }
}

/// Frees a derived datatype; communication and types that use it keep it.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none or it is predefined.
pub fn free(handle: DatatypeHandle) -> Result {
    if resolve(handle)?.predefined.is_some() {
        return Err(Error::new(MPI_ERR_TYPE, "a predefined datatype cannot be freed"));
    }
    DERIVED.remove(handle.0).map(drop).ok_or_else(invalid)
}

#[cold]
fn invalid() -> Error {
    Error::new(MPI_ERR_TYPE, "not a valid datatype")
}
