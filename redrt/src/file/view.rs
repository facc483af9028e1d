//! Views (MPI-5.0 section 14.3): which bytes of a file a process sees, as a stream of elements.

use super::disk::Stretch;
use crate::abi::{MPI_ERR_ARG, MPI_ERR_UNSUPPORTED_DATAREP};
use crate::datatype::{Datatype, external_size, predefined, resolve_committed};
use crate::error::Result;
use crate::fail;
use crate::handle::DatatypeHandle;
use std::sync::Arc;

/// How elements are represented in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Representation {
    /// As in memory; `internal` is no different.
    Native,
    /// The same under another name.
    Internal,
    /// Big-endian, IEEE.
    External32,
}

impl Representation {
    /// The one of this name.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "native" => Ok(Self::Native),
            "internal" => Ok(Self::Internal),
            "external32" => Ok(Self::External32),
            other => fail!(MPI_ERR_UNSUPPORTED_DATAREP, "no data representation is called '{other}'"),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Internal => "internal",
            Self::External32 => "external32",
        }
    }
}

/// A view.
#[derive(Debug)]
pub struct View {
    /// Where it begins, in bytes.
    pub displacement: u64,
    /// What offsets count.
    pub element: Arc<Datatype>,
    /// What is repeated from the displacement on, with holes.
    pub tile: Arc<Datatype>,
    /// How elements are represented.
    pub representation: Representation,
}

impl View {
    /// All bytes.
    pub fn of_bytes() -> Self {
        let byte = || resolve_committed(DatatypeHandle::BYTE).expect("MPI_BYTE is predefined");
        debug_assert!(predefined(DatatypeHandle::BYTE).is_some());
        Self { displacement: 0, element: byte(), tile: byte(), representation: Representation::Native }
    }

    /// A view, if its types fit each other.
    pub fn new(
        displacement: u64,
        element: Arc<Datatype>,
        tile: Arc<Datatype>,
        representation: Representation,
    ) -> Result<Self> {
        if element.size() == 0 || !tile.size().is_multiple_of(element.size()) {
            fail!(MPI_ERR_ARG, "a file type of {} bytes is not made of elements of {}", tile.size(), element.size());
        }
        if tile.layout().bounds().0 < 0 || tile.extent() < 0 {
            fail!(MPI_ERR_ARG, "the file type has data before its beginning");
        }
        // Where elements are larger in the file, all places would be others.
        let same_size = |datatype: &Datatype| external_size(datatype, 1) == datatype.size();
        if representation == Representation::External32 && !(same_size(&element) && same_size(&tile)) {
            let message = "external32 is implemented for types that have the same size there as in memory";
            fail!(MPI_ERR_UNSUPPORTED_DATAREP, "{message}");
        }
        Ok(Self { displacement, element, tile, representation })
    }

    /// Bytes of one element.
    pub fn element_size(&self) -> u64 {
        self.element.size()
    }

    /// Calls `visit` with the stretches of the file that hold bytes `position..position + length` of the stream, in order.
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

    /// Where byte `position` of the stream is in the file.
    pub fn place(&self, position: u64) -> u64 {
        let mut place = self.displacement;
        self.stretches(position, 1, &mut |stretch| place = stretch.offset);
        place
    }

    /// How many elements of the stream begin before byte `end` of the file.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::MPI_COMBINER_DUP;
    use crate::datatype::{self, Envelope};
    use crate::handle::DatatypeHandle as H;

    fn envelope() -> Envelope {
        Envelope::new(MPI_COMBINER_DUP, false)
    }

    fn committed(datatype: Datatype) -> Arc<Datatype> {
        datatype.commit();
        Arc::new(datatype)
    }

    fn int() -> Arc<Datatype> {
        datatype::resolve(H::INT).unwrap()
    }

    /// Where each byte of the stream is, walked tile by tile and byte by byte.
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
        let vector = datatype::hvector(3, 2, 12, &int(), envelope()).unwrap();
        let holes = committed(datatype::resized(&committed(vector), 0, 64, envelope()).unwrap());
        let sparse = committed(datatype::resized(&int(), 0, 20, envelope()).unwrap());
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

    #[test]
    fn types_that_do_not_fit_are_refused() {
        let byte = datatype::resolve(H::BYTE).unwrap();
        assert!(View::new(0, int(), byte.clone(), Representation::Native).is_err());
        let early = committed(datatype::hindexed(&[(-4, 1)], &int(), envelope()).unwrap());
        assert!(View::new(0, int(), early, Representation::Native).is_err());
        let wide = datatype::resolve(H::WCHAR).unwrap();
        assert!(View::new(0, wide.clone(), wide, Representation::External32).is_err());
        assert!(Representation::named("roman").is_err());
    }
}
