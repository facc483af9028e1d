//! Two payloads that should be the same → where and how they differ.
//!
//! When both are at one place, [`difference`] compares them. When each is with another process and they are long, each
//! process makes a [`Sketch`] of its own, a few hundred bytes. Sketches of payloads that differ in one 8-byte word
//! identify that word and its differing bits, as the check bits of a Hamming code do. A flipped bit looks like that.

use serde::{Deserialize, Serialize};

/// Type of a payload's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Unknown, or a mixture of types.
    #[default]
    Unknown,
    /// Signed integers of 8 bits.
    I8,
    /// Unsigned integers of 8 bits.
    U8,
    /// Signed integers of 16 bits.
    I16,
    /// Unsigned integers of 16 bits.
    U16,
    /// Signed integers of 32 bits.
    I32,
    /// Unsigned integers of 32 bits.
    U32,
    /// Signed integers of 64 bits.
    I64,
    /// Unsigned integers of 64 bits.
    U64,
    /// IEEE numbers of single precision.
    F32,
    /// IEEE numbers of double precision.
    F64,
}

impl Element {
    const ALL: [Self; 11] = [
        Self::Unknown,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    /// The element with this number (`as u8`) in a header; `Unknown` for any other number.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Bytes of one element. 1 for `Unknown`, which is compared by bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Unknown => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The value in these bytes, which are those of one element.
    fn value(self, bytes: &[u8]) -> Value {
        fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.try_into().expect("the bytes of one element")
        }
        match self {
            Self::Unknown | Self::U8 => Value::Whole(bytes[0].into()),
            Self::I8 => Value::Whole(i8::from_ne_bytes(array(bytes)).into()),
            Self::I16 => Value::Whole(i16::from_ne_bytes(array(bytes)).into()),
            Self::U16 => Value::Whole(u16::from_ne_bytes(array(bytes)).into()),
            Self::I32 => Value::Whole(i32::from_ne_bytes(array(bytes)).into()),
            Self::U32 => Value::Whole(u32::from_ne_bytes(array(bytes)).into()),
            Self::I64 => Value::Whole(i64::from_ne_bytes(array(bytes)).into()),
            Self::U64 => Value::Whole(u64::from_ne_bytes(array(bytes)).into()),
            Self::F32 => Value::Single(f32::from_ne_bytes(array(bytes))),
            Self::F64 => Value::Double(f64::from_ne_bytes(array(bytes))),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(i128),
    Single(f32),
    Double(f64),
}

impl Value {
    fn text(self) -> String {
        match self {
            Self::Whole(value) => value.to_string(),
            Self::Single(value) => format!("{value:e}"),
            Self::Double(value) => format!("{value:e}"),
        }
    }

    /// Steps from one floating-point number to the other; `None` for integers and NaN.
    fn ulps(self, other: Self) -> Option<u64> {
        // Numbers in order have keys in order; both zeros have the same.
        let key =
            |magnitude: u64, is_negative: bool| if is_negative { -i128::from(magnitude) } else { magnitude.into() };
        let (one, other) = match (self, other) {
            (Self::Single(one), Self::Single(other)) if !one.is_nan() && !other.is_nan() => {
                let key = |value: f32| key((value.to_bits() & !(1 << 31)).into(), value.is_sign_negative());
                (key(one), key(other))
            }
            (Self::Double(one), Self::Double(other)) if !one.is_nan() && !other.is_nan() => {
                let key = |value: f64| key(value.to_bits() & !(1 << 63), value.is_sign_negative());
                (key(one), key(other))
            }
            _ => return None,
        };
        u64::try_from(one.abs_diff(other)).ok()
    }
}

/// The difference between two payloads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Position of the first differing byte.
    pub offset: u64,
    /// Exclusive or of the payloads from that byte to the end of its element, or over up to eight bytes where the type
    /// is unknown.
    pub xor: Vec<u8>,
    /// Type of the payloads' elements.
    pub element: Element,
    /// Number of the element with that byte, from 0.
    pub index: u64,
    /// That element in either payload; `None` unless both payloads were at hand and have all of it.
    pub values: Option<[String; 2]>,
    /// Floating-point numbers from one value to the other; `None` without values, and for integers and NaN.
    pub ulps: Option<u64>,
    /// Bytes that differ, those that only one payload has included.
    pub byte_count: Option<u64>,
    /// Bits that differ.
    pub bit_count: u64,
    /// The lengths, if they differ: bytes that only one payload has count as differing.
    pub lengths: Option<[u64; 2]>,
}

/// Compares two payloads; `None` when they are equal.
#[must_use]
pub fn difference(one: &[u8], other: &[u8], element: Element) -> Option<Difference> {
    let common = one.len().min(other.len());
    let longer = one.len().max(other.len());
    let first = one.iter().zip(other).position(|(one, other)| one != other);
    let lengths = (one.len() != other.len()).then_some([one.len() as u64, other.len() as u64]);
    let at = first.or(lengths.map(|_| common))?;
    let size = element.size();
    let begin = at / size * size;
    let end = if element == Element::Unknown { at + 8 } else { begin + size };
    let end = end.min(common).max(at);
    let xor = one[at..end].iter().zip(&other[at..end]).map(|(one, other)| one ^ other).collect();
    let values = (begin + size <= common)
        .then(|| [element.value(&one[begin..begin + size]), element.value(&other[begin..begin + size])]);
    let differing = one[at.min(common)..common].iter().zip(&other[at.min(common)..common]);
    let (bytes, bits) = differing.fold((0, 0), |(bytes, bits), (one, other)| {
        (bytes + u64::from(one != other), bits + u64::from((one ^ other).count_ones()))
    });
    let extra = (longer - common) as u64;
    Some(Difference {
        offset: at as u64,
        xor,
        element,
        index: (at / size) as u64,
        ulps: values.and_then(|[one, other]| one.ulps(other)),
        values: values.map(|values| values.map(Value::text)),
        byte_count: Some(bytes + extra),
        bit_count: bits + 8 * extra,
        lengths,
    })
}

/// Bound on the bits of a word's number.
const ROWS: usize = 48;

/// Digest of a long payload that locates a differing word; see the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sketch {
    length: u64,
    /// All 8-byte words combined by exclusive or.
    all: u64,
    /// For each bit of a word's number: exclusive or of the words with that bit set. Only as many rows as the length
    /// needs.
    rows: Vec<u64>,
}

impl Sketch {
    /// Makes the sketch of a payload.
    #[must_use]
    pub fn new(payload: &[u8]) -> Self {
        let mut rows = [0_u64; ROWS];
        let mut all = 0;
        for (number, word) in payload.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            let word = u64::from_le_bytes(bytes);
            all ^= word;
            let mut left = number;
            while left != 0 {
                rows[left.trailing_zeros() as usize] ^= word;
                left &= left - 1;
            }
        }
        let count = usize::BITS - (payload.len().div_ceil(8)).leading_zeros();
        Self { length: payload.len() as u64, all, rows: rows[..count as usize].to_vec() }
    }

    /// The difference of the payloads; `None` unless they differ in exactly one word.
    #[must_use]
    pub fn difference(&self, other: &Self, element: Element) -> Option<Difference> {
        let mask = self.all ^ other.all;
        if self.length != other.length || self.rows.len() != other.rows.len() || mask == 0 {
            return None;
        }
        let mut number = 0_u64;
        for (bit, (one, other)) in self.rows.iter().zip(&other.rows).enumerate() {
            match one ^ other {
                0 => {}
                row if row == mask => number |= 1 << bit,
                _ => return None,
            }
        }
        let bytes = mask.to_le_bytes();
        let first = bytes.iter().position(|byte| *byte != 0).expect("the mask is not 0");
        let offset = number * 8 + first as u64;
        let past = if element == Element::Unknown { 8 } else { (first / element.size() + 1) * element.size() };
        (offset < self.length).then(|| Difference {
            offset,
            xor: bytes[first..past].to_vec(),
            element,
            index: offset / element.size() as u64,
            values: None,
            ulps: None,
            byte_count: Some(bytes.iter().filter(|byte| **byte != 0).count() as u64),
            bit_count: mask.count_ones().into(),
            lengths: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubles(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn a_flipped_bit_of_a_double_is_named() {
        let one = doubles(&[1.0, 2.0, 3.0]);
        assert_eq!(difference(&one, &one, Element::F64), None);
        let mut other = one.clone();
        other[10] ^= 0x20;
        let found = difference(&one, &other, Element::F64).unwrap();
        assert_eq!((found.offset, found.index, found.bit_count, found.byte_count), (10, 1, 1, Some(1)));
        assert_eq!(found.xor, [0x20, 0, 0, 0, 0, 0]);
        assert_eq!(found.ulps, Some(0x20 << 16));
        assert_eq!(found.values.unwrap()[0], "2e0");
    }

    #[test]
    fn ulps_count_across_zero_and_not_for_what_is_no_number() {
        let ulps = |one: f64, other: f64| Value::Double(one).ulps(Value::Double(other));
        assert_eq!(ulps(1.0, 1.0 + f64::EPSILON), Some(1));
        assert_eq!(ulps(0.0, -0.0), Some(0));
        assert_eq!(ulps(f64::from_bits(1), -f64::from_bits(2)), Some(3));
        assert_eq!(ulps(f64::MAX, f64::INFINITY), Some(1));
        assert_eq!(ulps(1.0, f64::NAN), None);
        assert_eq!(Value::Single(1.0).ulps(Value::Single(-1.0)), Some(2 * u64::from(1.0_f32.to_bits())));
        assert_eq!(Value::Whole(1).ulps(Value::Whole(2)), None);
    }

    #[test]
    fn integers_and_bytes_have_values_too() {
        let found = difference(&[1, 0, 0, 0, 5, 0, 0, 0], &[1, 0, 0, 0, 251, 255, 255, 255], Element::I32).unwrap();
        assert_eq!((found.values.unwrap(), found.index, found.offset), (["5".into(), "-5".into()], 1, 4));
        let found = difference(b"hello", b"help!", Element::Unknown).unwrap();
        assert_eq!((found.offset, found.byte_count, found.xor.len()), (3, Some(2), 2));
    }

    #[test]
    fn what_only_one_has_differs() {
        let found = difference(&[7; 10], &[7; 8], Element::F64).unwrap();
        assert_eq!((found.offset, found.byte_count, found.lengths), (8, Some(2), Some([10, 8])));
        assert!(found.values.is_none() && found.xor.is_empty());
        assert!(difference(&[], &[1], Element::Unknown).is_some());
    }

    #[test]
    fn sketches_find_every_single_word() {
        for length in [1, 7, 8, 9, 64, 1000, 70_001] {
            let one: Vec<u8> = (0..length).map(|at: u32| ((at * 31) >> 3) as u8).collect();
            let sketch = Sketch::new(&one);
            assert_eq!(sketch.difference(&Sketch::new(&one), Element::Unknown), None);
            for at in (0..length as usize).step_by(1 + length as usize / 50) {
                let mut other = one.clone();
                other[at] ^= 0x81;
                let found = sketch.difference(&Sketch::new(&other), Element::Unknown).unwrap();
                let whole = difference(&one, &other, Element::Unknown).unwrap();
                assert_eq!((found.offset, found.bit_count), (whole.offset, whole.bit_count), "{at} of {length}");
                assert_eq!(found.xor[0], 0x81);
            }
        }
    }

    #[test]
    fn sketches_do_not_name_a_word_when_several_differ() {
        let one = vec![0_u8; 4096];
        for (left, right) in [(8, 16), (0, 4000), (40, 41 * 8)] {
            let mut other = one.clone();
            (other[left], other[right]) = (1, 2);
            assert_eq!(Sketch::new(&one).difference(&Sketch::new(&other), Element::F64), None);
        }
        assert_eq!(Sketch::new(&one).difference(&Sketch::new(&one[1..]), Element::F64), None);
    }
}
