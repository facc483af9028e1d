//! Standard input on its way to rank 0: which hosts are given it, what each has taken, what is in images, and what of
//! it a job that goes back to a line is given again.
//!
//! All counts are of bytes since the begin of the job's standard input, in whichever life they were read.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// So much of what was read since a line is kept, to be given again. With more the job cannot go back to it.
pub const INPUT_BYTES_MAX: usize = 64 << 20;

/// Given at once of what is given again.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StandardInput {
    /// Read, and given to the hosts.
    read_bytes: u64,
    /// What each host that has replicas of rank 0 has taken of it.
    taken_bytes: BTreeMap<u32, u64>,
    /// What had been read when processes were last stopped for a line.
    line_bytes: u64,
    /// What the newest line that is kept had had, or what this life began with.
    newest_bytes: u64,
    /// Absent where no lines are taken.
    log: Option<Log>,
    /// Processes are being loaded. What is read goes to the log alone: they are given that when all are there.
    is_loading: bool,
    has_ended: bool,
}

/// What was read last.
#[derive(Debug, Serialize, Deserialize)]
struct Log {
    /// Bytes that were read before it.
    begin: u64,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl Log {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// What is before this is not needed any more.
    fn cut(&mut self, begin: u64) {
        if begin > self.begin {
            let count = begin.min(self.end()) - self.begin;
            self.bytes.drain(..count as usize);
            self.begin += count;
        }
    }
}

impl StandardInput {
    /// Processes begin that have had so much. `takes_lines`: they may go back.
    pub fn new(bytes: u64, takes_lines: bool) -> Self {
        Self {
            read_bytes: bytes,
            taken_bytes: BTreeMap::new(),
            line_bytes: bytes,
            newest_bytes: bytes,
            log: takes_lines.then_some(Log { begin: bytes, bytes: Vec::new() }),
            is_loading: false,
            has_ended: false,
        }
    }

    /// All processes are gone, and others begin that have had so much.
    pub fn go_back(&mut self, bytes: u64) {
        self.taken_bytes.clear();
        (self.read_bytes, self.line_bytes, self.newest_bytes, self.is_loading) = (bytes, bytes, bytes, true);
        if !self.has_since(bytes) {
            // What they are not given again cannot be had: they go on with what is read next.
            self.log = self.log.take().map(|_| Log { begin: bytes, bytes: Vec::new() });
        }
    }

    /// Replicas of rank 0 are launched on these hosts.
    pub fn launched(&mut self, hosts: impl Iterator<Item = u32>) {
        self.taken_bytes = hosts.map(|host| (host, self.read_bytes)).collect();
    }

    /// A copy is there. It has been given what was sent before, which nobody has read meanwhile.
    pub fn join(&mut self, host: u32) {
        self.taken_bytes.entry(host).or_insert(self.read_bytes);
    }

    pub fn lose(&mut self, host: u32) {
        self.taken_bytes.remove(&host);
    }

    pub fn readers(&self) -> impl Iterator<Item = u32> + '_ {
        self.taken_bytes.keys().copied()
    }

    /// Whether more may be read now.
    pub fn is_wanted(&self) -> bool {
        !self.is_loading
    }

    /// This was read. Whether it is to be given to the hosts now.
    pub fn note_read(&mut self, bytes: &[u8]) -> bool {
        if let Some(log) = &mut self.log {
            log.bytes.extend_from_slice(bytes);
            if log.bytes.len() > INPUT_BYTES_MAX {
                let begin = if self.line_bytes > log.begin { self.line_bytes } else { log.end() };
                log.cut(begin);
            }
        }
        if !self.is_loading {
            self.read_bytes += bytes.len() as u64;
        }
        !self.is_loading
    }

    /// Nothing more will be read. Whether the hosts are to be told now.
    pub fn note_end(&mut self) -> bool {
        self.has_ended = true;
        !self.is_loading
    }

    /// All processes are there that were being loaded: what was read since their line, to be given to them in turn, and
    /// whether that was all.
    pub fn loaded(&mut self) -> Option<(Vec<Vec<u8>>, bool)> {
        if !std::mem::replace(&mut self.is_loading, false) {
            return None;
        }
        let missed = self.log.as_ref().map_or(&[][..], |log| &log.bytes[(self.read_bytes - log.begin) as usize..]);
        self.read_bytes += missed.len() as u64;
        Some((missed.chunks(PIECE_BYTES_MAX).map(<[u8]>::to_vec).collect(), self.has_ended))
    }

    pub fn note_taken(&mut self, host: u32, byte_count: u64) {
        *self.taken_bytes.entry(host).or_default() += byte_count;
    }

    pub fn line_begins(&mut self) {
        self.line_bytes = self.read_bytes;
    }

    /// The line that was begun last is kept.
    pub fn line_kept(&mut self) {
        self.newest_bytes = self.line_bytes;
        if let Some(log) = &mut self.log {
            log.cut(self.newest_bytes);
        }
    }

    /// Whether processes that have had so much can be given all that was read since.
    pub fn has_since(&self, bytes: u64) -> bool {
        self.log.as_ref().is_some_and(|log| (log.begin..=log.end()).contains(&bytes))
    }

    /// Whether the job can go back to its newest line, or its begin.
    pub fn has_all(&self) -> bool {
        self.log.is_none() || self.has_since(self.newest_bytes)
    }

    pub fn bytes_at_line(&self) -> u64 {
        self.line_bytes
    }

    /// Read, and not yet taken by the slowest host that needs it.
    pub fn in_flight_bytes(&self) -> u64 {
        let slowest = self.taken_bytes.values().copied().min().unwrap_or(self.read_bytes);
        self.read_bytes.saturating_sub(slowest)
    }
}
