//! What was sent to whom, for `redrun --profile`: logical messages, each once, however many replicas get it and however
//! often it is sent again. So all replicas of a rank that have come as far count the same, and a copy goes on where its
//! source was.

use redrt_types::VirtualRank;
use redrt_wire::profile::SentTo;

/// By receiver: messages and bytes. What goes to other jobs, or to oneself, is not counted.
pub struct Traffic(Vec<(u64, u64)>);

impl Traffic {
    /// No message was sent yet. `rank_count`: ranks of the job.
    pub fn new(rank_count: u32) -> Self {
        Self(vec![(0, 0); rank_count as usize])
    }

    /// A message is sent.
    #[cold]
    pub fn note(&mut self, to: VirtualRank, bytes: usize) {
        if let Some((messages, sum)) = self.0.get_mut(to.0 as usize) {
            *messages += 1;
            *sum += bytes as u64;
        }
    }

    /// What was sent so far.
    pub fn sent(&self) -> Vec<SentTo> {
        let all = (0..).zip(&self.0).filter(|(_, (messages, _))| *messages > 0);
        all.map(|(rank, (messages, bytes))| SentTo { rank, messages: *messages, bytes: *bytes }).collect()
    }
}
