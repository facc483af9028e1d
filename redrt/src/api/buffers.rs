//! (buffer, count, datatype) as the engine wants it: bytes to send, a place to receive into.

use crate::abi::MPI_ERR_COUNT;
use crate::datatype::{self, Datatype};
use crate::error::{Error, Result};
use crate::handle::{DatatypeHandle, Held};
use redrt_engine::payload::{Payload, Scatter, Target};
use redrt_transport::memory::Scratch;
use sdc_detect::Element;
use std::ffi::c_void;

/// A checked buffer argument.
pub struct Typed {
    /// The datatype.
    pub datatype: Held<Datatype>,
    /// Number of elements, not negative.
    pub count: i64,
}

/// Checks a count and a datatype.
#[inline]
pub fn typed(count: i64, datatype: DatatypeHandle) -> Result<Typed> {
    if count < 0 {
        return Err(negative(count));
    }
    Ok(Typed { datatype: datatype::resolve_committed(datatype)?, count })
}

/// Refuses what [`typed`] refuses.
#[inline(never)]
pub fn check(count: i64, datatype: DatatypeHandle) -> Result {
    typed(count, datatype).map(|_| ())
}

#[cold]
fn negative(count: i64) -> Error {
    Error::new(MPI_ERR_COUNT, format!("count is {count}"))
}

impl Typed {
    /// Packed length in bytes.
    pub fn bytes(&self) -> usize {
        self.datatype.packed_size(self.count) as usize
    }

    /// Where the bytes are when they lie in one stretch.
    pub fn stretch(&self, buffer: *const c_void) -> Option<*mut u8> {
        let start = buffer.cast_mut().cast::<u8>();
        self.datatype.contiguous_offset(self.count).map(|offset| start.wrapping_offset(offset as isize))
    }
}

/// Start and length of elements of a predefined type, which needs no reference count: the common case.
#[inline(always)]
pub(crate) fn predefined_stretch(
    buffer: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> Option<(*mut u8, usize, &'static Datatype)> {
    let datatype = datatype::predefined(datatype).filter(|_| count >= 0)?;
    let offset = datatype.contiguous_offset(count)?;
    let start = buffer.cast_mut().cast::<u8>().wrapping_offset(offset as isize);
    Some((start, datatype.packed_size(count) as usize, datatype))
}

/// The bytes to send, and what they are. Not copied when they lie in one stretch.
///
/// Always inlined, so that what it gives stays in registers: a structure that is written in small parts and read in
/// large ones makes the processor wait until all that it has written before is visible.
///
/// # Safety
/// `buffer` must be valid as MPI says, until the send completes.
#[inline(always)]
pub unsafe fn outgoing(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<(Payload, Element)> {
    if let Some((start, bytes, datatype)) = predefined_stretch(buffer, count, datatype) {
        // SAFETY: - the program keeps the buffer until the send completes.
        return Ok((unsafe { Payload::user(start, bytes) }, datatype.element()));
    }
    // SAFETY: - as promised to this function.
    unsafe { outgoing_of_any(buffer, count, datatype) }
}

#[inline(never)]
unsafe fn outgoing_of_any(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<(Payload, Element)> {
    let typed = typed(count, datatype)?;
    let (bytes, element) = (typed.bytes(), typed.datatype.element());
    if let Some(start) = typed.stretch(buffer) {
        // SAFETY: - the program keeps the buffer until the send completes.
        return Ok((unsafe { Payload::user(start, bytes) }, element));
    }
    let mut packed = Scratch::spare(bytes);
    packed.region().with_bytes_mut(|bytes| typed.datatype.pack(buffer.cast(), typed.count, bytes));
    Ok((Payload::Packed(Box::new(packed)), element))
}

/// The place to receive into. Always inlined, as [`outgoing`] is.
#[inline(always)]
pub fn incoming(buffer: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Target> {
    if let Some((start, bytes, _)) = predefined_stretch(buffer, count, datatype) {
        return Ok(Target { start, capacity: bytes as u64, scatter: None });
    }
    incoming_of_any(buffer, count, datatype)
}

#[inline(never)]
fn incoming_of_any(buffer: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Target> {
    let typed = typed(count, datatype)?;
    let capacity = typed.bytes() as u64;
    if let Some(start) = typed.stretch(buffer) {
        return Ok(Target { start, capacity, scatter: None });
    }
    Ok(Target { start: buffer.cast(), capacity, scatter: Some(Box::new(typed)) })
}

impl Scatter for Typed {
    unsafe fn scatter(&self, to: *mut u8, position: u64, packed: &[u8]) {
        self.datatype.unpack_range(to, self.count, position, packed);
    }

    unsafe fn gather(&self, from: *const u8, length: usize) -> Vec<u8> {
        let mut packed = vec![0; self.bytes()];
        self.datatype.pack(from, self.count, &mut packed);
        packed.truncate(length);
        packed
    }
}
