//! Requests of an origin to a target, as bytes: a header, then the operation's data.
//!
//! The bytes of an operation's target are sent as blocks and loops, since the target does not know the origin's
//! datatypes. Displacements are in the target's units; only the target knows the address of its memory.

use redrt_datatype::layout::{Builder, Form, Layout, Piece};
use serde::{Deserialize, Serialize};

/// One request to a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Number of the fence epoch of the operation; `None` in other kinds of epochs.
    pub fence: Option<u64>,
    /// Operation for the target.
    pub order: Order,
}

/// Operation of a request. `tag` is the tag of the answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Writes the data. They are in the request or, with `apart`, in a message of their own with this tag.
    Put { at: Place, apart: Option<i32> },
    /// Answers with the bytes of the place.
    Get { at: Place, tag: i32 },
    /// Combines the data with the bytes of the place.
    Accumulate { at: Place, how: Combination },
    /// Combines the data with the bytes of the place, and answers with the previous bytes.
    Fetch { at: Place, how: Combination, tag: i32 },
    /// Compares and swaps. The data are two elements: writes the first if the memory equals the second, and answers
    /// with the previous element.
    Compare { at: Place, tag: i32 },
    /// Locks the target for the origin. With a tag, answers when the origin has the lock. Later requests of the origin
    /// wait for the lock.
    Lock { exclusive: bool, tag: Option<i32> },
    /// Releases the lock, and answers.
    Unlock { tag: i32 },
    /// Answers when all earlier requests of the origin are done.
    Flush { tag: i32 },
    /// The origin has ended its access epoch.
    Complete,
    /// From the target itself: this memory may be reached in a dynamic window.
    Attach { address: u64, size: u64, tag: i32 },
    /// From the target itself: the memory that begins here may no longer be reached.
    Detach { address: u64, tag: i32 },
    /// From the target itself: there will be no more requests.
    Close,
}

/// The way in which data are combined with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Combination {
    /// Handle of the operation, a predefined one.
    pub operation: u32,
    /// Handle of the elements' type, a predefined one; 0 where the operation does not depend on elements.
    pub element: u32,
}

/// Bytes of a target's memory, in the order in which they are packed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Displacement in the target's units; in a dynamic window an address.
    pub displacement: i64,
    shapes: Vec<Shape>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Shape {
    Block { offset: i64, size: u64 },
    Loop { offset: i64, count: u64, stride: i64, body: Vec<Shape> },
}

/// Maximum depth of nested loops. Real datatypes stay far below; a damaged request may exceed it.
const DEPTH_MAX: u32 = 64;

impl Place {
    /// The bytes that `layout` describes, from `displacement` on.
    pub fn new(displacement: i64, layout: &Layout) -> Self {
        Self { displacement, shapes: shapes_of(layout) }
    }

    /// The layout of the bytes, with their first offset and one past the last. `None` if no memory can have it.
    pub fn layout(&self) -> Option<(Layout, i64, i64)> {
        let bounds = bounds_of(&self.shapes, 0)?;
        let (first, past) = (i64::try_from(bounds.first).ok()?, i64::try_from(bounds.past).ok()?);
        i64::try_from(bounds.size).ok()?;
        Some((layout_of(&self.shapes), first, past))
    }
}

fn shapes_of(layout: &Layout) -> Vec<Shape> {
    let shape = |piece: &Piece| match &piece.form {
        Form::Block => Shape::Block { offset: piece.offset, size: piece.size },
        Form::Loop { count, stride, body } => {
            Shape::Loop { offset: piece.offset, count: *count, stride: *stride, body: shapes_of(body) }
        }
    };
    layout.pieces().iter().map(shape).collect()
}

fn layout_of(shapes: &[Shape]) -> Layout {
    let mut builder = Builder::default();
    for shape in shapes {
        match shape {
            Shape::Block { offset, size } => builder.push_block(*offset, *size),
            Shape::Loop { offset, count, stride, body } => {
                builder.push_repeated(*offset, *count, *stride, &layout_of(body));
            }
        }
    }
    builder.finish()
}

#[derive(Clone, Copy, Default)]
struct Bounds {
    first: i128,
    past: i128,
    size: u128,
}

/// First and one past the last offset, and the packed size; `None` when a number does not fit.
fn bounds_of(shapes: &[Shape], depth: u32) -> Option<Bounds> {
    let mut all: Option<Bounds> = None;
    for shape in shapes {
        let own = match shape {
            Shape::Block { offset, size } => {
                let first = i128::from(*offset);
                Bounds { first, past: first + i128::from(*size), size: u128::from(*size) }
            }
            Shape::Loop { offset, count, stride, body } => {
                let inner = if depth < DEPTH_MAX { bounds_of(body, depth + 1)? } else { return None };
                let last = i128::from(*stride).checked_mul(i128::from(count.checked_sub(1)?))?;
                let first = i128::from(*offset).checked_add(inner.first)?.checked_add(last.min(0))?;
                let past = i128::from(*offset).checked_add(inner.past)?.checked_add(last.max(0))?;
                Bounds { first, past, size: inner.size.checked_mul(u128::from(*count))? }
            }
        };
        // Bounds within 64 bits at each level keep the 128-bit sums of the level above from overflowing.
        let fits = i64::try_from(own.first).is_ok() && i64::try_from(own.past).is_ok();
        let size = own.size.checked_add(all.map_or(0, |all| all.size))?;
        if !fits || i64::try_from(size).is_err() {
            return None;
        }
        all =
            Some(all.map_or(own, |all| Bounds { first: all.first.min(own.first), past: all.past.max(own.past), size }));
    }
    Some(all.unwrap_or_default())
}

impl Request {
    /// The request and its data as one message.
    pub fn encode(&self, data: &[u8]) -> Box<[u8]> {
        let mut bytes = postcard::to_stdvec(self).expect("requests are plain data");
        bytes.extend_from_slice(data);
        bytes.into()
    }

    /// Splits a message into a request and its data; `None` if it is not a request.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        postcard::take_from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = Vec<Shape>> {
        let block = (-1000i64..1000, 1u64..40).prop_map(|(offset, size)| Shape::Block { offset, size });
        let shape = block.prop_recursive(3, 12, 3, |inner| {
            (-1000i64..1000, 2u64..5, -100i64..100, prop::collection::vec(inner, 1..3))
                .prop_map(|(offset, count, stride, body)| Shape::Loop { offset, count, stride, body })
        });
        prop::collection::vec(shape, 0..4)
    }

    /// The blocks in order; adjacent ones are merged.
    fn blocks(layout: &Layout) -> Vec<(i64, u64)> {
        let mut found: Vec<(i64, u64)> = Vec::new();
        layout.for_each_block(0, layout.size(), &mut |offset, size| match found.last_mut() {
            Some((last, length)) if *last + *length as i64 == offset => *length += size,
            _ => found.push((offset, size)),
        });
        found
    }

    proptest! {
        #[test]
        fn a_place_arrives_as_it_was_sent(shapes in shapes(), displacement in any::<i64>(), data in any::<Vec<u8>>()) {
            let layout = layout_of(&shapes);
            let request = Request {
                fence: Some(7),
                order: Order::Put { at: Place::new(displacement, &layout), apart: None },
            };
            let bytes = request.encode(&data);
            let (decoded, rest) = Request::decode(&bytes).unwrap();
            prop_assert_eq!(&decoded, &request);
            prop_assert_eq!(rest, &data[..]);
            let Order::Put { at, .. } = decoded.order else { unreachable!() };
            let (arrived, first, past) = at.layout().unwrap();
            prop_assert_eq!(at.displacement, displacement);
            prop_assert_eq!(blocks(&arrived), blocks(&layout));
            prop_assert_eq!((first, past), layout.bounds());
        }

        #[test]
        fn any_bytes_are_a_request_or_refused(bytes in any::<Vec<u8>>()) {
            if let Some((Request { order: Order::Put { at, .. } | Order::Get { at, .. }, .. }, _)) = Request::decode(&bytes) {
                let _ = at.layout();
            }
        }
    }

    #[test]
    fn places_that_cannot_be_are_refused() {
        let place = |shapes| Place { displacement: 0, shapes };
        let block = Shape::Block { offset: i64::MAX, size: 1 };
        assert!(place(vec![block]).layout().is_none());
        let body = vec![Shape::Block { offset: 0, size: 8 }];
        let huge = Shape::Loop { offset: 0, count: u64::MAX, stride: i64::MAX, body: body.clone() };
        assert!(place(vec![huge]).layout().is_none());
        let empty = Shape::Loop { offset: 0, count: 0, stride: 8, body };
        assert!(place(vec![empty]).layout().is_none());
        let mut deep = Shape::Block { offset: 0, size: 1 };
        for _ in 0..100 {
            deep = Shape::Loop { offset: 0, count: 2, stride: 1, body: vec![deep] };
        }
        assert!(place(vec![deep]).layout().is_none());
    }
}
