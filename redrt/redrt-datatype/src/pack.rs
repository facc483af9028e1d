//! Copies between a program's memory and a packed stream, in either direction, from and to any place in the stream.
//!
//! Every byte of the layout is at the given address: the promise that the root of this crate explains.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

use crate::layout::{Form, Layout, Piece};

/// Packs bytes `position..position + out.len()` of the packed stream of `layout` at `source` into `out`.
///
/// # Panics
/// When the stream is shorter than that.
pub fn pack(layout: &Layout, source: *const u8, position: u64, out: &mut [u8]) {
    assert!(position + out.len() as u64 <= layout.size(), "the stream has {} bytes", layout.size());
    let packed = out.as_mut_ptr();
    // SAFETY: - the layout's bytes at source are readable: the program's promise.
    //         - `out` holds out.len() bytes, and being borrowed mutably it does not overlap the source.
    //         - the range ends within the stream: asserted above.
    unsafe { copy_range::<Pack>(layout, source.cast_mut(), position, packed, out.len() as u64) };
}

/// Unpacks `data` as bytes `position..position + data.len()` of the packed stream of `layout` at `destination`.
///
/// # Panics
/// When the stream is shorter than that.
pub fn unpack(layout: &Layout, destination: *mut u8, position: u64, data: &[u8]) {
    assert!(position + data.len() as u64 <= layout.size(), "the stream has {} bytes", layout.size());
    let packed = data.as_ptr().cast_mut();
    // SAFETY: - the layout's bytes at destination are writable: the program's promise.
    //         - `data` holds data.len() bytes and is only read; being borrowed, it does not overlap the written memory.
    //         - the range ends within the stream: asserted above.
    unsafe { copy_range::<Unpack>(layout, destination, position, packed, data.len() as u64) };
}

/// The direction of a copy.
trait Direction {
    /// Copies `size` bytes between memory and stream.
    ///
    /// # Safety
    /// Both sides have `size` bytes and do not overlap; the written side is writable.
    unsafe fn copy(memory: *mut u8, packed: *mut u8, size: usize);
}

/// Copies a block of any size. Sizes of basic types are by far the most frequent, and become moves instead of calls.
///
/// # Safety
/// Same duties as [`Direction::copy`].
#[inline(always)]
unsafe fn copy_block<D: Direction>(memory: *mut u8, packed: *mut u8, size: usize) {
    // SAFETY: - both sides have `size` bytes: the caller's duty; each arm copies exactly that many.
    unsafe {
        match size {
            4 => D::copy(memory, packed, 4),
            8 => D::copy(memory, packed, 8),
            16 => D::copy(memory, packed, 16),
            24 => D::copy(memory, packed, 24),
            _ => D::copy(memory, packed, size),
        }
    }
}

struct Pack;
struct Unpack;

impl Direction for Pack {
    #[inline(always)]
    unsafe fn copy(memory: *mut u8, packed: *mut u8, size: usize) {
        // SAFETY: - `memory` is readable and `packed` writable for `size` bytes, and they are apart: this trait's
        //           contract.
        unsafe { std::ptr::copy_nonoverlapping(memory, packed, size) };
    }
}

impl Direction for Unpack {
    #[inline(always)]
    unsafe fn copy(memory: *mut u8, packed: *mut u8, size: usize) {
        // SAFETY: - `packed` is readable and `memory` writable for `size` bytes, and they are apart: this trait's
        //           contract.
        unsafe { std::ptr::copy_nonoverlapping(packed, memory, size) };
    }
}

/// Copies `length` bytes of the stream from `position` on. The stream's byte `position` is the first at `packed`.
///
/// # Safety
/// The layout's bytes are at `memory`, `length` bytes are at `packed`, and the two do not overlap.
unsafe fn copy_range<D: Direction>(layout: &Layout, memory: *mut u8, position: u64, packed: *mut u8, length: u64) {
    let end = position + length;
    let first = layout.pieces().partition_point(|piece| piece.start + piece.size <= position);
    for piece in &layout.pieces()[first..] {
        if piece.start >= end {
            break;
        }
        let from = position.max(piece.start);
        let to = end.min(piece.start + piece.size);
        let packed = packed.wrapping_add((from - position) as usize);
        // SAFETY: - from..to is the part of the caller's range that lies in this piece, at the same distance in
        //           `packed`.
        unsafe { copy_piece::<D>(piece, memory, from - piece.start, packed, to - from) };
    }
}

/// Copies bytes `position..position + length` of one piece.
///
/// # Safety
/// Same duties as [`copy_range`], for the piece.
#[inline]
unsafe fn copy_piece<D: Direction>(piece: &Piece, memory: *mut u8, position: u64, packed: *mut u8, length: u64) {
    let memory = memory.wrapping_offset(piece.offset as isize);
    let Form::Loop { stride, body, .. } = &piece.form else {
        // SAFETY: - the block has bytes position..position + length, and `packed` has `length`: the caller's range.
        return unsafe { copy_block::<D>(memory.wrapping_add(position as usize), packed, length as usize) };
    };
    let stride = *stride as isize;
    let at = |index: u64| memory.wrapping_offset(stride.wrapping_mul(index as isize));
    let (mut packed, mut rest) = (packed, length);
    let (mut index, skipped) = (position / body.size(), position % body.size());
    if skipped > 0 {
        let part = rest.min(body.size() - skipped);
        // SAFETY: - `part` bytes from `skipped` on end within repetition `index`, and within the caller's range.
        unsafe { copy_range::<D>(body, at(index), skipped, packed, part) };
        (packed, rest, index) = (packed.wrapping_add(part as usize), rest - part, index + 1);
    }
    let whole = rest / body.size();
    // SAFETY: - `whole` repetitions from `index` on take at most the remaining `rest` bytes of the range.
    unsafe { copy_repetitions::<D>(body, at(index), stride, whole as usize, packed) };
    let copied = whole * body.size();
    if rest > copied {
        let packed = packed.wrapping_add(copied as usize);
        // SAFETY: - fewer bytes remain than a repetition has, and they are the last of the range.
        unsafe { copy_range::<D>(body, at(index + whole), 0, packed, rest - copied) };
    }
}

/// Copies `count` whole repetitions of a loop's body.
///
/// # Safety
/// Same duties as [`copy_range`], for `count` repetitions at `memory`, `stride` bytes apart.
unsafe fn copy_repetitions<D: Direction>(body: &Layout, memory: *mut u8, stride: isize, count: usize, packed: *mut u8) {
    let size = body.size() as usize;
    if let Some(offset) = body.single_block() {
        let memory = memory.wrapping_offset(offset as isize);
        // Common sizes are constants, so that each copy is a move and not a call.
        // SAFETY: - the body is one block of `size` bytes at `offset`, `count` times: the caller's duty.
        return unsafe {
            match size {
                1 => copy_blocks::<D, 1>(memory, stride, count, packed),
                2 => copy_blocks::<D, 2>(memory, stride, count, packed),
                4 => copy_blocks::<D, 4>(memory, stride, count, packed),
                8 => copy_blocks::<D, 8>(memory, stride, count, packed),
                16 => copy_blocks::<D, 16>(memory, stride, count, packed),
                32 => copy_blocks::<D, 32>(memory, stride, count, packed),
                _ => {
                    for index in 0..count {
                        let memory = memory.wrapping_offset(stride.wrapping_mul(index as isize));
                        D::copy(memory, packed.wrapping_add(index * size), size);
                    }
                }
            }
        };
    }
    let blocks_only = body.pieces().iter().all(|piece| matches!(piece.form, Form::Block));
    for index in 0..count {
        let memory = memory.wrapping_offset(stride.wrapping_mul(index as isize));
        let packed = packed.wrapping_add(index * size);
        for piece in body.pieces() {
            let packed = packed.wrapping_add(piece.start as usize);
            if blocks_only {
                // SAFETY: - a block of this repetition: piece.size bytes at its offset, and as many at its start in
                //           `packed`.
                unsafe { copy_block::<D>(memory.wrapping_offset(piece.offset as isize), packed, piece.size as usize) };
            } else {
                // SAFETY: - bytes 0..piece.size of a piece of this repetition, and as many at its start in `packed`.
                unsafe { copy_piece::<D>(piece, memory, 0, packed, piece.size) };
            }
        }
    }
}

/// Copies `count` blocks of `SIZE` bytes.
///
/// # Safety
/// Same duties as [`copy_repetitions`].
unsafe fn copy_blocks<D: Direction, const SIZE: usize>(memory: *mut u8, stride: isize, count: usize, packed: *mut u8) {
    for index in 0..count {
        let memory = memory.wrapping_offset(stride.wrapping_mul(index as isize));
        // SAFETY: - block `index` of `count` has SIZE bytes at either side: the caller's duty.
        unsafe { D::copy(memory, packed.wrapping_add(index * SIZE), SIZE) };
    }
}
