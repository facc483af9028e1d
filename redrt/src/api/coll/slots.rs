//! Buffers of collectives: their arguments, and their packed bytes for one operation.

use super::section::Section;
use crate::api::buffers;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{DatatypeHandle, Held};
use redrt_abi::{Counts, Input, MPI_ERR_COUNT};
use redrt_comm::coll::board::Pieces;
use redrt_comm::datatype::{self, Datatype};
use redrt_transport::memory::{Region, Scratch};
use std::ffi::c_void;

/// A buffer of the program, not accessed before it is packed.
#[derive(Clone)]
pub struct Slot {
    start: Region,
    count: i64,
    datatype: Held<Datatype>,
    /// Its part of a lent section, if the buffer is one (`section.rs`).
    section: Option<Box<Section>>,
}

/// The bytes of a slot for one operation: in place when they are contiguous, else a copy.
pub struct Packed {
    /// Contiguous bytes: those of the slot, or of its copy.
    pub region: Region,
    copy: Option<(Slot, Scratch)>,
}

impl Slot {
    /// `count` elements at `buffer`.
    #[inline(always)]
    pub fn new(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<Self> {
        Self::with(buffer.cast(), 0, count, datatype::resolve_committed(datatype)?)
    }

    /// `count` elements, `offset` bytes from the beginning of a buffer.
    #[inline(always)]
    fn with(buffer: *const u8, offset: isize, count: i64, datatype: Held<Datatype>) -> Result<Self> {
        if count < 0 {
            return Err(Error::new(MPI_ERR_COUNT, format!("count is {count}")));
        }
        buffers::check_place(buffer.cast(), offset, count, &datatype)?;
        let section = Section::of(buffer, offset, count, &datatype)?.map(Box::new);
        let start = buffer.cast_mut().wrapping_offset(if section.is_some() { 0 } else { offset });
        // SAFETY: - no bytes: the region is empty, and keeps the address only.
        Ok(Self { start: unsafe { Region::new(start, 0) }, count, datatype, section })
    }

    /// The same elements, `offset` bytes further on.
    fn at(&self, offset: isize) -> Self {
        let start = self.start.start().wrapping_offset(offset);
        // SAFETY: - no bytes: the region is empty, and keeps the address only.
        Self { start: unsafe { Region::new(start, 0) }, ..self.clone() }
    }

    /// Number of packed bytes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.datatype.packed_size(self.count) as usize
    }

    /// The packed bytes, if they are the program's own memory: contiguous, and no section.
    #[inline(always)]
    pub fn in_place(&self) -> Option<Region> {
        if self.section.is_some() {
            return None;
        }
        let start = self.start.start().wrapping_offset(self.datatype.contiguous_offset(self.count)? as isize);
        // SAFETY: - the program's buffer, valid until the collective is complete: the contract of the C call.
        Some(unsafe { Region::new(start, self.bytes()) }.of(self.datatype.element()))
    }

    /// Room for the packed bytes: the program's own memory, or a new buffer.
    #[inline(always)]
    pub fn open(self) -> Packed {
        match self.in_place() {
            Some(region) => Packed { region, copy: None },
            None => {
                let mut copy = Scratch::spare(self.bytes());
                Packed { region: copy.region().of(self.datatype.element()), copy: Some((self, copy)) }
            }
        }
    }

    /// The packed bytes: the program's own memory, or a copy.
    #[inline(always)]
    pub fn load(self) -> Packed {
        let packed = self.open();
        if let Some((slot, _)) = &packed.copy {
            packed.region.with_bytes_mut(|bytes| slot.pack(bytes));
        }
        packed
    }

    fn pack(&self, bytes: &mut [u8]) {
        match &self.section {
            Some(section) => section.pack(self.start.start(), bytes),
            None => {
                self.datatype.pack(self.start.start(), self.count, bytes);
            }
        }
    }

    fn unpack(&self, bytes: &[u8]) {
        match &self.section {
            Some(section) => section.unpack(self.start.start(), bytes),
            None => {
                self.datatype.unpack(self.start.start(), self.count, bytes);
            }
        }
    }

    /// A copy of the packed bytes in memory of the library.
    pub fn copy(self) -> Scratch {
        let mine = self.load();
        let mut copy = Scratch::spare(mine.region.len());
        copy.region().copy_from(mine.region);
        copy
    }
}

impl Packed {
    /// Unpacks the bytes to the program's buffer, if they are a copy.
    pub fn store(&self) {
        if let Some((slot, _)) = &self.copy {
            self.region.with_bytes(|bytes| slot.unpack(bytes));
        }
    }
}

/// Buffers of all members.
#[derive(Clone)]
pub enum Slots {
    /// Buffers of one length, one after the other: the first, the distance from one to the next in bytes, their number.
    Even(Slot, isize, usize),
    /// Buffers of any lengths and places.
    Each(Vec<Slot>),
}

/// Packed bytes of all members, in the program's own memory.
pub struct Even {
    first: Region,
    stride: isize,
}

impl Even {
    /// `first`, and regions like it, `stride` bytes apart.
    #[inline(always)]
    pub fn new(first: Region, stride: isize) -> Self {
        Self { first, stride }
    }

    /// No regions: this member needs none.
    #[inline(always)]
    pub fn none() -> Self {
        Self::new(Region::empty(), 0)
    }
}

impl Pieces for Even {
    #[inline(always)]
    fn piece(&self, member: usize) -> Region {
        let start = self.first.start().wrapping_offset(self.stride * member as isize);
        // SAFETY: - within the program's buffer, valid until the collective is complete: the contract of the C call.
        unsafe { Region::new(start, self.first.len()) }.of(self.first.element())
    }
}

impl Slots {
    /// `size` slots of `count` elements each, one after the other.
    #[inline(always)]
    pub fn even(buffer: *const c_void, count: i64, datatype: DatatypeHandle, size: usize) -> Result<Self> {
        let first = Slot::new(buffer, count, datatype)?;
        if first.section.is_some() {
            return Ok(Self::Each(blocks(buffer, count, datatype, size)?));
        }
        let stride = first.datatype.extent() as isize * count as isize;
        Ok(Self::Even(first, stride, size))
    }

    /// No buffers: this member has none.
    pub fn none() -> Self {
        Self::Each(Vec::new())
    }

    /// The packed bytes, if they are even and the program's own. A member that is not `here` needs none.
    #[inline(always)]
    pub fn in_place_at(&self, here: bool) -> Option<Even> {
        if here { self.in_place() } else { Some(Even::none()) }
    }

    /// The packed bytes, if they are even and the program's own.
    #[inline(always)]
    pub fn in_place(&self) -> Option<Even> {
        match self {
            Self::Even(first, stride, _) => Some(Even::new(first.in_place()?, *stride)),
            Self::Each(_) => None,
        }
    }

    /// The buffers, one by one.
    pub fn each(self) -> Vec<Slot> {
        match self {
            Self::Even(first, stride, size) => (0..size).map(|member| first.at(stride * member as isize)).collect(),
            Self::Each(slots) => slots,
        }
    }

    /// Number of packed bytes of a member's buffer.
    pub fn bytes_of(&self, member: usize) -> usize {
        match self {
            Self::Even(first, ..) => first.bytes(),
            Self::Each(slots) => slots[member].bytes(),
        }
    }
}

/// `size` slots of `count` elements each, one after the other.
pub fn blocks(buffer: *const c_void, count: i64, datatype: DatatypeHandle, size: usize) -> Result<Vec<Slot>> {
    let datatype = datatype::resolve_committed(datatype)?;
    let stride = datatype.extent() as isize * count as isize;
    let at = |number: usize| stride * number as isize;
    (0..size).map(|number| Slot::with(buffer.cast(), at(number), count, datatype.clone())).collect()
}

/// Slots with given counts and displacements, in units of the datatype's extent.
pub fn scattered(
    buffer: *const c_void,
    counts: Counts,
    places: Counts,
    datatype: DatatypeHandle,
    size: usize,
) -> Result<Vec<Slot>> {
    let datatype = datatype::resolve_committed(datatype)?;
    let extent = datatype.extent() as isize;
    let at = |number: usize| extent * places.get(number) as isize;
    (0..size).map(|number| Slot::with(buffer.cast(), at(number), counts.get(number), datatype.clone())).collect()
}

/// Slots with given counts, displacements in bytes, and types.
pub fn assorted(
    buffer: *const c_void,
    counts: Counts,
    places: Counts,
    types: Input<DatatypeHandle>,
    size: usize,
) -> Result<Vec<Slot>> {
    let types = types.slice(size)?;
    let at = |number: usize| places.get(number) as isize;
    (0..size)
        .map(|number| {
            Slot::with(buffer.cast(), at(number), counts.get(number), datatype::resolve_committed(types[number])?)
        })
        .collect()
}

/// Room for the packed bytes of all slots.
pub fn open_all(slots: Vec<Slot>) -> Vec<Packed> {
    slots.into_iter().map(Slot::open).collect()
}

/// The packed bytes of all slots.
pub fn load_all(slots: Vec<Slot>) -> Vec<Packed> {
    slots.into_iter().map(Slot::load).collect()
}

/// The regions of packed slots.
pub fn regions(packed: &[Packed]) -> Vec<Region> {
    packed.iter().map(|packed| packed.region).collect()
}
