//! Members' parts of a direct window: in memory that all members map, or in another process, where the kernel copies.

use crate::apply::{Done, Form, Spot};
use crate::order::Combination;
use redrt_abi::MPI_ERR_OTHER;
use redrt_transport::direct;
use redrt_transport::memory::Scratch;

/// The part of a window's memory that one member exposes.
pub enum Part {
    /// Loads and stores reach it, at this first address.
    Mapped(usize),
    /// It is in another process: the process id, and the first address there.
    Elsewhere(i32, u64),
}

/// Memory that an operation reaches.
pub enum Reached {
    /// Reached by loads and stores.
    Mapped(Spot),
    /// Reached by copies that the kernel makes: the process id, the address of the form's origin, and the form.
    Elsewhere(i32, u64, Form),
}

impl Part {
    /// Address of the first byte; `None` if loads and stores do not reach the part.
    #[inline(always)]
    pub fn mapped(&self) -> Option<*mut u8> {
        match self {
            Self::Mapped(start) => Some(std::ptr::with_exposed_provenance_mut(*start)),
            Self::Elsewhere(..) => None,
        }
    }

    /// Memory of this form, `offset` bytes from the beginning of the part. The caller has checked that the part has it.
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

/// Error class for a failed copy: the process is ending, or its program has unmapped memory that it exposes.
pub fn cannot_be_reached(_: std::io::Error) -> i32 {
    MPI_ERR_OTHER
}

/// Blocks of a form in another process, in packing order.
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
    // SAFETY: - data is valid for reads of its length.
    //         - the other process has exposed this memory to writes.
    unsafe { direct::write_blocks(pid, &blocks, &[data]) }.map_err(cannot_be_reached)
}

/// # Safety
/// `into` is valid for writes of as many bytes as the form has.
#[inline(never)]
unsafe fn read_elsewhere(pid: i32, address: u64, form: &Form, into: *mut u8) -> Done {
    let (blocks, into) = (blocks(address, form), (into as u64, form.size()));
    // SAFETY: - into is valid for writes of form.size() bytes: the caller's duty above.
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

    /// Writes packed bytes; if there are fewer than the size, only the first.
    pub fn write(&self, data: &[u8]) -> Done {
        match self {
            Self::Mapped(spot) => spot.write(data),
            Self::Elsewhere(pid, address, form) => write_elsewhere(*pid, *address, form, data),
        }
    }

    /// Reads the bytes, packed, to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of [`Reached::size`] bytes.
    pub unsafe fn read_to(&self, into: *mut u8) -> Done {
        match self {
            Self::Mapped(spot) => {
                // SAFETY: - into is valid for writes of the spot's size: the caller's duty above.
                unsafe { spot.read_to(into) };
                Ok(())
            }
            // SAFETY: - into is valid for writes of the form's size: the caller's duty above.
            Self::Elsewhere(pid, address, form) => unsafe { read_elsewhere(*pid, *address, form, into) },
        }
    }

    /// Runs `act` on the memory, or on a copy that is then written back. The caller holds the target's latch.
    pub fn change<T>(&self, act: impl FnOnce(&Spot) -> Done<T>) -> Done<T> {
        if let Self::Mapped(spot) = self {
            return act(spot);
        }
        let mut scratch = Scratch::new(self.size());
        let copy = scratch.region();
        // SAFETY: - valid for writes of self.size() bytes: the scratch has just been made with that many.
        unsafe { self.read_to(copy.start())? };
        let done = act(&Spot::new(copy.start(), &Form::Block { offset: 0, size: self.size() }))?;
        copy.with_bytes(|bytes| self.write(bytes))?;
        Ok(done)
    }

    /// Replaces the bytes by their combination with `data`. The caller holds the target's latch.
    pub fn combine(&self, how: Combination, data: &[u8]) -> Done {
        self.change(|spot| spot.combine(how, data))
    }
}
