//! The shared file pointer: a number of rank 0, fetched and added to.

use super::File;
use super::access::{Buffer, Way};
use crate::abi::MPI_ERR_ARG;
use crate::comm::Comm;
use crate::comm::cards::exchange;
use crate::error::Result;
use crate::fail;
use crate::handle::OpHandle;
use std::sync::Arc;

/// A number of rank 0 that all members can reach.
pub trait Counter: Send + Sync {
    /// Combines it with a value, as `MPI_Fetch_and_op` does. Returns what it was.
    fn exchange(&self, value: i64, op: OpHandle) -> Result<i64>;

    /// Nobody uses it any more. All members call.
    fn close(&self) -> Result;
}

/// Makes a counter, which begins at 0. All members of the communicator call.
pub type MakeCounter = fn(&Arc<Comm>) -> Result<Box<dyn Counter>>;

/// Where the pointer is.
pub struct SharedPointer(Box<dyn Counter>);

impl SharedPointer {
    /// At the beginning. All members call.
    pub fn new(comm: &Arc<Comm>, make: MakeCounter) -> Result<Self> {
        make(comm).map(Self)
    }

    /// Nobody uses it any more. All members call.
    pub fn close(&self) -> Result {
        self.0.close()
    }

    /// Where it is.
    pub fn get(&self) -> Result<i64> {
        self.0.exchange(0, OpHandle::NO_OP)
    }

    /// Moves it. Returns where it was.
    pub fn advance(&self, elements: i64) -> Result<i64> {
        self.0.exchange(elements, OpHandle::SUM)
    }

    /// Puts it there.
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

    /// The same, in the order of ranks. All members call.
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

    /// Puts the shared pointer somewhere. All members call, with the same offset.
    pub fn seek_shared(&self, offset: i64) -> Result {
        let shared = self.shared()?;
        let offsets = exchange(&self.comm, [offset as u64, 0, 0, 0])?;
        if offsets.iter().any(|card| card[0] != offset as u64) {
            fail!(MPI_ERR_ARG, "the ranks seek to different offsets");
        }
        if self.comm.rank == 0 {
            shared.set(offset)?;
        }
        // Nobody uses it before it is there.
        exchange(&self.comm, [0; 4]).map(drop)
    }
}
