//! Room for recovery without a spare: memory for a neighbour's processes, and a store for its checkpoints (thesis on
//! FTM, section 5.3.1, figure 5.5).

/// One node while the program and its protection run, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Memory that is free.
    pub free_memory: u64,
    /// Resident memory of the program's processes on a node.
    pub processes: u64,
    /// Checkpoint files of the program's processes on a node, all that are kept.
    pub checkpoints: u64,
    /// Free space of the local disk.
    pub free_disk: u64,
    /// Free space of the central store, for this node's share.
    pub free_central: u64,
}

/// What a lost node needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spare {
    /// A neighbour has the memory to take its processes.
    Optional,
    /// Nobody has: a spare is needed, or the job makes a safe stop.
    Mandatory,
}

/// Where checkpoints are kept, the fastest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Store {
    /// Main memory.
    Memory,
    /// The node's own disk.
    LocalDisk,
    /// A central file system.
    Central,
}

impl Node {
    /// Whether a neighbour can take the processes of a lost node.
    #[must_use]
    pub fn spare(&self) -> Spare {
        if self.free_memory >= self.processes { Spare::Optional } else { Spare::Mandatory }
    }

    /// The fastest store that holds a node's own checkpoints and its neighbour's. What memory holds of them is not
    /// there for processes: memory counts only as far as it is not needed to take the neighbour's.
    #[must_use]
    pub fn store(&self) -> Option<Store> {
        let needed = self.checkpoints.checked_mul(2)?;
        let memory = self.free_memory.saturating_sub(self.processes);
        let stores = [(Store::Memory, memory), (Store::LocalDisk, self.free_disk), (Store::Central, self.free_central)];
        stores.into_iter().find(|(_, free)| *free >= needed).map(|(store, _)| store)
    }
}
