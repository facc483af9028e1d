//! Buffers that are sections of Fortran arrays with strides, in collectives that go on after the call.
//!
//! The Fortran library cannot copy such a section: nobody would copy it back when the operation is complete. A datatype
//! of the section's shape in place of the program's does not serve either, since a reduction must know its elements,
//! and a gather cuts the buffer into pieces. So it lends the shape beside the call: the buffer at this address is,
//! element after element, what the shape says. From there on it is a buffer that is packed and unpacked like any that
//! is not contiguous (`slots.rs`).

use redrt_abi::MPI_ERR_BUFFER;
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::{DatatypeHandle, Held};
use redrt_comm::datatype::{self, Datatype};
use redrt_runtime::threads;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

per_thread! {
    static IS_LENT: Cell<bool> = Cell::new(false);
    static LENT: RefCell<Vec<(usize, Arc<Datatype>)>> = RefCell::new(Vec::new());
}

/// Until it is called again with no shape, collective calls of this thread take `buffer` for a section: one element of
/// `shape` has all of its elements, in order. Returns whether there is such a shape.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_lend_section(buffer: *mut c_void, shape: DatatypeHandle) -> c_int {
    // The allocator may look at the clock, which is not the program's doing.
    let _inside = threads::enter_quietly();
    let shape = datatype::resolve_committed(shape).ok().map(Held::shared);
    let is_known = shape.is_some();
    LENT.with_borrow_mut(|lent| {
        lent.retain(|(start, _)| *start != buffer.addr());
        lent.extend(shape.map(|shape| (buffer.addr(), shape)));
        IS_LENT.set(!lent.is_empty());
    });
    c_int::from(is_known)
}

/// Bytes of a section, counted as if it were contiguous.
#[derive(Clone)]
pub struct Section {
    shape: Arc<Datatype>,
    position: u64,
}

impl Section {
    /// The place of `count` elements, `offset` bytes behind the beginning, if the buffer is a section.
    #[inline]
    pub fn of(buffer: *const u8, offset: isize, count: i64, datatype: &Datatype) -> Result<Option<Self>> {
        if !IS_LENT.get() {
            return Ok(None);
        }
        Self::find(buffer, offset, count, datatype)
    }

    #[cold]
    fn find(buffer: *const u8, offset: isize, count: i64, datatype: &Datatype) -> Result<Option<Self>> {
        let found = |lent: &Vec<(usize, Arc<Datatype>)>| {
            lent.iter().find(|(start, _)| *start == buffer.addr()).map(|(_, shape)| shape.clone())
        };
        let Some(shape) = LENT.with_borrow(found) else { return Ok(None) };
        let bytes = datatype.packed_size(count);
        if datatype.contiguous_offset(2) != Some(0) {
            fail!(MPI_ERR_BUFFER, "a section with strides cannot be taken for elements of a type with holes");
        }
        match u64::try_from(offset) {
            Ok(position) if position + bytes <= shape.size() => Ok(Some(Self { shape, position })),
            _ => fail!(
                MPI_ERR_BUFFER,
                "{bytes} bytes from byte {offset} on are not in a section of {} bytes",
                shape.size()
            ),
        }
    }

    /// Its bytes, from the section that begins at `start`.
    pub fn pack(&self, start: *const u8, bytes: &mut [u8]) {
        self.shape.pack_range(start, 1, self.position, bytes);
    }

    /// Brings bytes to the section that begins at `start`.
    pub fn unpack(&self, start: *mut u8, bytes: &[u8]) {
        self.shape.unpack_range(start, 1, self.position, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::coll::slots;
    use redrt_abi::MPI_COMBINER_DUP;
    use redrt_comm::datatype::Envelope;
    use redrt_datatype::hvector;

    #[test]
    fn a_lent_section_is_read_and_written_where_its_elements_are() {
        let int = datatype::resolve(DatatypeHandle::INT).unwrap();
        let every_third = Datatype::new(hvector(5, 1, 12, &int).unwrap(), Envelope::new(MPI_COMBINER_DUP, false));
        every_third.commit();
        let shape = datatype::register(Arc::new(every_third));
        let mut array: Vec<i32> = (0..15).collect();
        let start = array.as_mut_ptr();
        assert_eq!(redrt_lend_section(start.cast(), shape), 1);
        let pieces = slots::blocks(start.cast(), 2, DatatypeHandle::INT, 2).unwrap();
        assert!(slots::blocks(start.cast(), 2, DatatypeHandle::INT, 3).is_err(), "six elements of five");
        assert_eq!(redrt_lend_section(start.cast(), DatatypeHandle::NULL), 0);
        let packed = slots::load_all(pieces);
        let numbers = |at: usize| {
            packed[at].region.with_bytes(|bytes| {
                bytes.chunks_exact(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap())).collect::<Vec<_>>()
            })
        };
        assert_eq!((numbers(0), numbers(1)), (vec![0, 3], vec![6, 9]));
        packed[1].region.with_bytes_mut(|bytes| bytes.fill(0xff));
        packed[1].store();
        assert_eq!(array, [0, 1, 2, 3, 4, 5, -1, 7, 8, -1, 10, 11, 12, 13, 14]);
        datatype::free(shape).unwrap();
    }
}
