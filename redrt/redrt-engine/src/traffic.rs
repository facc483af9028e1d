//! Traffic of `redrun --profile`: logical messages, each counted once, however many replicas get it and however often
//! it is sent again. So replicas of a rank that have come equally far have equal counts, and a copy continues its
//! source's.

use redrt_types::VirtualRank;
use redrt_wire::profile::SentTo;

/// Messages and bytes, by receiver. Messages to other jobs or to the own rank are not counted.
pub struct Traffic(Vec<(u64, u64)>);

impl Traffic {
    /// Starts with no messages. `rank_count`: ranks of the job.
    pub fn new(rank_count: u32) -> Self {
        Self(vec![(0, 0); rank_count as usize])
    }

    /// Counts a message of this many bytes.
    #[cold]
    pub fn record(&mut self, to: VirtualRank, bytes: usize) {
        if let Some((messages, sum)) = self.0.get_mut(to.0 as usize) {
            *messages += 1;
            *sum += bytes as u64;
        }
    }

    /// The counts so far, without ranks that got nothing.
    pub fn sent(&self) -> Vec<SentTo> {
        let all = (0..).zip(&self.0).filter(|(_, (messages, _))| *messages > 0);
        all.map(|(rank, (messages, bytes))| SentTo { rank, messages: *messages, bytes: *bytes }).collect()
    }
}
