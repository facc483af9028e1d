//! The shared file pointer: a number in memory of rank 0, changed by fetch and add.

use super::File;
use super::access::{Buffer, Way};
use redrt_abi::MPI_ERR_ARG;
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::OpHandle;
use redrt_comm::comm::Comm;
use redrt_comm::comm::cards::exchange;
use std::sync::Arc;

/// A number at rank 0 that all members can reach.
pub trait Counter: Send + Sync {
    /// Combines the number with a value, as `MPI_Fetch_and_op` does. Returns the previous number.
    fn exchange(&self, value: i64, op: OpHandle) -> Result<i64>;

    /// Frees the counter. Collective, after the last use.
    fn close(&self) -> Result;
}

/// Makes a counter of value 0. Collective over the communicator.
pub type MakeCounter = fn(&Arc<Comm>) -> Result<Box<dyn Counter>>;

/// The shared pointer, in a counter.
pub struct SharedPointer(Box<dyn Counter>);

impl SharedPointer {
    /// Makes a pointer to the beginning. Collective.
    pub fn new(comm: &Arc<Comm>, make: MakeCounter) -> Result<Self> {
        make(comm).map(Self)
    }

    /// Frees the pointer. Collective, after the last use.
    pub fn close(&self) -> Result {
        self.0.close()
    }

    /// Position, in elements of the view.
    pub fn get(&self) -> Result<i64> {
        self.0.exchange(0, OpHandle::NO_OP)
    }

    /// Advances the pointer. Returns its previous position.
    pub fn advance(&self, elements: i64) -> Result<i64> {
        self.0.exchange(elements, OpHandle::SUM)
    }

    /// Sets the position, in elements of the view.
    pub fn set(&self, offset: i64) -> Result {
        self.0.exchange(offset, OpHandle::REPLACE).map(drop)
    }
}

impl File {
    /// Moves the buffer's elements at the shared pointer.
    pub fn transfer_shared(&self, way: Way, buffer: &Buffer) -> Result<u64> {
        self.check_way(way)?;
        let elements = buffer.elements(&self.current_view())?;
        let begin = self.shared()?.advance(elements)?;
        self.transfer(way, begin, buffer)
    }

    /// Moves the buffers' elements at the shared pointer, in rank order. Collective.
    pub fn transfer_ordered(&self, way: Way, buffer: &Buffer) -> Result<u64> {
        self.check_way(way)?;
        let shared = self.shared()?;
        let own = buffer.elements(&self.current_view())?;
        let cards = exchange(&self.comm, [own as u64, 0, 0, 0])?;
        let sum = |cards: &[[u64; 4]]| cards.iter().map(|card| card[0] as i64).sum::<i64>();
        let base = if self.comm.rank == 0 { shared.advance(sum(&cards))? } else { 0 };
        let base = exchange(&self.comm, [base as u64, 0, 0, 0])?[0][0] as i64;
        self.transfer(way, base + sum(&cards[..self.comm.rank as usize]), buffer)
    }

    /// Sets the shared pointer. Collective; fails unless all members pass the same offset.
    pub fn seek_shared(&self, offset: i64) -> Result {
        let shared = self.shared()?;
        let offsets = exchange(&self.comm, [offset as u64, 0, 0, 0])?;
        if offsets.iter().any(|card| card[0] != offset as u64) {
            fail!(MPI_ERR_ARG, "the ranks seek to different offsets");
        }
        if self.comm.rank == 0 {
            shared.set(offset)?;
        }
        // No member uses the pointer before it is set.
        exchange(&self.comm, [0; 4]).map(drop)
    }
}
