//! Places in memory of the bytes of one element of a datatype, in packing order.
//!
//! A layout is a list of pieces: blocks of adjacent bytes, and loops that repeat a list at a stride. The builder makes
//! it as small as the order of packing allows: it merges adjacent blocks, turns evenly spaced equal blocks into a loop,
//! and joins nested loops of one stride. The copying kernels run over the pieces. Every piece has its position in the
//! packed stream, so that a copy can begin anywhere.

use std::sync::Arc;

/// Bytes of memory in packing order. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pieces: Arc<[Piece]>,
    size: u64,
}

/// One block or loop.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Distance in memory from the beginning of the element.
    pub offset: i64,
    /// Distance in the packed stream from the beginning of the element.
    pub start: u64,
    /// Bytes, over all repetitions.
    pub size: u64,
    /// Form of the piece.
    pub form: Form,
}

/// The form of a piece.
#[derive(Clone, Debug)]
pub enum Form {
    /// Adjacent bytes.
    Block,
    /// `body`, `count` times, each `stride` bytes after the one before.
    Loop {
        /// Number of repetitions, at least 2.
        count: u64,
        /// Bytes from one repetition to the next.
        stride: i64,
        /// Layout of one repetition.
        body: Layout,
    },
}

impl Layout {
    /// `size` adjacent bytes at the beginning.
    #[must_use]
    pub fn block(size: u64) -> Self {
        let mut builder = Builder::default();
        builder.push_block(0, size);
        builder.finish()
    }

    /// The pieces in packing order.
    #[must_use]
    #[inline]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Packed bytes.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Offset of the first byte, if all bytes are adjacent.
    #[must_use]
    #[inline]
    pub fn single_block(&self) -> Option<i64> {
        match &*self.pieces {
            [Piece { offset, form: Form::Block, .. }] => Some(*offset),
            [] => Some(0),
            _ => None,
        }
    }

    /// First and one past the last byte relative to the beginning of the element; 0 and 0 when there are none.
    #[must_use]
    pub fn bounds(&self) -> (i64, i64) {
        let bounds = self.pieces.iter().map(|piece| match &piece.form {
            Form::Block => (piece.offset, piece.offset + piece.size as i64),
            Form::Loop { count, stride, body } => {
                let (first, past) = body.bounds();
                let last = stride * (*count as i64 - 1);
                (piece.offset + first + last.min(0), piece.offset + past + last.max(0))
            }
        });
        bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
    }

    /// This layout `count` times, each `stride` bytes after the one before.
    #[must_use]
    #[inline]
    pub fn repeated(&self, count: u64, stride: i64) -> Self {
        if count == 1 {
            return self.clone();
        }
        let mut builder = Builder::default();
        builder.push_repeated(0, count, stride, self);
        builder.finish()
    }

    /// Calls `visit` with offset in memory and size of every block that holds bytes `position..position + length` of
    /// the packed stream, in order.
    pub fn for_each_block(&self, position: u64, length: u64, visit: &mut impl FnMut(i64, u64)) {
        self.walk(0, position, position + length, visit);
    }

    fn walk(&self, base: i64, from: u64, to: u64, visit: &mut impl FnMut(i64, u64)) {
        let first = self.pieces.partition_point(|piece| piece.start + piece.size <= from);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.start < to) {
            let from = from.max(piece.start) - piece.start;
            let to = to.min(piece.start + piece.size) - piece.start;
            let base = base + piece.offset;
            match &piece.form {
                Form::Block => visit(base + from as i64, to - from),
                Form::Loop { stride, body, .. } => {
                    for index in from / body.size..to.div_ceil(body.size) {
                        let start = index * body.size;
                        let to = to.min(start + body.size) - start;
                        body.walk(base + stride * index as i64, from.max(start) - start, to, visit);
                    }
                }
            }
        }
    }
}

/// Evenly spaced equal blocks become a loop if there are at least this many.
const LOOP_COUNT_MIN: u64 = 4;

/// Builds a layout piece by piece, merging as it goes.
#[derive(Default)]
pub struct Builder {
    pieces: Vec<Piece>,
    size: u64,
}

impl Builder {
    /// Appends `size` adjacent bytes at `offset`.
    pub fn push_block(&mut self, offset: i64, size: u64) {
        if size == 0 {
            return;
        }
        if let Some(Piece { offset: last, size: last_size, form: Form::Block, .. }) = self.pieces.last_mut()
            && *last + *last_size as i64 == offset
        {
            *last_size += size;
            self.size += size;
            return;
        }
        self.push(offset, size, Form::Block);
    }

    fn push(&mut self, offset: i64, size: u64, form: Form) {
        self.pieces.push(Piece { offset, start: self.size, size, form });
        self.size += size;
    }

    /// Appends `layout` at `offset`.
    pub fn push_layout(&mut self, offset: i64, layout: &Layout) {
        for piece in layout.pieces() {
            let offset = offset + piece.offset;
            match &piece.form {
                Form::Block => self.push_block(offset, piece.size),
                form @ Form::Loop { .. } => self.push(offset, piece.size, form.clone()),
            }
        }
    }

    /// Appends `layout` at `offset`, `count` times, each `stride` bytes after the one before.
    pub fn push_repeated(&mut self, offset: i64, count: u64, stride: i64, layout: &Layout) {
        if count == 0 || layout.size == 0 {
            return;
        }
        if count == 1 {
            return self.push_layout(offset, layout);
        }
        match layout.pieces() {
            // Repetitions without gaps are one block.
            [Piece { offset: inner, size, form: Form::Block, .. }] if *size as i64 == stride => {
                self.push_block(offset + inner, size * count);
            }
            // A loop whose repetitions continue its own stride is a longer loop.
            [Piece { offset: inner, form: Form::Loop { count: own, stride: own_stride, body }, .. }]
                if own_stride.checked_mul(*own as i64) == Some(stride) =>
            {
                let form = Form::Loop { count: own * count, stride: *own_stride, body: body.clone() };
                self.push(offset + inner, layout.size * count, form);
            }
            // A single piece moves to the body's beginning, and its offset to the loop.
            [piece] if piece.offset != 0 => {
                let form = Form::Loop { count, stride, body: alone(piece) };
                self.push(offset + piece.offset, layout.size * count, form);
            }
            _ => self.push(offset, layout.size * count, Form::Loop { count, stride, body: layout.clone() }),
        }
    }

    /// The layout, with evenly spaced equal blocks turned into loops.
    #[must_use]
    pub fn finish(self) -> Layout {
        let mut pieces = Vec::with_capacity(self.pieces.len().min(64));
        let mut rest = &self.pieces[..];
        while let Some(first) = rest.first() {
            let (count, stride) = even_run(rest);
            if count >= LOOP_COUNT_MIN {
                let form = Form::Loop { count, stride, body: alone(first) };
                pieces.push(Piece { offset: first.offset, start: first.start, size: first.size * count, form });
            } else {
                pieces.extend_from_slice(&rest[..count as usize]);
            }
            rest = &rest[count as usize..];
        }
        Layout { pieces: pieces.into(), size: self.size }
    }
}

/// A layout of one piece, moved to the beginning.
fn alone(piece: &Piece) -> Layout {
    Layout { pieces: Arc::new([Piece { offset: 0, start: 0, ..piece.clone() }]), size: piece.size }
}

/// The number of blocks at the front that have the same size and spacing, and the spacing; (1, 0) when they are too few
/// for a loop.
fn even_run(pieces: &[Piece]) -> (u64, i64) {
    let [first, second, ..] = pieces else { return (1, 0) };
    let is_block = |piece: &Piece| matches!(piece.form, Form::Block);
    if !is_block(first) {
        return (1, 0);
    }
    let stride = second.offset - first.offset;
    let continues =
        |pair: &&[Piece]| is_block(&pair[1]) && pair[1].size == first.size && pair[1].offset - pair[0].offset == stride;
    let count = 1 + pieces.windows(2).take_while(continues).count() as u64;
    if count >= LOOP_COUNT_MIN { (count, stride) } else { (1, 0) }
}
