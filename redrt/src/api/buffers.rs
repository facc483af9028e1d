//! Buffer arguments (address, count, datatype), converted for the engine: bytes to send, a place to receive into.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{DatatypeHandle, Held};
use redrt_abi::{MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_IN_PLACE};
use redrt_comm::datatype::{self, Datatype};
use redrt_engine::payload::{Payload, Scatter, Target};
use redrt_transport::memory::Scratch;
use sdc_detect::Element;
use std::ffi::c_void;

/// A checked buffer argument.
pub struct Typed {
    /// Type of the elements.
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

/// Checks a buffer, a count and a datatype.
#[inline]
pub fn typed_at(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<Typed> {
    let typed = typed(count, datatype)?;
    check_place(buffer, 0, count, &typed.datatype)?;
    Ok(typed)
}

/// Checks a count and a datatype, as [`typed`] does.
#[inline(never)]
pub fn check(count: i64, datatype: DatatypeHandle) -> Result {
    typed(count, datatype).map(|_| ())
}

#[cold]
fn negative(count: i64) -> Error {
    Error::new(MPI_ERR_COUNT, format!("count is {count}"))
}

/// No byte of a program has a lower address: the kernel maps nothing there. Addresses with a meaning of their own, such
/// as null and `MPI_IN_PLACE`, are lower.
const LOWEST_ADDRESS: usize = 4096;

/// Refuses a buffer that cannot exist: `count` elements, not negative, that begin `offset` bytes behind `buffer`.
///
/// # Errors
/// `MPI_ERR_BUFFER`, as in MPICH and Open MPI.
#[inline(always)]
pub fn check_place(buffer: *const c_void, offset: isize, count: i64, datatype: &Datatype) -> Result {
    if buffer.addr() >= LOWEST_ADDRESS || datatype.packed_size(count) == 0 {
        return Ok(());
    }
    nowhere(buffer, offset as i64 + datatype.true_bounds().0)
}

/// Refuses a buffer of `length` bytes that cannot exist.
///
/// # Errors
/// `MPI_ERR_BUFFER`.
pub fn check_bytes(buffer: *const c_void, length: usize) -> Result {
    if buffer.addr() >= LOWEST_ADDRESS || length == 0 { Ok(()) } else { nowhere(buffer, 0) }
}

/// Refuses an invalid address. `first` is the offset of the first byte to access, in bytes from the buffer.
#[cold]
fn nowhere(buffer: *const c_void, first: i64) -> Result {
    if std::ptr::eq(buffer, MPI_IN_PLACE) {
        fail!(MPI_ERR_BUFFER, "MPI_IN_PLACE has no meaning for this buffer here");
    }
    let address = (buffer.addr() as i64).wrapping_add(first);
    match buffer.is_null() {
        // MPI_BOTTOM is null too: then the datatype, or a displacement, has the address.
        _ if !(0..LOWEST_ADDRESS as i64).contains(&address) => Ok(()),
        true => fail!(MPI_ERR_BUFFER, "the buffer is null"),
        false => fail!(MPI_ERR_BUFFER, "the buffer begins at address {address:#x}, where nothing is"),
    }
}

impl Typed {
    /// Packed length in bytes.
    pub fn bytes(&self) -> usize {
        self.datatype.packed_size(self.count) as usize
    }

    /// Address of the bytes, if they are contiguous.
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
    // Invalid addresses are reported on the slow path.
    if buffer.addr() < LOWEST_ADDRESS && count > 0 {
        return None;
    }
    let offset = datatype.contiguous_offset(count)?;
    let start = buffer.cast_mut().cast::<u8>().wrapping_offset(offset as isize);
    Some((start, datatype.packed_size(count) as usize, datatype))
}

/// The bytes to send, and their element type. Contiguous bytes are not copied.
///
/// Always inlined, so that the result stays in registers. The trap: a structure that is written in small parts and read
/// in large ones makes the processor wait until all its earlier writes are visible.
///
/// # Safety
/// `buffer` holds `count` elements of `datatype`, and stays valid and unchanged until the send completes.
#[inline(always)]
pub unsafe fn outgoing(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<(Payload, Element)> {
    if let Some((start, bytes, datatype)) = predefined_stretch(buffer, count, datatype) {
        // SAFETY: - valid until the send completes: this function's contract.
        return Ok((unsafe { Payload::user(start, bytes) }, datatype.element()));
    }
    // SAFETY: - valid until the send completes: this function's contract.
    unsafe { outgoing_of_any(buffer, count, datatype) }
}

#[inline(never)]
unsafe fn outgoing_of_any(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<(Payload, Element)> {
    let typed = typed_at(buffer, count, datatype)?;
    let (bytes, element) = (typed.bytes(), typed.datatype.element());
    if let Some(start) = typed.stretch(buffer) {
        // SAFETY: - valid until the send completes: the contract of `outgoing`, the only caller.
        return Ok((unsafe { Payload::user(start, bytes) }, element));
    }
    let mut packed = Scratch::spare(bytes);
    packed.region().with_bytes_mut(|bytes| typed.datatype.pack(buffer.cast(), typed.count, bytes));
    Ok((Payload::Packed(Box::new(packed)), element))
}

/// The place to receive into. Always inlined, for the same reason as [`outgoing`].
#[inline(always)]
pub fn incoming(buffer: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Target> {
    if let Some((start, bytes, _)) = predefined_stretch(buffer, count, datatype) {
        return Ok(Target { start, capacity: bytes as u64, scatter: None });
    }
    incoming_of_any(buffer, count, datatype)
}

#[inline(never)]
fn incoming_of_any(buffer: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Target> {
    let typed = typed_at(buffer, count, datatype)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_abi::MPI_COMBINER_DUP;
    use redrt_comm::datatype::Envelope;
    use redrt_datatype::hvector;
    use std::ptr::without_provenance;

    #[test]
    fn only_a_buffer_whose_bytes_are_nowhere_is_refused() {
        let int = datatype::resolve(DatatypeHandle::INT).unwrap();
        let nothing = Datatype::new(hvector(0, 1, 4, &int).unwrap(), Envelope::new(MPI_COMBINER_DUP, false));
        let is_refused = |address: usize, offset, count, datatype: &Datatype| {
            let checked = check_place(without_provenance(address), offset, count, datatype);
            checked.map_err(|error| assert_eq!(error.code(), MPI_ERR_BUFFER)).is_err()
        };
        for address in [0, MPI_IN_PLACE.addr(), 2, LOWEST_ADDRESS - 1] {
            assert!(is_refused(address, 0, 1, &int) && is_refused(address, 0, 1 << 40, &int), "{address}");
            assert!(!is_refused(address, 0, 0, &int) && !is_refused(address, 0, 7, &nothing), "{address}");
        }
        assert!(!is_refused(LOWEST_ADDRESS, 0, 1, &int));
        // With MPI_BOTTOM a displacement may be the address; MPI_IN_PLACE has no displacement.
        assert!(!is_refused(0, LOWEST_ADDRESS as isize, 1, &int) && !is_refused(0, -1 << 20, 1, &int));
        assert!(is_refused(MPI_IN_PLACE.addr(), 1 << 20, 1, &int));
        assert!(check_bytes(without_provenance(0), 0).is_ok() && check_bytes(without_provenance(0), 1).is_err());
        for address in [0, MPI_IN_PLACE.addr()] {
            let buffer = without_provenance::<c_void>(address);
            assert!(predefined_stretch(buffer, 1, DatatypeHandle::INT).is_none(), "its caller finds out why");
            assert!(predefined_stretch(buffer, 0, DatatypeHandle::INT).is_some(), "as fast as any other");
        }
    }
}
