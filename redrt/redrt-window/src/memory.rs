//! The memory behind a window: the program's, the window's own, or shared by processes of a host.

use super::mapping::Mapping;
use super::pages::Pages;
use redrt_abi::memory::{allocate, free};
use redrt_types::VirtualRank;
use std::sync::Arc;

/// Owner of a window's memory, kept until the window is freed.
#[expect(dead_code, reason = "held, not looked at")]
pub enum Memory {
    /// The program, which has passed it to `MPI_Win_create`.
    Lent,
    /// The window (`MPI_Win_allocate`).
    Own(Block),
    /// The members of the window, which are on one host.
    Shared(Shared),
    /// The members of the window, in a job whose processes are saved or replicated.
    Pages(Pages),
}

/// Memory that the window allocates for the program, zeros at first.
pub struct Block(usize);

impl Block {
    /// Allocates `size` zero bytes; `None` if there is no memory for them.
    pub fn new(size: usize) -> Option<Self> {
        let start = allocate(size)?;
        // SAFETY: - valid for writes of size bytes: just allocated.
        unsafe { start.cast::<u8>().write_bytes(0, size) };
        Some(Self(start.expose_provenance()))
    }

    /// Address of the first byte.
    pub fn start(&self) -> usize {
        self.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        free(std::ptr::with_exposed_provenance_mut(self.0));
    }
}

/// Memory that the members of a window map, with the facts by which a later window may take it over.
#[derive(Clone)]
pub struct Shared {
    mapping: Arc<Mapping>,
    members: Arc<[VirtualRank]>,
    number: u64,
    is_for_copies: bool,
}

impl Shared {
    /// Memory of these members. `number` is the same at all of them. `is_for_copies` is true if they can copy from and
    /// to each other's memory.
    pub fn new(mapping: Mapping, members: Arc<[VirtualRank]>, number: u64, is_for_copies: bool) -> Self {
        Self { mapping: Arc::new(mapping), members, number, is_for_copies }
    }

    /// Address of the first byte in this process.
    pub fn start(&self) -> usize {
        self.mapping.start()
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.mapping.length()
    }

    /// Number of the memory, the same at all members.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if the memory belongs to these members, and serves for copies if `for_copies`.
    pub fn fits(&self, members: &[VirtualRank], for_copies: bool) -> bool {
        *self.members == *members && (self.is_for_copies || !for_copies)
    }
}
