//! Operations on a target's memory. They run one at a time, so each is atomic with respect to all others.

use super::order::{Combination, Place};
use redrt_abi::handle::{DatatypeHandle, OpHandle};
use redrt_abi::{MPI_ERR_OP, MPI_ERR_RMA_RANGE, MPI_ERR_TYPE};
use redrt_comm::datatype;
use redrt_comm::op;
use redrt_datatype::layout::{Builder, Layout};
use redrt_datatype::{TypeMap, pack};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::copying;
use std::ffi::c_int;

/// Outcome of an operation. The error is an error class of MPI.
pub type Done<T = ()> = Result<T, c_int>;

/// The memory that operations may reach.
#[derive(Clone, Debug)]
pub enum Reach {
    /// `size` bytes from an address on, with displacements in units.
    Fixed {
        /// Address of the first byte.
        start: u64,
        /// Number of bytes.
        size: u64,
        /// Bytes of one unit of displacement.
        unit: u64,
    },
    /// Memory that the program has attached: addresses and sizes.
    Attached(Vec<(u64, u64)>),
}

impl Reach {
    /// Finds the memory of a place. Fails with `MPI_ERR_RMA_RANGE` unless all of it is reachable.
    pub fn find(&self, place: &Place) -> Done<Spot> {
        let (layout, first, past) = place.layout().ok_or(MPI_ERR_RMA_RANGE)?;
        let displacement = i128::from(place.displacement);
        let (origin, low, high) = match self {
            Self::Fixed { start, size, unit } => {
                let start = i128::from(*start);
                (start + displacement * i128::from(*unit), start, start + i128::from(*size))
            }
            Self::Attached(regions) => {
                let holds = |(low, high): &(i128, i128)| {
                    displacement + i128::from(first) >= *low && displacement + i128::from(past) <= *high
                };
                let (low, high) = stretches(regions).into_iter().find(holds).ok_or(MPI_ERR_RMA_RANGE)?;
                (displacement, low, high)
            }
        };
        // A sound request does not overlap itself so much that it is longer than the memory; a damaged one may.
        let is_within = origin + i128::from(first) >= low
            && origin + i128::from(past) <= high
            && i128::from(layout.size()) <= high - low;
        if layout.size() > 0 && !is_within {
            return Err(MPI_ERR_RMA_RANGE);
        }
        // A layout without bytes may be at any place.
        let origin = if layout.size() == 0 { low } else { origin };
        let address = usize::try_from(origin).map_err(|_| MPI_ERR_RMA_RANGE)?;
        Ok(Spot::new(std::ptr::with_exposed_provenance_mut(address), &layout.into()))
    }
}

/// Attached memory as ranges of addresses. Adjacent regions are one range.
fn stretches(regions: &[(u64, u64)]) -> Vec<(i128, i128)> {
    let mut regions = regions.to_vec();
    regions.sort_unstable();
    let mut found: Vec<(i128, i128)> = Vec::with_capacity(regions.len());
    for (start, size) in regions {
        let (low, high) = (i128::from(start), i128::from(start) + i128::from(size));
        match found.last_mut().filter(|last| last.1 >= low) {
            Some(last) => last.1 = last.1.max(high),
            None => found.push((low, high)),
        }
    }
    found
}

/// Arrangement of an operation's bytes in memory.
#[derive(Clone)]
pub enum Form {
    /// One contiguous block.
    Block {
        /// Offset of the first byte.
        offset: i64,
        /// Number of bytes.
        size: usize,
    },
    /// Several blocks, with gaps or in another order.
    Spread(Layout),
}

impl From<Layout> for Form {
    fn from(layout: Layout) -> Self {
        match layout.single_block() {
            Some(offset) => Self::Block { offset, size: layout.size() as usize },
            None => Self::Spread(layout),
        }
    }
}

impl Form {
    /// The form of `count` elements of a type.
    pub fn of(datatype: &TypeMap, count: i64) -> Self {
        match datatype.contiguous_offset(count) {
            Some(offset) => Self::Block { offset, size: datatype.packed_size(count) as usize },
            None => datatype.message_layout(count).into(),
        }
    }

    /// Number of bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Block { size, .. } => *size,
            Self::Spread(layout) => layout.size() as usize,
        }
    }

    /// Offsets of the first byte and one past the last.
    pub fn bounds(&self) -> (i64, i64) {
        match self {
            Self::Block { offset, size } => (*offset, *offset + *size as i64),
            Self::Spread(layout) => layout.bounds(),
        }
    }

    /// The form as a layout.
    pub fn layout(&self) -> Layout {
        match self {
            Self::Block { offset, size } => {
                let mut builder = Builder::default();
                builder.push_block(*offset, *size as u64);
                builder.finish()
            }
            Self::Spread(layout) => layout.clone(),
        }
    }
}

/// Memory of a target that an operation reaches.
#[derive(Clone)]
pub struct Spot {
    /// The first byte of a block, else the origin of the layout.
    start: *mut u8,
    /// The layout; `None` for a block.
    spread: Option<Layout>,
    size: usize,
}

// SAFETY: - usable in any thread: an address, used by the server only, which one thread at a time advances.
unsafe impl Send for Spot {}

impl Spot {
    /// Bytes of this form, from `origin` on.
    pub fn new(origin: *mut u8, form: &Form) -> Self {
        match form {
            Form::Block { offset, size } => {
                Self { start: origin.wrapping_offset(*offset as isize), spread: None, size: *size }
            }
            Form::Spread(layout) => Self { start: origin, size: layout.size() as usize, spread: Some(layout.clone()) },
        }
    }

    /// Number of bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Splits the spot into its address and its layout; the layout is `None` for a block.
    pub fn into_parts(self) -> (*mut u8, Option<Layout>) {
        (self.start, self.spread)
    }

    /// Reads the bytes, packed.
    pub fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size];
        // SAFETY: - bytes is valid for writes of self.size bytes.
        unsafe { self.read_to(bytes.as_mut_ptr()) };
        bytes
    }

    /// Reads the bytes, packed, to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of [`Spot::size`] bytes.
    pub unsafe fn read_to(&self, into: *mut u8) {
        match &self.spread {
            Some(layout) => {
                // SAFETY: - valid for writes of self.size bytes: the caller's duty above.
                let bytes = unsafe { std::slice::from_raw_parts_mut(into, self.size) };
                pack::pack(layout, self.start, 0, bytes);
            }
            // SAFETY: - start is valid for reads of self.size bytes: within the window.
            //         - into is valid for writes of as many: the caller's duty above.
            //         - the two may overlap: the program may read into window memory.
            None => unsafe { copying::copy(self.start, into, self.size) },
        }
    }

    /// Writes packed bytes; if there are fewer than the size, only the first. Fails if there are more.
    pub fn write(&self, data: &[u8]) -> Done {
        if data.len() > self.size {
            return Err(MPI_ERR_RMA_RANGE);
        }
        match &self.spread {
            Some(layout) => pack::unpack(layout, self.start, 0, data),
            // SAFETY: - start is valid for writes of data.len() bytes: not more than the size, checked above.
            //         - the two may overlap: the program's data may be window memory themselves.
            None => unsafe { copying::copy(data.as_ptr(), self.start, data.len()) },
        }
        Ok(())
    }

    /// Replaces the bytes by their combination with `data`. Fails if the lengths, the operation or the type do not fit.
    pub fn combine(&self, how: Combination, data: &[u8]) -> Done {
        let operation = OpHandle(how.operation as usize);
        if operation == OpHandle::NO_OP || self.size == 0 {
            return Ok(());
        }
        if data.len() != self.size {
            return Err(MPI_ERR_TYPE);
        }
        if operation == OpHandle::REPLACE || mutation::is_planted(Mutation::AccumulateReplaces) {
            return self.write(data);
        }
        let operation = op::resolve(operation).map_err(|_| MPI_ERR_OP)?;
        let element = datatype::resolve(DatatypeHandle(how.element as usize)).map_err(|_| MPI_ERR_TYPE)?;
        if operation.is_user() || element.size() == 0 || !(data.len() as u64).is_multiple_of(element.size()) {
            return Err(MPI_ERR_OP);
        }
        let count = (data.len() as u64 / element.size()) as i64;
        let reduce = |input: *const u8, in_out: *mut u8| {
            operation.reduce(&element, count, input, in_out).map_err(|error| error.code())
        };
        let packed = element.is_contiguous(count);
        if self.spread.is_none() && packed {
            return reduce(data.as_ptr(), self.start);
        }
        let mut there = self.read();
        if packed {
            reduce(data.as_ptr(), there.as_mut_ptr())?;
        } else {
            let (input, mut in_out) = (spread(&element, count, data), spread(&element, count, &there));
            reduce(input.as_ptr().cast(), in_out.as_mut_ptr().cast())?;
            element.pack(in_out.as_ptr().cast(), count, &mut there);
        }
        self.write(&there)
    }

    /// Compares and swaps one element, and returns its previous value. `data` holds two elements: the first is written
    /// if the memory equals the second.
    pub fn compare_and_swap(&self, data: &[u8]) -> Done<Vec<u8>> {
        let (new, expected) = data.split_at_checked(self.size).ok_or(MPI_ERR_TYPE)?;
        let there = self.read();
        if there == expected {
            self.write(new)?;
        }
        Ok(there)
    }
}

/// Unpacks elements to their layout in memory. Needed for types with gaps: pairs of a value and an index.
fn spread(element: &TypeMap, count: i64, packed: &[u8]) -> Vec<u64> {
    let mut memory = vec![0_u64; (element.extent() * count) as usize / size_of::<u64>() + 1];
    element.unpack(memory.as_mut_ptr().cast(), count, packed);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_attached_in_parts_is_one_if_it_lies_side_by_side() {
        assert_eq!(stretches(&[(200, 50), (100, 50), (150, 20), (300, 0)]), [(100, 170), (200, 250), (300, 300)]);
        let reach = Reach::Attached(vec![(108, 8), (100, 8)]);
        assert_eq!(reach.find(&place(100, 0, 16)).map(|spot| spot.start.addr()), Ok(100));
        assert_eq!(reach.find(&place(100, 0, 17)).map(drop), Err(MPI_ERR_RMA_RANGE));
    }

    fn place(displacement: i64, offset: i64, size: u64) -> Place {
        let mut builder = Builder::default();
        builder.push_block(offset, size);
        Place::new(displacement, &builder.finish())
    }

    #[test]
    fn nothing_beside_the_window_is_reached() {
        let reach = Reach::Fixed { start: 1000, size: 80, unit: 8 };
        for (displacement, offset, size, fits) in [
            (0, 0, 80, true),
            (9, 0, 8, true),
            (9, 0, 9, false),
            (0, -1, 4, false),
            (1, -8, 8, true),
            (10, 0, 0, true),
            (10, 0, 1, false),
            (i64::MAX, 0, 1, false),
            (i64::MIN, 0, 1, false),
        ] {
            let found = reach.find(&place(displacement, offset, size));
            assert_eq!(found.is_ok(), fits, "{displacement} {offset} {size}");
        }
        let mut overlapping = Builder::default();
        overlapping.push_repeated(0, 1 << 40, 0, &Layout::block(8));
        assert!(reach.find(&Place::new(0, &overlapping.finish())).is_err());
        let attached = Reach::Attached(vec![(5000, 10), (9000, 100)]);
        assert_eq!(attached.find(&place(9050, 0, 50)).unwrap().start.addr(), 9050);
        assert!(attached.find(&place(9050, 0, 51)).is_err() && attached.find(&place(5005, 0, 6)).is_err());
    }

    #[test]
    fn elements_in_a_strided_place_are_combined() {
        let mut memory = [1_i32, 2, 3, 4, 5, 6];
        let mut builder = Builder::default();
        builder.push_repeated(0, 3, 8, &Layout::block(4));
        let layout = builder.finish();
        let data: Vec<u8> = [10_i32, 20, 30].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let how =
            |operation: OpHandle| Combination { operation: operation.0 as u32, element: DatatypeHandle::INT.0 as u32 };
        let spot = |memory: &mut [i32; 6]| Spot::new(memory.as_mut_ptr().cast(), &layout.clone().into());
        spot(&mut memory).combine(how(OpHandle::SUM), &data).unwrap();
        assert_eq!(memory, [11, 2, 23, 4, 35, 6]);
        spot(&mut memory).combine(how(OpHandle::REPLACE), &data).unwrap();
        assert_eq!(memory, [10, 2, 20, 4, 30, 6]);
        let spot = spot(&mut memory);
        spot.combine(how(OpHandle::NO_OP), &[]).unwrap();
        assert!(spot.combine(how(OpHandle::SUM), &data[..5]).is_err());
        assert!(spot.combine(Combination { operation: 9999, element: 9999 }, &data).is_err());
    }

    #[test]
    fn pairs_with_gaps_are_combined() {
        let element = DatatypeHandle::DOUBLE_INT;
        let packed = |value: f64, index: i32| [&value.to_ne_bytes()[..], &index.to_ne_bytes()].concat();
        let mut memory = [0_u64; 2];
        let spot = Spot::new(memory.as_mut_ptr().cast(), &Form::of(&datatype::resolve(element).unwrap(), 1));
        spot.write(&packed(2.5, 7)).unwrap();
        let how = Combination { operation: OpHandle::MAXLOC.0 as u32, element: element.0 as u32 };
        spot.combine(how, &packed(1.5, 3)).unwrap();
        assert_eq!(spot.read(), packed(2.5, 7));
        spot.combine(how, &packed(3.5, 4)).unwrap();
        assert_eq!(spot.read(), packed(3.5, 4));
    }

    #[test]
    fn an_element_is_swapped_if_it_is_as_expected() {
        let mut memory = 5_i64.to_ne_bytes();
        let spot = |memory: &mut [u8; 8]| Spot::new(memory.as_mut_ptr(), &Layout::block(8).into());
        let data = |new: i64, expected: i64| [new.to_ne_bytes(), expected.to_ne_bytes()].concat();
        let before = spot(&mut memory).compare_and_swap(&data(9, 4)).unwrap();
        assert_eq!((before, memory), (5_i64.to_ne_bytes().to_vec(), 5_i64.to_ne_bytes()));
        let before = spot(&mut memory).compare_and_swap(&data(9, 5)).unwrap();
        assert_eq!((before, memory), (5_i64.to_ne_bytes().to_vec(), 9_i64.to_ne_bytes()));
        assert!(spot(&mut memory).compare_and_swap(&[1, 2, 3]).is_err());
    }
}
