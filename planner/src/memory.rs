//! Recovery without a spare: whether a neighbour has memory for the lost processes, and a store for their checkpoints
//! (thesis on FTM, section 5.3.1, figure 5.5).

/// Resources of one node while program and protection run, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Free memory while the program runs.
    pub free_memory: u64,
    /// Resident memory of the program's processes on a node.
    pub processes: u64,
    /// All checkpoint files that are kept of a node's processes.
    pub checkpoints: u64,
    /// Free space of the local disk.
    pub free_disk: u64,
    /// Free space of the central store, as the share of this node.
    pub free_central: u64,
}

/// Need for a spare after the loss of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spare {
    /// A neighbour has enough memory for the lost processes.
    Optional,
    /// No neighbour has: a spare is needed, or the job makes a safe stop.
    Mandatory,
}

/// Storage of checkpoints, fastest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Store {
    /// Main memory of the node.
    Memory,
    /// Local disk of the node.
    LocalDisk,
    /// File system shared by all nodes.
    Central,
}

impl Node {
    /// Tells whether a neighbour can take the processes of a lost node.
    #[must_use]
    pub fn spare(&self) -> Spare {
        if self.free_memory >= self.processes { Spare::Optional } else { Spare::Mandatory }
    }

    /// Fastest store for a node's own checkpoints and its neighbour's. Memory counts only as far as it is not needed
    /// for the neighbour's processes. `None` if no store suffices.
    #[must_use]
    pub fn store(&self) -> Option<Store> {
        let needed = self.checkpoints.checked_mul(2)?;
        let memory = self.free_memory.saturating_sub(self.processes);
        let stores = [(Store::Memory, memory), (Store::LocalDisk, self.free_disk), (Store::Central, self.free_central)];
        stores.into_iter().find(|(_, free)| *free >= needed).map(|(store, _)| store)
    }
}
