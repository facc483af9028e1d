//! Buffers that are sections of Fortran arrays with strides, in collectives that go on after the call.
//!
//! The Fortran library cannot pass a copy of such a section: the copy would have to be written back when the operation
//! completes. It cannot pass a datatype of the section's shape either, since a reduction must know the elements, and a
//! gather cuts the buffer into pieces. So it lends the shape beside the call: elements of the buffer at this address
//! are at the places that the shape describes, in order. Here the section is then packed and unpacked like any buffer
//! that is not contiguous (`slots.rs`).

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

/// From now on, collective calls of this thread take `buffer` for a section: one element of `shape` covers all of its
/// elements, in order. An invalid shape ends that. Returns 1 for a valid shape, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_lend_section(buffer: *mut c_void, shape: DatatypeHandle) -> c_int {
    // Freeing memory here may make the allocator read a clock, which is no reading of the program.
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

/// Part of a section: a range of its bytes, counted as if the section were contiguous.
#[derive(Clone)]
pub struct Section {
    shape: Arc<Datatype>,
    position: u64,
}

impl Section {
    /// The part of a lent section that has `count` elements from byte `offset` on; `None` if the buffer is no section.
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

    /// Copies the part's bytes from the section at `start`.
    pub fn pack(&self, start: *const u8, bytes: &mut [u8]) {
        self.shape.pack_range(start, 1, self.position, bytes);
    }

    /// Copies bytes to the part of the section at `start`.
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
