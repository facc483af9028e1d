//! Reading and writing: buffers of the program, through the view, to and from the disk.

use super::disk::{PIECE_BYTES, Stretch};
use super::view::View;
use super::{File, Split};
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::Held;
use redrt_abi::{
    MPI_ERR_ACCESS, MPI_ERR_ARG, MPI_ERR_OTHER, MPI_ERR_READ_ONLY, MPI_ERR_UNSUPPORTED_OPERATION, MPI_MODE_RDONLY,
    MPI_MODE_SEQUENTIAL, MPI_MODE_WRONLY,
};
use redrt_comm::datatype::Datatype;
use redrt_process::lock;
use std::ffi::c_void;

/// A buffer of the program, with the number and type of its elements.
pub struct Buffer {
    /// Address of the buffer.
    pub start: *mut c_void,
    /// Number of elements of `datatype`.
    pub count: i64,
    /// Type of the elements.
    pub datatype: Held<Datatype>,
}

impl Buffer {
    /// Number of bytes in the file.
    fn file_bytes(&self, view: &View) -> Result<u64> {
        view.representation.size(&self.datatype, self.count.max(0) as u64)
    }

    /// Distance that a pointer moves, in elements of the view.
    pub fn elements(&self, view: &View) -> Result<i64> {
        Ok(self.file_bytes(view)?.div_ceil(view.element_size()) as i64)
    }

    /// Distance that a pointer moves if only `moved` bytes of memory were filled, in elements of the view.
    fn elements_of(&self, view: &View, moved: u64) -> Result<i64> {
        let bytes = match view.representation.uniform(&self.datatype)? {
            Some((file, memory)) => moved / memory * file + moved % memory,
            None if view.representation.is_native() => moved,
            None => view.representation.size(&self.datatype, moved / self.datatype.size().max(1))?,
        };
        Ok(bytes.div_ceil(view.element_size()) as i64)
    }
}

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

impl File {
    /// Fails unless the file was opened for this direction.
    pub fn check_way(&self, way: Way) -> Result {
        match way {
            Way::Read if self.amode & MPI_MODE_WRONLY != 0 => {
                fail!(MPI_ERR_ACCESS, "{} is open for writing only", self.disk.name())
            }
            Way::Write if self.amode & MPI_MODE_RDONLY != 0 => {
                fail!(MPI_ERR_READ_ONLY, "{} is open for reading only", self.disk.name())
            }
            _ => Ok(()),
        }
    }

    /// Fails with `MPI_MODE_SEQUENTIAL`, which allows the shared pointer only.
    pub fn check_random(&self) -> Result {
        if self.amode & MPI_MODE_SEQUENTIAL != 0 {
            fail!(MPI_ERR_UNSUPPORTED_OPERATION, "{} is open with MPI_MODE_SEQUENTIAL", self.disk.name());
        }
        Ok(())
    }

    /// Moves the buffer's elements at an offset of the view. Returns the number of bytes moved, as counted in memory.
    pub fn transfer(&self, way: Way, offset: i64, buffer: &Buffer) -> Result<u64> {
        self.check_way(way)?;
        let view = self.current_view();
        let Some(position) = u64::try_from(offset).ok().and_then(|offset| offset.checked_mul(view.element_size()))
        else {
            fail!(MPI_ERR_ARG, "the offset {offset} is not in the file");
        };
        let length = buffer.file_bytes(&view)?;
        match way {
            Way::Write => self.write(&view, position, length, buffer),
            Way::Read => self.read(&view, position, length, buffer),
        }
    }

    fn write(&self, view: &View, position: u64, length: u64, buffer: &Buffer) -> Result<u64> {
        if length == 0 {
            return Ok(0);
        }
        let Buffer { start, count, datatype } = buffer;
        let size = datatype.packed_size(*count);
        let atomic = *lock(&self.is_atomic);
        let converted = match view.representation.is_native() {
            true => None,
            false => Some(view.representation.encode(datatype, *count, start.cast_const())?),
        };
        let mut packed = Vec::new();
        self.in_pieces(view, position, length, atomic, |done, stretches, now| {
            let bytes = match &converted {
                Some(bytes) => &bytes[done as usize..(done + now) as usize],
                None => {
                    packed.resize(now as usize, 0);
                    datatype.pack_range(start.cast_const().cast(), *count, done, &mut packed);
                    &packed
                }
            };
            self.disk.write(stretches, bytes, atomic)?;
            Ok(true)
        })?;
        Ok(size)
    }

    fn read(&self, view: &View, position: u64, length: u64, buffer: &Buffer) -> Result<u64> {
        let Buffer { start, count, datatype } = buffer;
        let atomic = *lock(&self.is_atomic);
        let converts = !view.representation.is_native();
        let (mut all, mut total) = (Vec::new(), 0);
        self.in_pieces(view, position, length, atomic, |done, stretches, now| {
            let bytes = self.disk.read(stretches, atomic)?;
            total += bytes.len() as u64;
            if converts {
                all.extend_from_slice(&bytes);
            } else {
                datatype.unpack_range(start.cast(), *count, done, &bytes);
            }
            Ok(bytes.len() as u64 == now)
        })?;
        if converts { view.representation.decode(datatype, *count, &all, *start) } else { Ok(total) }
    }

    /// Calls `move_piece` for each piece of a transfer, with the number of bytes before it, its stretches of the file
    /// and its length. Stops when it returns false, at the end of the file. In atomic mode all bytes are one piece, if
    /// it is not too long for one answer.
    fn in_pieces(
        &self,
        view: &View,
        position: u64,
        length: u64,
        atomic: bool,
        mut move_piece: impl FnMut(u64, &[Stretch], u64) -> Result<bool>,
    ) -> Result {
        const ATOMIC_BYTES: u64 = 32 << 20;
        let piece = if atomic { ATOMIC_BYTES } else { PIECE_BYTES as u64 };
        let mut done = 0;
        let mut stretches: Vec<Stretch> = Vec::new();
        while done < length {
            let now = piece.min(length - done);
            stretches.clear();
            view.stretches(position + done, now, &mut |stretch| match stretches.last_mut() {
                Some(last) if last.offset + last.length == stretch.offset => last.length += stretch.length,
                _ => stretches.push(stretch),
            });
            if !move_piece(done, &stretches, now)? {
                break;
            }
            done += now;
        }
        Ok(())
    }

    /// Moves the buffer's elements at the individual pointer, and advances the pointer.
    pub fn transfer_here(&self, way: Way, buffer: &Buffer) -> Result<u64> {
        self.check_random()?;
        self.check_way(way)?;
        let view = self.current_view();
        let length = buffer.elements(&view)?;
        let begin = {
            // MPI-5.0 section 14.4.3: the pointer moves by the requested amount when the call begins.
            let mut pointer = lock(&self.pointer);
            let begin = *pointer;
            *pointer += length;
            begin
        };
        let moved = self.transfer(way, begin, buffer)?;
        if way == Way::Read {
            *lock(&self.pointer) = begin + buffer.elements_of(&view, moved)?.min(length);
        }
        Ok(moved)
    }

    /// Begins a split collective: `run` makes the transfer. Fails if one has begun already.
    pub fn begin_split(&self, ends_by: &'static str, run: impl FnOnce() -> Result<u64>) -> Result {
        if let Some(other) = *lock(&self.split) {
            fail!(MPI_ERR_OTHER, "{} was not called yet", other.ends_by);
        }
        let bytes = run()?;
        *lock(&self.split) = Some(Split { ends_by, bytes });
        Ok(())
    }

    /// Ends the split collective. Returns the number of bytes moved. Fails unless the split collective of this function
    /// has begun.
    pub fn end_split(&self, ends_by: &'static str) -> Result<u64> {
        let mut split = lock(&self.split);
        match *split {
            Some(begun) if begun.ends_by == ends_by => {
                *split = None;
                Ok(begun.bytes)
            }
            Some(begun) => fail!(MPI_ERR_OTHER, "what has begun ends by {}", begun.ends_by),
            None => fail!(MPI_ERR_OTHER, "no split collective has begun"),
        }
    }
}
