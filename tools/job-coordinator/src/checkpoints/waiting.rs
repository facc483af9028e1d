//! Requests for a checkpoint: of processes (`redrt_checkpoint`) and of users (`redctl checkpoint`).
//!
//! A process is answered when all processes of a checkpoint are copied, and before they go on. One that goes on from
//! its image knows by itself that the checkpoint was taken. So a request that arrives while a checkpoint is being
//! written waits for the next one. A user is answered when the checkpoint is kept.

use crate::asker::Asker;
use redrt_types::ReplicaId;
use serde::{Deserialize, Serialize};

/// Requests without an answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// Processes, each with the number of its question.
    processes: Vec<(ReplicaId, u64)>,
    users: Vec<Asker>,
}

impl Waiting {
    pub fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    pub fn add_process(&mut self, replica: ReplicaId, number: u64) {
        self.processes.push((replica, number));
    }

    pub fn add_user(&mut self, asker: Asker) {
        self.users.push(asker);
    }

    /// Takes out the processes, which are answered now.
    pub fn take_processes(&mut self) -> Vec<(ReplicaId, u64)> {
        std::mem::take(&mut self.processes)
    }

    /// Takes out the users, who are answered now.
    pub fn take_users(&mut self) -> Vec<Asker> {
        std::mem::take(&mut self.users)
    }

    /// Forgets the processes, which are gone.
    pub fn begin_life(&mut self) {
        self.processes.clear();
    }
}
