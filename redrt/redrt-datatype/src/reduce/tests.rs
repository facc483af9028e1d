//! The operators on every type, against a second implementation of the arithmetic.

use super::*;
use crate::basic::Class;
use proptest::prelude::*;

const INTEGERS: [Scalar; 9] = [
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
    Scalar::I128,
];
const INTEGER_OPERATORS: [Operator; 10] = [
    Operator::Sum,
    Operator::Product,
    Operator::Minimum,
    Operator::Maximum,
    Operator::BitAnd,
    Operator::BitOr,
    Operator::BitXor,
    Operator::LogicalAnd,
    Operator::LogicalOr,
    Operator::LogicalXor,
];

fn basic(scalar: Scalar, class: Class) -> Operand {
    Operand::Basic(Basic::new(scalar, class))
}

fn float(scalar: Scalar) -> Operand {
    basic(scalar, Class::Float)
}

fn applied<T: Copy>(operator: Operator, operand: Operand, a: &[T], b: &[T]) -> Vec<T> {
    assert_eq!(operator.support(operand), Support::Available);
    let mut in_out = b.to_vec();
    operator.apply(operand, a.len(), a.as_ptr().cast(), in_out.as_mut_ptr().cast());
    in_out
}

/// Like `applied`, on elements as bytes at an odd address.
fn applied_to_bytes(operator: Operator, operand: Operand, count: usize, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (mut left, mut right) = (vec![0; a.len() + 2], vec![0xee; b.len() + 3]);
    let odd = |buffer: &[u8]| usize::from(buffer.as_ptr().addr().is_multiple_of(2));
    let (left_start, right_start) = (odd(&left), odd(&right));
    let (left, right) = (&mut left[left_start..][..a.len()], &mut right[right_start..][..b.len() + 1]);
    left.copy_from_slice(a);
    right[..b.len()].copy_from_slice(b);
    operator.apply(operand, count, left.as_ptr(), right.as_mut_ptr());
    assert_eq!((&*left, right[b.len()]), (a, 0xee), "what is read and what lies behind stay as they were");
    right[..b.len()].to_vec()
}

/// An integer of `scalar` as one of 128 bits.
fn widened(scalar: Scalar, bytes: &[u8]) -> i128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = i128::from_le_bytes(wide);
    let unused = 128 - 8 * bytes.len() as u32;
    match scalar {
        Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => bits,
        _ => bits << unused >> unused,
    }
}

fn model(operator: Operator, a: i128, b: i128) -> i128 {
    match operator {
        Operator::Sum => a.wrapping_add(b),
        Operator::Product => a.wrapping_mul(b),
        Operator::Minimum => std::cmp::min(a, b),
        Operator::Maximum => std::cmp::max(a, b),
        Operator::BitAnd => !(!a | !b),
        Operator::BitOr => !(!a & !b),
        Operator::BitXor => (a | b) - (a & b),
        Operator::LogicalAnd => [a, b].iter().all(|value| *value != 0).into(),
        Operator::LogicalOr => [a, b].iter().any(|value| *value != 0).into(),
        Operator::LogicalXor => ([a, b].iter().filter(|value| **value != 0).count() == 1).into(),
        Operator::MinimumLocation | Operator::MaximumLocation => unreachable!("not on integers"),
    }
}

/// A half by the definition of IEEE, exact in double precision.
fn half_to_double(half: u16) -> f64 {
    let (sign, exponent, fraction) = (half >> 15, i32::from(half >> 10 & 31), f64::from(half & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// The half that is nearest to a double, of two the even one, found by a search of all.
fn nearest_half(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    // The number after the largest finite one is 65536; infinity stands for it.
    let place = |half: u16| if half == 0x7c00 { 65536.0 } else { half_to_double(half) };
    let distance = |half: &u16| (value.abs() - place(*half)).abs();
    let closer = |a: &u16, b: &u16| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)));
    sign | (0..=0x7c00).min_by(closer).expect("there are halves")
}

/// A double as x87 extended, with zero padding.
fn long_double(value: f64) -> [u8; 16] {
    let bits = value.to_bits();
    let mut out = [0; 16];
    let exponent = (bits >> 52 & 0x7ff) as u16;
    let sign = (bits >> 63) as u16;
    if exponent != 0 {
        let significand = 1 << 63 | (bits & ((1 << 52) - 1)) << 11;
        out[..8].copy_from_slice(&significand.to_le_bytes());
        out[8..10].copy_from_slice(&(sign << 15 | (exponent + 16383 - 1023)).to_le_bytes());
    }
    out
}

/// Quadruple precision has the same exponent as x87 and more digits, the first one implied.
fn quadruple(value: f64) -> [u8; 16] {
    let x87 = long_double(value);
    let significand = u128::from(u64::from_le_bytes(x87[..8].try_into().unwrap()) & (u64::MAX >> 1));
    (u128::from(u16::from_le_bytes([x87[8], x87[9]])) << 112 | significand << 49).to_le_bytes()
}

proptest! {
    #[test]
    fn integers_of_every_size_agree_with_128_bits(
        bytes in prop::collection::vec((any::<u8>(), any::<u8>()), 0..200),
        scalar in prop::sample::select(&INTEGERS[..]), operator in prop::sample::select(&INTEGER_OPERATORS[..]),
        is_sparse: bool,
    ) {
        let size = scalar.size() as usize;
        let count = bytes.len() / size;
        // Zeros are rare among random bytes, and logical operators depend on them.
        let kept = |byte: u8, index: usize| if is_sparse && (index / size).is_multiple_of(2) { 0 } else { byte };
        let a: Vec<_> = bytes.iter().enumerate().map(|(index, pair)| kept(pair.0, index)).take(count * size).collect();
        let b = bytes.iter().enumerate().map(|(index, pair)| kept(pair.1, index / 2));
        let b: Vec<_> = b.take(count * size).collect();
        let expected: Vec<u8> = a.chunks(size).zip(b.chunks(size)).flat_map(|(a, b)| {
            let result = model(operator, widened(scalar, a), widened(scalar, b));
            result.to_le_bytes().into_iter().take(size)
        }).collect();
        for class in [Class::Integer, Class::FortranInteger, Class::MultiLanguage] {
            prop_assert_eq!(&applied_to_bytes(operator, basic(scalar, class), count, &a, &b), &expected);
        }
    }

    #[test]
    fn floats_agree_with_rust(pairs in prop::collection::vec((any::<f64>(), any::<f64>()), 0..40)) {
        let (a, b): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        let of = |operator| bits(applied(operator, float(Scalar::F64), &a, &b));
        let each = |f: fn(f64, f64) -> f64| bits(pairs.iter().map(|(a, b)| f(*a, *b)).collect());
        prop_assert_eq!(of(Operator::Sum), each(|a, b| a + b));
        prop_assert_eq!(of(Operator::Product), each(|a, b| a * b));
        prop_assert_eq!(of(Operator::Minimum), each(|a, b| if a < b { a } else { b }));
        prop_assert_eq!(of(Operator::Maximum), each(|a, b| if a > b { a } else { b }));
    }

    #[test]
    fn half_precision_gives_the_nearest_half(a in 0..0x7c00u16, b in 0..0x7c00u16, signs in 0..4u16) {
        let (a, b) = (a | signs << 15, b | signs >> 1 << 15);
        let (x, y) = (half_to_double(a), half_to_double(b));
        // Doubles hold sums and products of halves exactly.
        for (operator, exact) in [(Operator::Sum, x + y), (Operator::Product, x * y)] {
            let found = applied(operator, float(Scalar::F16), &[a], &[b]);
            prop_assert_eq!(found, vec![nearest_half(exact)], "{:?}", operator);
        }
        let larger = if x > y { a } else { b };
        prop_assert_eq!(applied(Operator::Maximum, float(Scalar::F16), &[a], &[b]), vec![larger]);
    }

    #[test]
    fn wide_formats_agree_with_doubles_that_they_hold_exactly(a in -1e6..1e6f64, b in -1e6..1e6f64) {
        for scalar in [Scalar::LongDouble, Scalar::F128].into_iter().filter(|_| cfg!(target_arch = "x86_64")) {
            let of = if scalar == Scalar::F128 { quadruple } else { long_double };
            for (operator, expected) in [(Operator::Minimum, a.min(b)), (Operator::Maximum, a.max(b))] {
                prop_assert_eq!(applied(operator, float(scalar), &[of(a)], &[of(b)]), vec![of(expected)]);
            }
            // Integers of this size have exact sums and products in all of these formats.
            let (a, b) = (a.trunc() + 0.0, b.trunc() + 0.0);
            for (operator, expected) in [(Operator::Sum, a + b), (Operator::Product, a * b)] {
                let found = applied(operator, float(scalar), &[of(a)], &[of(b)]);
                // A zero from a negative factor has a sign.
                prop_assert!(found == [of(expected)] || expected == 0.0 && found == [of(-expected)]);
            }
        }
    }

    #[test]
    fn complex_numbers_add_and_multiply_by_their_parts(
        numbers in prop::collection::vec((-1000..1000i32, -1000..1000i32, -1000..1000i32, -1000..1000i32), 1..9),
    ) {
        let a: Vec<_> = numbers.iter().map(|n| [n.0, n.1].map(f64::from)).collect();
        let b: Vec<_> = numbers.iter().map(|n| [n.2, n.3].map(f64::from)).collect();
        let product = |n: &(i32, i32, i32, i32)| [n.0 * n.2 - n.1 * n.3, n.0 * n.3 + n.1 * n.2].map(f64::from);
        let sum = |n: &(i32, i32, i32, i32)| [n.0 + n.2, n.1 + n.3].map(f64::from);
        let double = basic(Scalar::F64, Class::Complex);
        let (sums, products): (Vec<_>, Vec<_>) = numbers.iter().map(|n| (sum(n), product(n))).unzip();
        prop_assert_eq!(applied(Operator::Sum, double, &a, &b), sums);
        prop_assert_eq!(&applied(Operator::Product, double, &a, &b), &products);
        let single = |values: &[[f64; 2]]| values.iter().map(|value| value.map(|part| part as f32)).collect::<Vec<_>>();
        let of_single = applied(Operator::Product, basic(Scalar::F32, Class::Complex), &single(&a), &single(&b));
        prop_assert_eq!(of_single, single(&products));
        if cfg!(target_arch = "x86_64") {
            let wide = |values: &[[f64; 2]]| values.iter().map(|value| value.map(quadruple)).collect::<Vec<_>>();
            let found = applied(Operator::Product, basic(Scalar::F128, Class::Complex), &wide(&a), &wide(&b));
            prop_assert_eq!(found, wide(&products));
        }
    }

    #[test]
    fn locations_are_those_of_the_best_value_and_the_smallest_index(
        pairs in prop::collection::vec((0..4i16, 0..4i32, 0..4i16, 0..4i32), 1..30), is_minimum: bool,
    ) {
        let operator = if is_minimum { Operator::MinimumLocation } else { Operator::MaximumLocation };
        let operand = Operand::Pair {
            value: Basic::new(Scalar::I16, Class::Integer),
            index: Basic::new(Scalar::I32, Class::Integer),
        };
        let bytes = |value: i16, index: i32, padding: u8| {
            [&value.to_le_bytes()[..], &[padding; 2], &index.to_le_bytes()].concat()
        };
        let a = pairs.iter().flat_map(|pair| bytes(pair.0, pair.1, 1)).collect::<Vec<_>>();
        let b = pairs.iter().flat_map(|pair| bytes(pair.2, pair.3, 2)).collect::<Vec<_>>();
        // The padding is that of the written operand.
        let expected = pairs.iter().flat_map(|pair| {
            let both = [(pair.0, pair.1), (pair.2, pair.3)];
            let key = |(value, index): &(i16, i32)| (if is_minimum { *value } else { -*value }, *index);
            let (value, index) = both.into_iter().min_by_key(key).unwrap();
            bytes(value, index, 2)
        }).collect::<Vec<_>>();
        prop_assert_eq!(applied_to_bytes(operator, operand, pairs.len(), &a, &b), expected);
    }
}

#[test]
fn a_number_never_loses_to_what_is_not_one_on_the_left() {
    for operator in [Operator::Minimum, Operator::Maximum] {
        assert_eq!(applied(operator, float(Scalar::F64), &[f64::NAN], &[1.0]), [1.0]);
        let nan = 0x7e00_u16;
        assert_eq!(applied(operator, float(Scalar::F16), &[nan], &[0x3c00]), [0x3c00]);
    }
}

#[test]
fn locations_of_wide_values_are_found() {
    let part = |scalar, class| Basic::new(scalar, class);
    let operand =
        Operand::Pair { value: part(Scalar::LongDouble, Class::Float), index: part(Scalar::I32, Class::Integer) };
    let pair = |value, index: u8| {
        let mut out = [0; 32];
        out[..16].copy_from_slice(&long_double(value));
        out[16] = index;
        out
    };
    if cfg!(target_arch = "x86_64") {
        let found = applied(Operator::MinimumLocation, operand, &[pair(-2.0, 7)], &[pair(1.0, 1)]);
        assert_eq!(found, [pair(-2.0, 7)]);
    }
    let real = part(Scalar::F32, Class::Float);
    let operand = Operand::Pair { value: real, index: real };
    assert_eq!(applied(Operator::MaximumLocation, operand, &[[1f32, 2.0]], &[[1f32, 3.0]]), [[1.0, 2.0]]);
}

#[test]
fn every_available_combination_runs_also_on_no_elements() {
    let scalars = [Scalar::F16, Scalar::F32, Scalar::F64, Scalar::LongDouble, Scalar::F128];
    let classes = [
        Class::Integer,
        Class::FortranInteger,
        Class::MultiLanguage,
        Class::Float,
        Class::Complex,
        Class::Logical,
        Class::Byte,
        Class::Char,
        Class::Text,
        Class::Packed,
    ];
    let mut available_count = 0;
    for class in classes {
        let is_float = matches!(class, Class::Float | Class::Complex);
        for scalar in if is_float { &scalars[..] } else { &INTEGERS[..] } {
            for operator in Operator::ALL {
                let operand = basic(*scalar, class);
                if operator.support(operand) == Support::Available {
                    let (input, mut in_out) = ([1u8; 64], [1u8; 64]);
                    operator.apply(operand, 0, input.as_ptr(), in_out.as_mut_ptr());
                    assert_eq!(in_out, [1; 64]);
                    operator.apply(operand, 2, input.as_ptr(), in_out.as_mut_ptr());
                    available_count += 1;
                }
            }
        }
    }
    // Integers: four classes with ten operators; floats: four; complex: two; logicals and bytes: three.
    let expected = 9 * (4 * 10 + 3 + 3) + 5 * (4 + 2);
    assert_eq!(available_count, if cfg!(target_arch = "x86_64") { expected } else { expected - 8 });
    let pair =
        Operand::Pair { value: Basic::new(Scalar::I8, Class::Integer), index: Basic::new(Scalar::I32, Class::Integer) };
    assert!(Operator::ALL.iter().all(|operator| operator.support(pair) == Support::Undefined));
}
