//! Random nested types against a naive type map.

use super::basic::{Basic, Class, Scalar};
use super::*;
use proptest::prelude::*;

/// The type map of section 5.1: basic elements and their displacements, one by one.
#[derive(Clone, Debug)]
struct Oracle {
    map: Vec<(Basic, i64)>,
    lower: i64,
    upper: i64,
    /// True when the bounds were set explicitly.
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

    /// Blocks (displacement, length) of several types. Explicitly set bounds prevail. Without any, the extent is
    /// rounded up to the strictest alignment.
    fn of_struct(parts: &[((i64, i64), &Self)]) -> Self {
        let mut map = Vec::new();
        parts.iter().for_each(|((displacement, length), old)| old.place(*displacement, *length, &mut map));
        let counted = || parts.iter().filter(|((_, length), old)| *length > 0 && (old.explicit || !old.map.is_empty()));
        let explicit = counted().any(|(_, old)| old.explicit);
        let mut bounds = Vec::new();
        for ((displacement, length), old) in counted().filter(|(_, old)| old.explicit == explicit) {
            for index in 0..*length {
                let at = displacement + index * (old.upper - old.lower);
                bounds.extend([(at + old.lower), (at + old.upper)]);
            }
        }
        let (lower, mut upper) = (*bounds.iter().min().unwrap_or(&0), *bounds.iter().max().unwrap_or(&0));
        let alignment = map.iter().map(|(basic, _)| basic.alignment()).max().unwrap_or(1);
        while !explicit && (upper - lower) % alignment != 0 {
            upper += 1;
        }
        Self { map, lower, upper, explicit }
    }

    /// Offsets of all bytes of `count` elements in packing order.
    fn bytes(&self, count: i64) -> Vec<i64> {
        let mut map = Vec::new();
        self.place(0, count, &mut map);
        map.iter().flat_map(|(basic, offset)| (0..basic.size() as i64).map(move |byte| offset + byte)).collect()
    }
}

const BYTE: Basic = Basic::new(Scalar::I8, Class::Integer);
const SHORT: Basic = Basic::new(Scalar::I16, Class::Integer);
const INT: Basic = Basic::new(Scalar::I32, Class::Integer);
const LONG: Basic = Basic::new(Scalar::I64, Class::Integer).external(4);
const DOUBLE: Basic = Basic::new(Scalar::F64, Class::Float);
const COMPLEX: Basic = Basic::new(Scalar::F64, Class::Complex);
const LONG_DOUBLE: Basic = Basic::new(Scalar::LongDouble, Class::Float);

type Both = (TypeMap, Oracle);

fn both(basic: Basic) -> Both {
    let map = single(basic);
    let oracle = Oracle { map: vec![(basic, 0)], lower: 0, upper: map.extent(), explicit: false };
    (map, oracle)
}

fn nested() -> impl Strategy<Value = Both> {
    nested_of(vec![BYTE, SHORT, INT, DOUBLE, COMPLEX])
}

fn nested_of(basics: Vec<Basic>) -> impl Strategy<Value = Both> {
    let leaf = prop::sample::select(basics).prop_map(both);
    leaf.prop_recursive(4, 64, 4, |inner| {
        let blocks = prop::collection::vec((-40i64..120, 0i64..4), 0..6);
        prop_oneof![
            (inner.clone(), 0i64..5, 0i64..4, -30i64..60).prop_map(|((old, oracle), count, length, stride)| {
                let blocks: Vec<_> = (0..count).map(|index| (index * stride, length)).collect();
                (hvector(count, length, stride, &old).unwrap(), oracle.of_blocks(&blocks))
            }),
            (inner.clone(), 0i64..5).prop_map(|((old, oracle), count)| {
                (contiguous(count, &old).unwrap(), oracle.of_blocks(&[(0, count)]))
            }),
            (inner.clone(), blocks.clone())
                .prop_map(|((old, oracle), blocks)| { (hindexed(&blocks, &old).unwrap(), oracle.of_blocks(&blocks)) }),
            (inner.clone(), -20i64..20, 0i64..200).prop_map(|((old, oracle), lower, extent)| {
                let upper = lower + extent;
                (resized(&old, lower, extent).unwrap(), Oracle { lower, upper, explicit: true, ..oracle })
            }),
            (inner.clone(), inner, blocks).prop_map(|(first, second, blocks)| {
                let both = [&first, &second];
                let parts: Vec<_> = blocks.iter().enumerate().map(|(index, block)| (*block, both[index % 2])).collect();
                let mut structure = Vec::new();
                for ((displacement, length), (datatype, _)) in &parts {
                    structure.push(Block { displacement: *displacement, length: *length, datatype });
                }
                let datatype = struct_of(&structure).unwrap();
                let parts: Vec<_> = parts.iter().map(|(block, (_, oracle))| (*block, oracle)).collect();
                (datatype, Oracle::of_struct(&parts))
            }),
        ]
    })
}

/// Memory in which every byte within the type's reach differs from its neighbours, and the place of the type's 0.
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

        // Packing in two ranges that meet anywhere gives the same.
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
    fn unpacking_brings_back_what_was_packed((datatype, oracle) in nested(), count in 0i64..4) {
        let mut offsets = oracle.bytes(count);
        let (source, zero) = memory(&offsets);
        let mut packed = vec![0; offsets.len()];
        datatype.pack(source.as_ptr().wrapping_offset(zero as isize), count, &mut packed);
        let mut destination = vec![0; source.len()];
        datatype.unpack(destination.as_mut_ptr().wrapping_offset(zero as isize), count, &packed);
        offsets.sort_unstable();
        offsets.dedup();
        let mut expected = vec![0; source.len()];
        offsets.iter().map(|offset| (zero + offset) as usize).for_each(|at| expected[at] = source[at]);
        prop_assert_eq!(destination, expected);
    }

    #[test]
    fn blocks_and_bounds_agree_with_the_type_map((datatype, oracle) in nested(), count in 0i64..4, cut in 0.0..1.0f64) {
        let offsets = oracle.bytes(count);
        let cut = (cut * offsets.len() as f64) as usize;
        let mut seen = Vec::new();
        let rest = (offsets.len() - cut) as u64;
        datatype.message_layout(count).for_each_block(cut as u64, rest, &mut |offset, size| {
            seen.extend(offset..offset + size as i64);
        });
        prop_assert_eq!(&seen[..], &offsets[cut..]);

        let element = oracle.bytes(1);
        let first = element.iter().min().copied().unwrap_or(0);
        let past = element.iter().max().map_or(0, |last| last + 1);
        prop_assert_eq!(datatype.true_bounds(), (first, past - first));
        let adjacent = offsets.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if let Some(offset) = datatype.contiguous_offset(count) {
            prop_assert!(adjacent && offsets.first().is_none_or(|first| *first == offset));
        }
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
        let of_none = Some(0).filter(|_| bytes == 0);
        prop_assert_eq!(datatype.elements_of(bytes), if sizes.is_empty() { of_none } else { expected });
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
    fn any_external32_data_is_converted_or_refused(
        (datatype, _) in nested_of(vec![SHORT, LONG, COMPLEX]), count in 0u64..3,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let needed = external_size(&datatype, count) as usize;
        match from_external(&datatype, count, &bytes) {
            Ok((native, read)) => {
                prop_assert_eq!((native.len() as u64, read), (datatype.packed_size(count as i64), needed));
                // A value that fits memory is written as it was read.
                prop_assert_eq!(&to_external(&datatype, count, &native).unwrap()[..], &bytes[..needed]);
            }
            Err(error) => {
                prop_assert_eq!(error, Error::Truncated);
                prop_assert!(bytes.len() < needed);
            }
        }
    }

    #[test]
    fn subarrays_take_their_elements(shape in prop::collection::vec((1i64..5, 1i64..5, 0i64..3), 1..4), c_order: bool) {
        let sizes: Vec<_> = shape.iter().map(|(count, first, more)| first - 1 + count + more).collect();
        let counts: Vec<_> = shape.iter().map(|dimension| dimension.0).collect();
        let starts: Vec<_> = shape.iter().map(|dimension| dimension.1 - 1).collect();
        let order = if c_order { Order::C } else { Order::Fortran };
        let datatype = subarray(&sizes, &counts, &starts, order, &single(INT)).unwrap();
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
    fn elements_of_a_distributed_array_belong_to_the_right_process(
        shape in prop::collection::vec((1i64..14, 1i32..4, 0..3, prop::option::of(1i64..5)), 1..4), c_order: bool,
    ) {
        let lengths: Vec<_> = shape.iter().map(|dimension| dimension.0).collect();
        let mut grid: Vec<_> = shape.iter().map(|dimension| dimension.1).collect();
        let distributions: Vec<_> = shape.iter().zip(&mut grid).map(|(&(length, _, kind, argument), count)| match kind {
            0 => {
                *count = 1;
                Distribution::None
            }
            1 => {
                // Large enough that one block for each process covers the dimension.
                let least = (length - 1) / i64::from(*count) + 1;
                Distribution::Block(argument.map(|more| least + more - 1))
            }
            _ => Distribution::Cyclic(argument),
        }).collect();
        let order = if c_order { Order::C } else { Order::Fortran };
        let size = grid.iter().product();
        let total: i64 = lengths.iter().product();

        let mut dimensions: Vec<_> = (0..lengths.len()).collect();
        if c_order {
            dimensions.reverse();
        }
        let mut expected = vec![Vec::new(); size as usize];
        for element in 0..total {
            let mut rest = element;
            let mut coordinates = vec![0; lengths.len()];
            for &dimension in &dimensions {
                let (length, count) = (lengths[dimension], i64::from(grid[dimension]));
                let index = rest % length;
                rest /= length;
                coordinates[dimension] = match distributions[dimension] {
                    Distribution::None => 0,
                    Distribution::Block(argument) => index / argument.unwrap_or((length + count - 1) / count),
                    Distribution::Cyclic(argument) => index / argument.unwrap_or(1) % count,
                };
            }
            let owner = coordinates.iter().zip(&grid).fold(0, |rank, (at, count)| rank * i64::from(*count) + at);
            expected[owner as usize].push(element as i32);
        }
        let source: Vec<_> = (0..total as i32).collect();
        for (rank, expected) in expected.iter().enumerate() {
            let array = DistributedArray {
                size, rank: rank as i32, lengths: &lengths, distributions: &distributions, process_counts: &grid, order,
            };
            let part = darray(&array, &single(INT)).unwrap();
            let mut packed = vec![0; part.size() as usize];
            part.pack(source.as_ptr().cast(), 1, &mut packed);
            let found: Vec<_> = packed.chunks(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect();
            prop_assert_eq!(&found, expected);
            prop_assert_eq!((part.lower_bound(), part.extent()), (0, 4 * total));
        }
    }

    #[test]
    fn arguments_of_any_size_are_described_by_64_bits_or_refused(
        numbers in prop::collection::vec(extreme(), 6), counts in prop::collection::vec(extreme(), 3),
        times in 1..4usize,
    ) {
        let mut map = single(DOUBLE);
        let counts: Vec<_> = counts.iter().map(|count| count & i64::MAX).collect();
        for round in 0..times {
            let at = |index: usize| numbers[(index + round) % numbers.len()];
            let count = |index: usize| counts[(index + round) % counts.len()];
            let blocks = [(at(0), count(0)), (at(1), count(1))];
            let parts = blocks.map(|(displacement, length)| Block { displacement, length, datatype: &map });
            let grid = DistributedArray {
                size: 2, rank: round as i32 % 2, lengths: &[at(4)], process_counts: &[2], order: Order::C,
                distributions: &[[Distribution::Block(None), Distribution::Cyclic(Some(at(5)))][round % 2]],
            };
            let made = [
                hvector(count(0), count(1), at(2), &map),
                hindexed(&blocks, &map),
                indexed(&blocks, &map),
                struct_of(&parts),
                subarray(&[at(0)], &[at(1)], &[at(2)], Order::C, &map),
                darray(&grid, &map),
                resized(&map, at(0), at(3)),
            ];
            for map in made.iter().flatten() {
                prop_assert!(map.lower_bound().checked_add(map.extent()).is_some());
                let (first, length) = map.true_bounds();
                prop_assert!(length >= 0 && first.checked_add(length).is_some());
                prop_assert_eq!(map.sequence().size, map.size());
                prop_assert!(i64::try_from(map.size()).is_ok());
            }
            let Some(next) = made.into_iter().flatten().nth(round) else { break };
            map = next;
        }
    }
}

/// Small numbers, and numbers near the ends of 64 bits and their parts.
fn extreme() -> impl Strategy<Value = i64> {
    let near = |at: i64| (-3..3i64).prop_map(move |by| at.saturating_add(by));
    prop_oneof![
        -4..20i64,
        near(0),
        near(i64::MAX),
        near(i64::MIN),
        near(1 << 62),
        near(-1 << 62),
        near(1 << 60),
        any::<i64>()
    ]
}

#[test]
fn extents_of_structs_are_padded_unless_bounds_were_set() {
    let double = single(DOUBLE);
    let byte = single(BYTE);
    let blocks = |last: &TypeMap| {
        let at = |displacement, datatype| Block { displacement, length: 1, datatype };
        struct_of(&[at(0, &double), at(8, last)]).unwrap().extent()
    };
    assert_eq!(blocks(&byte), 16);
    let wide = resized(&byte, -3, 100).unwrap();
    assert_eq!(blocks(&wide), 100);
}

#[test]
fn layouts_are_as_small_as_they_can_be() {
    let int = single(INT);
    let pieces = |datatype: &TypeMap| datatype.layout().pieces().len();
    // A vector without gaps is a block, a vector of vectors of one stride is a vector.
    assert_eq!(hvector(10, 2, 8, &int).unwrap().contiguous_offset(1), Some(0));
    let column = hvector(4, 1, 32, &int).unwrap();
    let columns = hvector(3, 1, 128, &column).unwrap();
    assert!(matches!(columns.layout().pieces()[0].form, layout::Form::Loop { count: 12, .. }));
    let even: Vec<_> = (0..1000).map(|index| (index * 24, 2)).collect();
    assert_eq!(pieces(&hindexed(&even, &int).unwrap()), 1);
    let adjacent: Vec<_> = (0..1000).map(|index| (index, 1)).collect();
    assert!(indexed(&adjacent, &int).unwrap().is_contiguous(5));
}

#[test]
fn sizes_beyond_64_bits_are_refused() {
    let double = single(DOUBLE);
    assert!(contiguous(i64::MAX / 4, &double).is_err());
    let large = contiguous(i64::MAX / 16, &double).unwrap();
    assert!(hvector(4, 1, large.extent(), &large).is_err());
    assert_eq!(hvector(0, i64::MAX, 1, &double).unwrap().extent(), 0);
    assert_eq!(hvector(i64::MAX, 0, 1, &double).unwrap().size(), 0);
    assert!(hindexed(&[(i64::MAX, 2)], &double).is_err());
    assert!(indexed(&[(i64::MAX / 2, 1)], &double).is_err());
    // Each block fits, and so does each bound, but not the distance between them.
    let ends = [(-(1 << 62) - 8, 1), (1 << 62, 1)];
    assert_eq!(hindexed(&ends, &double).unwrap_err(), Error::TooLarge);
    let parts = ends.map(|(displacement, length)| Block { displacement, length, datatype: &double });
    assert_eq!(struct_of(&parts).unwrap_err(), Error::TooLarge);
    // The lowest displacement has no opposite number.
    let lowest = hindexed(&[(i64::MIN, 1)], &double).unwrap();
    assert_eq!(hvector(2, 1, 8, &lowest).unwrap().true_bounds(), (i64::MIN, 16));
    // Explicitly set bounds hide data that is far away.
    let far = resized(&hindexed(&[(1 << 62, 1)], &double).unwrap(), 0, 8).unwrap();
    assert_eq!(hvector(2, 1, 1 << 62, &far).unwrap_err(), Error::TooLarge);
}

#[test]
fn an_array_of_any_length_is_distributed_at_once() {
    let byte = single(BYTE);
    for (distribution, rank, size) in [
        (Distribution::Block(None), 0, i64::MAX / 2 + 1),
        (Distribution::Block(None), 1, i64::MAX / 2),
        (Distribution::Cyclic(None), 0, i64::MAX / 2 + 1),
        (Distribution::Cyclic(Some(i64::MAX)), 0, i64::MAX),
        (Distribution::Cyclic(Some(i64::MAX)), 1, 0),
    ] {
        let (lengths, order) = ([i64::MAX], Order::C);
        let array = DistributedArray {
            size: 2,
            rank,
            lengths: &lengths,
            distributions: &[distribution],
            process_counts: &[2],
            order,
        };
        assert_eq!(darray(&array, &byte).unwrap().size(), size as u64, "{distribution:?}");
    }
}

#[test]
fn arrays_that_contradict_themselves_are_refused() {
    let int = single(INT);
    let part = |first, count| subarray(&[10], &[count], &[first], Order::C, &int);
    assert!(part(9, 1).is_ok());
    for (first, count) in [(9, 2), (-1, 2), (0, 0), (i64::MAX, 1), (1, i64::MAX)] {
        assert!(matches!(part(first, count), Err(Error::OutsideArray { .. })), "{first} {count}");
    }
    let distributed = |size, rank, length, distribution, process_count| {
        let array = DistributedArray {
            size,
            rank,
            lengths: &[length],
            distributions: &[distribution],
            process_counts: &[process_count],
            order: Order::C,
        };
        darray(&array, &int).unwrap_err()
    };
    use Distribution::{Block, Cyclic, None};
    assert!(matches!(distributed(3, 0, 9, Cyclic(Option::None), 2), Error::Grid { .. }));
    assert!(matches!(distributed(0, 0, 9, Cyclic(Option::None), 0), Error::Grid { .. }));
    assert!(matches!(distributed(2, 2, 9, Cyclic(Option::None), 2), Error::OutsideGrid { .. }));
    assert!(matches!(distributed(2, 0, 0, Cyclic(Option::None), 2), Error::Length { .. }));
    assert!(matches!(distributed(2, 0, 9, Cyclic(Some(0)), 2), Error::BlockLength { .. }));
    assert!(matches!(distributed(2, 0, 9, None, 2), Error::Undistributed { .. }));
    assert!(matches!(distributed(2, 0, 9, Block(Some(4)), 2), Error::Uncovered { .. }));
}

#[test]
fn kinds_of_fortran_have_the_digits_that_were_asked_for() {
    assert_eq!((integer_kind(9), integer_kind(10)), (Some(Scalar::I32), Some(Scalar::I64)));
    assert_eq!((integer_kind(38), integer_kind(39)), (Some(Scalar::I128), None));
    assert_eq!((real_kind(6, -1), real_kind(-1, 38)), (Some(Scalar::F32), Some(Scalar::F64)));
    assert_eq!((real_kind(33, 4931), real_kind(34, 1)), (Some(Scalar::F128), None));
}

#[test]
fn pairs_are_laid_out_as_c_structs() {
    let bounds = |value, index| {
        let pair = pair(value, index);
        (pair.size(), pair.extent())
    };
    assert_eq!(bounds(DOUBLE, INT), (12, 16));
    assert_eq!(bounds(SHORT, INT), (6, 8));
    assert_eq!(bounds(LONG_DOUBLE, INT), (20, 32));
    assert_eq!(bounds(INT, INT), (8, 8));
}

#[test]
fn long_doubles_are_ieee_quadruple_in_external32() {
    let long_double = single(LONG_DOUBLE);
    // -1.5 as x87: sign and exponent 0xbfff, significand 0xc000...
    let mut native = [0; 16];
    native[7] = 0xc0;
    native[8..10].copy_from_slice(&[0xff, 0xbf]);
    let external = to_external(&long_double, 1, &native).unwrap();
    assert_eq!(external[..4], [0xbf, 0xff, 0x80, 0x00]);
    assert_eq!(from_external(&long_double, 1, &external).unwrap().0, native);
    let long = single(LONG);
    assert_eq!(to_external(&long, 1, &(-2i64).to_le_bytes()).unwrap(), [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(from_external(&long, 1, &[0xff, 0xff, 0xff, 0xfe]).unwrap().0, (-2i64).to_le_bytes());
    assert!(to_external(&long, 1, &(1i64 << 40).to_le_bytes()).is_err());
    assert!(from_external(&long, 1, &[0; 3]).is_err());
}

#[test]
fn absolute_addresses_relative_to_bottom() {
    let int = single(INT);
    let mut places = [1i32, 2, 3, 4];
    let address = |index: usize| (&raw const places[index]).expose_provenance() as i64;
    let datatype = hindexed(&[(address(3), 1), (address(0), 2)], &int).unwrap();
    let mut packed = [0u8; 12];
    datatype.pack(std::ptr::null(), 1, &mut packed);
    let values: Vec<_> = packed.chunks(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(values, [4, 1, 2]);
    packed.reverse();
    datatype.unpack(std::ptr::null_mut(), 1, &packed);
    assert_eq!(places.as_mut_slice()[2], 3);
    assert_eq!(places[3], i32::from_ne_bytes(packed[..4].try_into().unwrap()));
}
