//! Standard input: each process of rank 0 gets each byte once, in whichever life it was read.

use redrt_types::ReplicaId;
use redrt_wire::checkpoint::Generation;
use std::collections::BTreeMap;

/// The typed input, and how much of it each process has been given.
#[derive(Default)]
pub struct Typed {
    /// Bytes that were read.
    read_bytes: u64,
    /// Bytes that each process of rank 0 has been given.
    given_bytes: BTreeMap<ReplicaId, u64>,
    /// Bytes that the source of rank 0 had been given when it was stopped for a checkpoint.
    image_bytes: BTreeMap<Generation, u64>,
    /// The line that was read last.
    last: Vec<u8>,
}

/// The byte at this place of the input.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

impl Typed {
    /// The next line of input.
    pub fn read(&mut self, byte_count: u64) -> Vec<u8> {
        self.last = (self.read_bytes..self.read_bytes + byte_count).map(byte).collect();
        self.read_bytes += byte_count;
        self.last.clone()
    }

    /// The line that was read last, once more.
    pub fn again(&self) -> Vec<u8> {
        self.last.clone()
    }

    /// A process begins as new, or from the image of a checkpoint.
    pub fn load(&mut self, replica: ReplicaId, from: Option<Generation>) {
        self.given_bytes.insert(replica, from.map_or(0, |generation| self.image_bytes[&generation]));
    }

    /// A copy goes on where its source was cut.
    pub fn copy(&mut self, replica: ReplicaId, source: ReplicaId) {
        if let Some(given) = self.given_bytes.get(&source).copied() {
            self.given_bytes.insert(replica, given);
        }
    }

    /// The source of rank 0 is stopped for a checkpoint.
    pub fn stop(&mut self, generation: Generation, source: ReplicaId) {
        if let Some(given) = self.given_bytes.get(&source) {
            self.image_bytes.insert(generation, *given);
        }
    }

    /// Gives a process input. Returns what is wrong with it.
    pub fn give(&mut self, replica: ReplicaId, bytes: &[u8]) -> Option<String> {
        let given = self.given_bytes.entry(replica).or_default();
        let is_next = bytes.iter().zip(*given..).all(|(got, at)| *got == byte(at));
        *given += bytes.len() as u64;
        let at = *given;
        (!is_next || at > self.read_bytes).then(|| format!("{replica} gets input twice, or not all, before byte {at}"))
    }

    /// Checks the count of a checkpoint that is to be kept.
    pub fn check(&self, generation: Generation, counted_bytes: u64) -> Option<String> {
        let had = self.image_bytes.get(&generation).copied();
        (had != Some(counted_bytes))
            .then(|| format!("{generation} counts {counted_bytes} bytes of input, it has {had:?}"))
    }
}
