//! Where a member's part of a window is: in memory that all map, or in its process, from which the kernel copies.

use crate::abi::MPI_ERR_OTHER;
use crate::window::apply::{Done, Form, Spot};
use crate::window::order::Combination;
use redrt_transport::direct;
use redrt_transport::memory::Scratch;

/// A member's part.
pub enum Part {
    /// Loads and stores reach it: its first address here.
    Mapped(usize),
    /// It is in another process: its number, and the first address there.
    Elsewhere(i32, u64),
}

/// Memory that an operation reaches.
pub enum Reached {
    /// By loads and stores.
    Mapped(Spot),
    /// By copies that the kernel makes: the process, the address that the form begins at, and the form.
    Elsewhere(i32, u64, Form),
}

impl Part {
    /// Its first byte, where loads and stores reach it.
    #[inline(always)]
    pub fn mapped(&self) -> Option<*mut u8> {
        match self {
            Self::Mapped(start) => Some(std::ptr::with_exposed_provenance_mut(*start)),
            Self::Elsewhere(..) => None,
        }
    }

    /// Bytes of this form, `offset` bytes from the beginning of the part; within it, which was checked.
    pub fn reach(&self, offset: i64, form: &Form) -> Reached {
        match self {
            Self::Mapped(start) => {
                let origin = std::ptr::with_exposed_provenance_mut::<u8>(*start).wrapping_offset(offset as isize);
                Reached::Mapped(Spot::new(origin, form))
            }
            Self::Elsewhere(pid, start) => Reached::Elsewhere(*pid, start.wrapping_add_signed(offset), form.clone()),
        }
    }
}

/// The process is ending, or the program has unmapped what it has exposed.
pub fn cannot_be_reached(_: std::io::Error) -> i32 {
    MPI_ERR_OTHER
}

/// Blocks in another process, in packing order.
fn blocks(address: u64, form: &Form) -> Vec<direct::Block> {
    let mut found = Vec::new();
    let mut visit = |offset: i64, size: u64| found.push((address.wrapping_add_signed(offset), size as usize));
    match form {
        Form::Block { offset, size } => visit(*offset, *size as u64),
        Form::Spread(layout) => layout.for_each_block(0, layout.size(), &mut visit),
    }
    found
}

#[inline(never)]
fn write_elsewhere(pid: i32, address: u64, form: &Form, data: &[u8]) -> Done {
    let (blocks, data) = (blocks(address, form), (data.as_ptr() as u64, data.len()));
    // SAFETY: - `data` are read; the other process has exposed this memory to writes.
    unsafe { direct::write_blocks(pid, &blocks, &[data]) }.map_err(cannot_be_reached)
}

/// # Safety
/// `into` is valid for as many bytes of writes as the form has.
#[inline(never)]
unsafe fn read_elsewhere(pid: i32, address: u64, form: &Form, into: *mut u8) -> Done {
    let (blocks, into) = (blocks(address, form), (into as u64, form.size()));
    // SAFETY: - as promised to this function.
    unsafe { direct::read_blocks(pid, &blocks, &[into]) }.map_err(cannot_be_reached)
}

impl Reached {
    /// Number of bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Mapped(spot) => spot.size(),
            Self::Elsewhere(_, _, form) => form.size(),
        }
    }

    /// Writes packed bytes; the front, if there are fewer.
    pub fn write(&self, data: &[u8]) -> Done {
        match self {
            Self::Mapped(spot) => spot.write(data),
            Self::Elsewhere(pid, address, form) => write_elsewhere(*pid, *address, form, data),
        }
    }

    /// What is there, packed, to `into`, which holds as many bytes.
    ///
    /// # Safety
    /// `into` is valid for that many bytes of writes.
    pub unsafe fn read_to(&self, into: *mut u8) -> Done {
        match self {
            Self::Mapped(spot) => {
                // SAFETY: - as promised to this function.
                unsafe { spot.read_to(into) };
                Ok(())
            }
            // SAFETY: - `into` has room for all: as promised to this function.
            Self::Elsewhere(pid, address, form) => unsafe { read_elsewhere(*pid, *address, form, into) },
        }
    }

    /// Runs `act` on the memory, or on a copy that is then written back. Others must be kept away.
    pub fn change<T>(&self, act: impl FnOnce(&Spot) -> Done<T>) -> Done<T> {
        if let Self::Mapped(spot) = self {
            return act(spot);
        }
        let mut scratch = Scratch::new(self.size());
        let copy = scratch.region();
        // SAFETY: - it has just been made with that many bytes.
        unsafe { self.read_to(copy.start())? };
        let done = act(&Spot::new(copy.start(), &Form::Block { offset: 0, size: self.size() }))?;
        copy.with_bytes(|bytes| self.write(bytes))?;
        Ok(done)
    }

    /// What is there becomes what is there combined with `data`. Others must be kept away.
    pub fn combine(&self, how: Combination, data: &[u8]) -> Done {
        self.change(|spot| spot.combine(how, data))
    }
}
