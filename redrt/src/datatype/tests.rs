//! Random nested types against a naive type map.

use super::basic::Basic;
use super::*;
use crate::abi::{MPI_COMBINER_NAMED, MPI_ORDER_C, MPI_ORDER_FORTRAN};
use proptest::prelude::*;

/// The type map of section 5.1: basic elements and their displacements, one by one.
#[derive(Clone, Debug)]
struct Oracle {
    map: Vec<(Basic, i64)>,
    lower: i64,
    upper: i64,
    /// Whether the bounds were set.
    explicit: bool,
}

impl Oracle {
    fn place(&self, displacement: i64, length: i64, map: &mut Vec<(Basic, i64)>) {
        for index in 0..length {
            let at = displacement + index * (self.upper - self.lower);
            map.extend(self.map.iter().map(|(basic, offset)| (*basic, at + offset)));
        }
    }

    fn of_blocks(&self, blocks: &[(i64, i64)]) -> Self {
        let mut map = Vec::new();
        let mut bounds: Option<(i64, i64)> = None;
        for &(displacement, length) in blocks {
            self.place(displacement, length, &mut map);
            for index in 0..length {
                let at = displacement + index * (self.upper - self.lower);
                let own = (at + self.lower, at + self.upper);
                bounds = Some(bounds.map_or(own, |b| (b.0.min(own.0), b.1.max(own.1))));
            }
        }
        let (lower, upper) = bounds.filter(|_| self.explicit || !map.is_empty()).unwrap_or((0, 0));
        Self { map, lower, upper, explicit: self.explicit }
    }

    /// Offsets of all bytes of `count` elements in packing order.
    fn bytes(&self, count: i64) -> Vec<i64> {
        let mut map = Vec::new();
        self.place(0, count, &mut map);
        map.iter().flat_map(|(basic, offset)| (0..basic.size() as i64).map(move |byte| offset + byte)).collect()
    }
}

fn envelope() -> Envelope {
    Envelope::new(MPI_COMBINER_NAMED, false)
}

type Both = (Arc<Datatype>, Oracle);

fn basic(handle: DatatypeHandle) -> Both {
    let datatype = resolve(handle).unwrap().shared();
    let oracle =
        Oracle { map: vec![(datatype.basic().unwrap(), 0)], lower: 0, upper: datatype.extent(), explicit: false };
    (datatype, oracle)
}

fn nested() -> impl Strategy<Value = Both> {
    let leaf = prop::sample::select(vec![
        DatatypeHandle::INT8_T,
        DatatypeHandle::SHORT,
        DatatypeHandle::INT,
        DatatypeHandle::DOUBLE,
        DatatypeHandle::C_DOUBLE_COMPLEX,
    ])
    .prop_map(basic);
    leaf.prop_recursive(4, 64, 4, |inner| {
        let blocks = prop::collection::vec((-40i64..120, 0i64..4), 0..6);
        prop_oneof![
            (inner.clone(), 0i64..5, 0i64..4, -30i64..60).prop_map(|((old, oracle), count, length, stride)| {
                let blocks: Vec<_> = (0..count).map(|index| (index * stride, length)).collect();
                (Arc::new(hvector(count, length, stride, &old, envelope()).unwrap()), oracle.of_blocks(&blocks))
            }),
            (inner.clone(), 0i64..5).prop_map(|((old, oracle), count)| {
                (Arc::new(contiguous(count, &old, envelope()).unwrap()), oracle.of_blocks(&[(0, count)]))
            }),
            (inner.clone(), blocks.clone()).prop_map(|((old, oracle), blocks)| {
                (Arc::new(hindexed(&blocks, &old, envelope()).unwrap()), oracle.of_blocks(&blocks))
            }),
            (inner.clone(), -20i64..20, 0i64..200).prop_map(|((old, oracle), lower, extent)| {
                let upper = lower + extent;
                (
                    Arc::new(resized(&old, lower, extent, envelope()).unwrap()),
                    Oracle { lower, upper, explicit: true, ..oracle },
                )
            }),
            (inner.clone(), inner, blocks).prop_map(|(first, second, blocks)| {
                let both = [&first, &second];
                let parts: Vec<_> = blocks.iter().enumerate().map(|(index, block)| (*block, both[index % 2])).collect();
                let mut structure = Vec::new();
                for ((displacement, length), (datatype, _)) in &parts {
                    structure.push(Block { displacement: *displacement, length: *length, datatype });
                }
                let datatype = struct_of(&structure, envelope()).unwrap();
                let mut map = Vec::new();
                parts.iter().for_each(|((displacement, length), (_, oracle))| {
                    oracle.place(*displacement, *length, &mut map);
                });
                // Bounds of structs have rules of their own, with tests of their own below.
                let (lower, upper) = (datatype.lower_bound(), datatype.lower_bound() + datatype.extent());
                let explicit = datatype.bounds.explicit;
                (Arc::new(datatype), Oracle { map, lower, upper, explicit })
            }),
        ]
    })
}

/// Memory in which every byte the type can reach differs from its neighbours, and where the type's 0 lies in it.
fn memory(offsets: &[i64]) -> (Vec<u8>, i64) {
    let first = offsets.iter().copied().min().unwrap_or(0);
    let past = offsets.iter().copied().max().map_or(0, |last| last + 1);
    ((0..past - first).map(|index| (index * 7 + index / 256) as u8).collect(), -first)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn packing_agrees_with_the_type_map((datatype, oracle) in nested(), count in 0i64..4, cut in 0.0..1.0f64) {
        let offsets = oracle.bytes(count);
        let (source, zero) = memory(&offsets);
        let expected: Vec<u8> = offsets.iter().map(|offset| source[(zero + offset) as usize]).collect();
        prop_assert_eq!(datatype.packed_size(count), expected.len() as u64);
        prop_assert_eq!((datatype.lower_bound(), datatype.extent()), (oracle.lower, oracle.upper - oracle.lower));

        let at = source.as_ptr().wrapping_offset(zero as isize);
        let mut packed = vec![0; expected.len()];
        prop_assert_eq!(datatype.pack(at, count, &mut packed), expected.len());
        prop_assert_eq!(&packed, &expected);

        // The same in two ranges that meet anywhere.
        let cut = (cut * expected.len() as f64) as usize;
        let mut parts = vec![0; expected.len()];
        datatype.pack_range(at, count, cut as u64, &mut parts[cut..]);
        datatype.pack_range(at, count, 0, &mut parts[..cut]);
        prop_assert_eq!(&parts, &expected);

        // Unpacking a part writes that part's bytes, in order, and no others.
        let mut destination = vec![0xee; source.len()];
        let mut model = destination.clone();
        for (offset, byte) in offsets.iter().zip(&expected).skip(cut) {
            model[(zero + offset) as usize] = *byte;
        }
        let to = destination.as_mut_ptr().wrapping_offset(zero as isize);
        datatype.unpack_range(to, count, cut as u64, &expected[cut..]);
        prop_assert_eq!(destination, model);
    }

    #[test]
    fn transfers_and_blocks_agree_with_packing(
        (from, oracle) in nested(), (to, other) in nested(), count in 0i64..4, cut in 0.0..1.0f64,
    ) {
        let (offsets, others) = (oracle.bytes(count), other.bytes(count));
        let (source, zero) = memory(&offsets);
        let (mut destination, other_zero) = memory(&others);
        let mut model = destination.clone();
        let stream: Vec<u8> = offsets.iter().map(|offset| source[(zero + offset) as usize]).collect();
        for (offset, byte) in others.iter().zip(&stream) {
            model[(other_zero + offset) as usize] = *byte;
        }
        let copied = transfer(
            Side { buffer: source.as_ptr().wrapping_offset(zero as isize), count, datatype: &from },
            Side { buffer: destination.as_mut_ptr().wrapping_offset(other_zero as isize), count, datatype: &to },
        );
        prop_assert_eq!(copied, offsets.len().min(others.len()) as u64);
        prop_assert_eq!(destination, model);
        let (first, past) = from.span(count);
        let bounds = (offsets.iter().min(), offsets.iter().max());
        prop_assert!(bounds.0.is_none_or(|least| *least == first) && bounds.1.is_none_or(|last| last + 1 == past));

        let cut = (cut * offsets.len() as f64) as usize;
        let mut seen = Vec::new();
        let rest = (offsets.len() - cut) as u64;
        from.message_layout(count).for_each_block(cut as u64, rest, &mut |offset, size| {
            seen.extend(offset..offset + size as i64);
        });
        prop_assert_eq!(&seen[..], &offsets[cut..]);
    }

    #[test]
    fn elements_agree_with_the_type_map((datatype, oracle) in nested(), bytes in 0u64..600) {
        let sizes: Vec<_> = oracle.map.iter().map(|(basic, _)| basic.size()).collect();
        let mut expected = None;
        let (mut seen, mut elements) = (0, 0);
        for size in sizes.iter().cycle().take(if sizes.is_empty() { 0 } else { 700 }) {
            if seen == bytes {
                expected = Some(elements);
            }
            (seen, elements) = (seen + size, elements + 1);
        }
        prop_assert_eq!(datatype.elements_of(bytes), if sizes.is_empty() { Some(0).filter(|_| bytes == 0) } else { expected });
        if let Some(elements) = expected {
            prop_assert_eq!(datatype.bytes_of_elements(elements as u64), bytes);
        }
    }

    #[test]
    fn external32_comes_back((datatype, oracle) in nested(), count in 0i64..3) {
        let size = datatype.packed_size(count) as usize;
        let native: Vec<u8> = (0..size).map(|index| (index * 5 + 1) as u8).collect();
        let external = to_external(&datatype, count as u64, &native).unwrap();
        prop_assert_eq!(external.len() as u64, external_size(&datatype, count as u64));
        if let Some((first, _)) = oracle.map.first().filter(|_| count > 0) {
            let scalar = first.scalar.size() as usize;
            prop_assert!(native[..scalar].iter().rev().eq(&external[..scalar]));
        }
        let (back, read) = from_external(&datatype, count as u64, &external).unwrap();
        prop_assert_eq!((back, read), (native, external.len()));
    }

    #[test]
    fn subarrays_take_their_elements(shape in prop::collection::vec((1i64..5, 1i64..5, 0i64..3), 1..4), c_order: bool) {
        let sizes: Vec<_> = shape.iter().map(|(count, first, more)| first - 1 + count + more).collect();
        let counts: Vec<_> = shape.iter().map(|dimension| dimension.0).collect();
        let starts: Vec<_> = shape.iter().map(|dimension| dimension.1 - 1).collect();
        let order = if c_order { MPI_ORDER_C } else { MPI_ORDER_FORTRAN };
        let (int, _) = basic(DatatypeHandle::INT);
        let datatype = subarray(&sizes, &counts, &starts, order, &int, envelope()).unwrap();
        let mut total: i64 = sizes.iter().product();
        prop_assert_eq!((datatype.lower_bound(), datatype.extent()), (0, 4 * total));
        // Every linear index of the array, in memory order, that lies in the subarray.
        let mut expected = Vec::new();
        for index in 0..total {
            let mut rest = index;
            let mut inside = true;
            let mut dimensions: Vec<usize> = (0..sizes.len()).collect();
            if c_order {
                dimensions.reverse();
            }
            for dimension in dimensions {
                let coordinate = rest % sizes[dimension];
                rest /= sizes[dimension];
                inside &= (starts[dimension]..starts[dimension] + counts[dimension]).contains(&coordinate);
            }
            if inside {
                expected.push(index as i32);
            }
        }
        let source: Vec<i32> = (0..total as i32).collect();
        let mut packed = vec![0u8; expected.len() * 4];
        total = datatype.pack(source.as_ptr().cast(), 1, &mut packed) as i64;
        let expected: Vec<u8> = expected.iter().flat_map(|value| value.to_ne_bytes()).collect();
        prop_assert_eq!((total, packed), (expected.len() as i64, expected));
    }

    #[test]
    fn distributed_arrays_partition_the_array(
        lengths in prop::collection::vec(1i64..9, 2),
        grid in prop::collection::vec(1i32..4, 2),
        kinds in prop::collection::vec((prop::sample::select(vec![17, 18]), prop::sample::select(vec![19, 1, 2, 3])), 2),
        c_order: bool,
    ) {
        use crate::abi::{MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG};
        let order = if c_order { MPI_ORDER_C } else { MPI_ORDER_FORTRAN };
        let distributions: Vec<_> = kinds.iter().map(|kind| kind.0).collect();
        let arguments: Vec<_> = kinds.iter().zip(&lengths).map(|(&(kind, argument), length)| {
            if kind == MPI_DISTRIBUTE_BLOCK && argument != MPI_DISTRIBUTE_DFLT_DARG { *length as i32 } else { argument }
        }).collect();
        let (int, _) = basic(DatatypeHandle::INT);
        let size = grid[0] * grid[1];
        let total = lengths[0] * lengths[1];
        let source: Vec<i32> = (0..total as i32).collect();
        let mut seen = Vec::new();
        for rank in 0..size {
            let array = DistributedArray {
                size, rank, lengths: &lengths, distributions: &distributions, arguments: &arguments,
                process_counts: &grid, order,
            };
            let part = darray(&array, &int, envelope()).unwrap();
            let mut packed = vec![0u8; part.size() as usize];
            part.pack(source.as_ptr().cast(), 1, &mut packed);
            seen.extend(packed.chunks(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())));
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, source);
    }
}

#[test]
fn predefined_types_have_the_sizes_of_c_and_fortran() {
    for (handle, size, extent) in [
        (DatatypeHandle::INT, 4, 4),
        (DatatypeHandle::LONG_DOUBLE, 16, 16),
        (DatatypeHandle::C_LONG_DOUBLE_COMPLEX, 32, 32),
        (DatatypeHandle::WCHAR, 4, 4),
        (DatatypeHandle::FLOAT_INT, 8, 8),
        (DatatypeHandle::DOUBLE_INT, 12, 16),
        (DatatypeHandle::LONG_INT, 12, 16),
        (DatatypeHandle::SHORT_INT, 6, 8),
        (DatatypeHandle::LONG_DOUBLE_INT, 20, 32),
        (DatatypeHandle::_2DOUBLE_PRECISION, 16, 16),
        (DatatypeHandle::LOGICAL, 4, 4),
        (DatatypeHandle::COMPLEX32, 32, 32),
    ] {
        let datatype = resolve(handle).unwrap().shared();
        assert_eq!((datatype.size(), datatype.extent()), (size, extent), "{}", datatype.name());
        assert!(datatype.is_committed() && free(handle).is_err());
    }
    let null = DatatypeHandle::NULL;
    for (name, value) in crate::abi::DATATYPE_NAMES.iter().filter(|(_, value)| *value != null.to_int()) {
        assert!(resolve(DatatypeHandle::from_int(*value)).is_ok(), "{name}");
    }
    assert!(resolve(null).is_err() && resolve(DatatypeHandle(0)).is_err() && resolve(DatatypeHandle(767)).is_err());
}

#[test]
fn extents_of_structs_are_padded_unless_bounds_were_set() {
    let (double, _) = basic(DatatypeHandle::DOUBLE);
    let (byte, _) = basic(DatatypeHandle::CHAR);
    let blocks = |last: &Arc<Datatype>| {
        let at = |displacement, datatype| Block { displacement, length: 1, datatype };
        struct_of(&[at(0, &double), at(8, last)], envelope()).unwrap().extent()
    };
    assert_eq!(blocks(&byte), 16);
    let wide = Arc::new(resized(&byte, -3, 100, envelope()).unwrap());
    assert_eq!(blocks(&wide), 100);
}

#[test]
fn layouts_are_as_small_as_they_can_be() {
    let (int, _) = basic(DatatypeHandle::INT);
    let pieces = |datatype: &Datatype| datatype.layout().pieces().len();
    // A vector without gaps is a block, a vector of vectors of one stride is a vector.
    assert_eq!(hvector(10, 2, 8, &int, envelope()).unwrap().contiguous_offset(1), Some(0));
    let column = Arc::new(hvector(4, 1, 32, &int, envelope()).unwrap());
    let columns = hvector(3, 1, 128, &column, envelope()).unwrap();
    assert!(matches!(columns.layout().pieces()[0].form, layout::Form::Loop { count: 12, .. }));
    let even: Vec<_> = (0..1000).map(|index| (index * 24, 2)).collect();
    assert_eq!(pieces(&hindexed(&even, &int, envelope()).unwrap()), 1);
    let adjacent: Vec<_> = (0..1000).map(|index| (index, 1)).collect();
    assert!(indexed(&adjacent, &int, envelope()).unwrap().is_contiguous(5));
}

#[test]
fn sizes_beyond_64_bits_are_refused() {
    let (double, _) = basic(DatatypeHandle::DOUBLE);
    assert!(contiguous(i64::MAX / 4, &double, envelope()).is_err());
    let large = Arc::new(contiguous(i64::MAX / 16, &double, envelope()).unwrap());
    assert!(hvector(4, 1, large.extent(), &large, envelope()).is_err());
    assert_eq!(hvector(0, i64::MAX, 1, &double, envelope()).unwrap().extent(), 0);
    assert_eq!(hvector(i64::MAX, 0, 1, &double, envelope()).unwrap().size(), 0);
    assert!(hindexed(&[(i64::MAX, 2)], &double, envelope()).is_err());
    assert!(indexed(&[(i64::MAX / 2, 1)], &double, envelope()).is_err());
}

#[test]
fn long_doubles_are_ieee_quadruple_in_external32() {
    let (long_double, _) = basic(DatatypeHandle::LONG_DOUBLE);
    // -1.5 as x87: sign and exponent 0xbfff, significand 0xc000...
    let mut native = [0; 16];
    native[7] = 0xc0;
    native[8..10].copy_from_slice(&[0xff, 0xbf]);
    let external = to_external(&long_double, 1, &native).unwrap();
    assert_eq!(external[..4], [0xbf, 0xff, 0x80, 0x00]);
    assert_eq!(from_external(&long_double, 1, &external).unwrap().0, native);
    let (long, _) = basic(DatatypeHandle::LONG);
    assert_eq!(to_external(&long, 1, &(-2i64).to_le_bytes()).unwrap(), [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(from_external(&long, 1, &[0xff, 0xff, 0xff, 0xfe]).unwrap().0, (-2i64).to_le_bytes());
    assert!(to_external(&long, 1, &(1i64 << 40).to_le_bytes()).is_err());
    assert!(from_external(&long, 1, &[0; 3]).is_err());
}

#[test]
fn absolute_addresses_relative_to_bottom() {
    let (int, _) = basic(DatatypeHandle::INT);
    let mut places = [1i32, 2, 3, 4];
    let address = |index: usize| (&raw const places[index]).expose_provenance() as i64;
    let datatype = hindexed(&[(address(3), 1), (address(0), 2)], &int, envelope()).unwrap();
    let mut packed = [0u8; 12];
    datatype.pack(std::ptr::null(), 1, &mut packed);
    let values: Vec<_> = packed.chunks(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(values, [4, 1, 2]);
    packed.reverse();
    datatype.unpack(std::ptr::null_mut(), 1, &packed);
    assert_eq!(places.as_mut_slice()[2], 3);
    assert_eq!(places[3], i32::from_ne_bytes(packed[..4].try_into().unwrap()));
}
