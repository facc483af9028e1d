//! Views (MPI-5.0 section 14.3): the bytes of a file that a process accesses, as a stream of elements.

use super::disk::Stretch;
use super::representation::Representation;
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{MPI_ERR_ARG, MPI_ERR_UNSUPPORTED_DATAREP};
use redrt_comm::datatype::{Datatype, resolve_committed};
use redrt_datatype::{TypeMap, hindexed, resized};
use std::sync::Arc;

/// A view of a file.
#[derive(Debug)]
pub struct View {
    /// Beginning of the view in the file, in bytes.
    pub displacement: u64,
    /// Element type: the unit of offsets.
    pub element: Arc<Datatype>,
    /// File type of the program. It is repeated from the displacement on, and may have gaps.
    pub filetype: Arc<Datatype>,
    /// The file type in bytes of the file.
    tile: TypeMap,
    element_size: u64,
    /// Representation of elements in the file.
    pub representation: Representation,
}

impl View {
    /// The initial view of a file: all its bytes.
    pub fn of_bytes() -> Self {
        let byte = || resolve_committed(DatatypeHandle::BYTE).expect("MPI_BYTE is predefined").shared();
        let (element, filetype) = (byte(), byte());
        let tile = TypeMap::clone(&filetype);
        Self { displacement: 0, element, filetype, tile, element_size: 1, representation: Representation::Native }
    }

    /// A view with these types. Fails if they do not fit each other.
    pub fn new(
        displacement: u64,
        element: Arc<Datatype>,
        filetype: Arc<Datatype>,
        representation: Representation,
    ) -> Result<Self> {
        let element_size = representation.size(&element, 1)?;
        let tile = in_file(&filetype, &representation)?;
        if element_size == 0 || !tile.size().is_multiple_of(element_size) {
            fail!(MPI_ERR_ARG, "a file type of {} bytes is not made of elements of {element_size}", tile.size());
        }
        if tile.layout().bounds().0 < 0 || tile.extent() < 0 {
            fail!(MPI_ERR_ARG, "the file type has data before its beginning");
        }
        Ok(Self { displacement, element, filetype, tile, element_size, representation })
    }

    /// Number of bytes of one element in the file.
    pub fn element_size(&self) -> u64 {
        self.element_size
    }

    /// Calls `visit` with the stretches of the file that hold bytes `position..position + length` of the stream, in
    /// order.
    pub fn stretches(&self, position: u64, length: u64, visit: &mut impl FnMut(Stretch)) {
        let (size, extent) = (self.tile.size(), self.tile.extent() as u64);
        if length == 0 || size == 0 {
            return;
        }
        if let Some(offset) = self.tile.contiguous_offset(2) {
            return visit(Stretch { offset: self.displacement + offset as u64 + position, length });
        }
        let end = position + length;
        let mut at = position;
        while at < end {
            let (number, within) = (at / size, at % size);
            let now = (size - within).min(end - at);
            let base = self.displacement + number * extent;
            self.tile.layout().for_each_block(within, now, &mut |offset, length| {
                visit(Stretch { offset: base + offset as u64, length });
            });
            at += now;
        }
    }

    /// Offset in the file of byte `position` of the stream.
    pub fn place(&self, position: u64) -> u64 {
        let mut place = self.displacement;
        self.stretches(position, 1, &mut |stretch| place = stretch.offset);
        place
    }

    /// Number of elements of the stream that begin before byte `end` of the file.
    pub fn elements_before(&self, end: u64) -> u64 {
        let (size, extent) = (self.tile.size(), self.tile.extent() as u64);
        let Some(inside) = end.checked_sub(self.displacement).filter(|_| extent > 0) else { return 0 };
        let mut bytes = inside / extent * size;
        let rest = inside % extent;
        self.tile.layout().for_each_block(0, size, &mut |offset, length| {
            bytes += rest.saturating_sub(offset as u64).min(length);
        });
        bytes.div_ceil(self.element_size())
    }
}

/// A file type, converted to bytes of the file. If elements have another size there, displacements grow or shrink with
/// them (MPI-5.0 section 14.5): they count elements, so all elements must have one size.
fn in_file(filetype: &Datatype, representation: &Representation) -> Result<TypeMap> {
    if representation.keeps_sizes(filetype)? {
        return Ok(TypeMap::clone(filetype));
    }
    let Some((file, memory)) = representation.uniform(filetype)? else {
        let name = representation.name();
        fail!(
            MPI_ERR_UNSUPPORTED_DATAREP,
            "the elements of the file type have several sizes, and other ones in '{name}'"
        );
    };
    let memory = memory as i64;
    let mut is_whole = filetype.extent() % memory == 0 && filetype.lower_bound() % memory == 0;
    let mut blocks = Vec::new();
    filetype.layout().for_each_block(0, filetype.size(), &mut |offset, length| {
        is_whole &= offset % memory == 0 && length as i64 % memory == 0;
        blocks.push((offset / memory * file as i64, length as i64 / memory * file as i64));
    });
    if !is_whole {
        fail!(MPI_ERR_ARG, "the displacements of the file type are not whole elements of {memory} bytes");
    }
    let byte = resolve_committed(DatatypeHandle::BYTE)?;
    let data = hindexed(&blocks, &byte)?;
    let (lower, extent) = (filetype.lower_bound() / memory, filetype.extent() / memory);
    Ok(resized(&data, lower * file as i64, extent * file as i64)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_abi::MPI_COMBINER_DUP;
    use redrt_abi::handle::DatatypeHandle as H;
    use redrt_comm::datatype::{self, Envelope};
    use redrt_datatype::{Block, hvector, struct_of};

    fn committed(map: TypeMap) -> Arc<Datatype> {
        let datatype = Datatype::new(map, Envelope::new(MPI_COMBINER_DUP, false));
        datatype.commit();
        Arc::new(datatype)
    }

    fn int() -> Arc<Datatype> {
        datatype::resolve(H::INT).unwrap().shared()
    }

    /// Offset of each byte of the stream, found tile by tile and byte by byte.
    fn naive(view: &View, length: u64) -> Vec<u64> {
        let mut tile = Vec::new();
        view.tile.layout().for_each_block(0, view.tile.size(), &mut |offset, length| {
            tile.extend((0..length).map(|byte| offset as u64 + byte));
        });
        let extent = view.tile.extent() as u64;
        let all = (0..).flat_map(|number| tile.iter().map(move |byte| view.displacement + number * extent + byte));
        all.take(length as usize).collect()
    }

    fn views() -> Vec<View> {
        let vector = hvector(3, 2, 12, &int()).unwrap();
        let holes = committed(resized(&vector, 0, 64).unwrap());
        let sparse = committed(resized(&int(), 0, 20).unwrap());
        let make = |displacement, tile| View::new(displacement, int(), tile, Representation::Native).unwrap();
        vec![make(0, int()), make(40, int()), make(100, sparse), make(7, holes), View::of_bytes()]
    }

    #[test]
    fn stretches_are_where_a_walk_byte_by_byte_finds_them() {
        for view in views() {
            let places = naive(&view, 400);
            for position in 0..120u64 {
                for length in [1, 3, 4, 25, 200] {
                    let mut found = Vec::new();
                    view.stretches(position, length, &mut |stretch| {
                        found.extend(stretch.offset..stretch.offset + stretch.length);
                    });
                    assert_eq!(found, places[position as usize..(position + length) as usize]);
                }
                assert_eq!(view.place(position), places[position as usize]);
            }
        }
    }

    #[test]
    fn elements_before_an_end_are_those_that_begin_there() {
        for view in views() {
            let places = naive(&view, 4000);
            for end in 0..300u64 {
                let bytes = places.iter().filter(|place| **place < end).count() as u64;
                assert_eq!(view.elements_before(end), bytes.div_ceil(view.element_size()), "{end}");
            }
        }
    }

    /// `wchar_t` has 4 bytes in memory and 2 in external32.
    #[test]
    fn displacements_shrink_with_the_elements() {
        let wide = datatype::resolve(H::WCHAR).unwrap().shared();
        let vector = hvector(2, 1, 12, &wide).unwrap();
        let holes = committed(resized(&vector, 0, 24).unwrap());
        let view = View::new(5, wide, holes, Representation::External32).unwrap();
        assert_eq!(view.element_size(), 2);
        let mut found = Vec::new();
        view.stretches(2, 6, &mut |stretch| found.push((stretch.offset, stretch.length)));
        assert_eq!(found, [(5 + 6, 2), (5 + 12, 2), (5 + 18, 2)]);
        assert_eq!(view.elements_before(5 + 13), 3);
    }

    #[test]
    fn types_that_do_not_fit_are_refused() {
        let byte = datatype::resolve(H::BYTE).unwrap().shared();
        assert!(View::new(0, int(), byte.clone(), Representation::Native).is_err());
        let early = committed(hindexed(&[(-4, 1)], &int()).unwrap());
        assert!(View::new(0, int(), early, Representation::Native).is_err());
        let wide = datatype::resolve(H::WCHAR).unwrap().shared();
        let mixed = struct_of(&[
            Block { displacement: 0, length: 1, datatype: &wide },
            Block { displacement: 4, length: 1, datatype: &int() },
        ]);
        assert!(View::new(0, int(), committed(mixed.unwrap()), Representation::External32).is_err());
        let uneven = committed(resized(&wide, 0, 6).unwrap());
        assert!(View::new(0, wide, uneven, Representation::External32).is_err());
        assert!(Representation::named("roman").is_err());
    }
}
