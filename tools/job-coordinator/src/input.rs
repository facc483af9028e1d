//! Standard input on its way to rank 0: the hosts that get it, the bytes that each has taken, the bytes that images
//! contain, and the log from which a job that goes back to a checkpoint gets them again.
//!
//! All counts are of bytes since the begin of the job's standard input, in whichever life they were read.

use super::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum bytes of input since a checkpoint that are kept to be given again. With more, the job cannot go back to it.
pub const INPUT_BYTES_MAX: usize = 64 << 20;

/// Bytes on their way to the slowest host at which no more is read.
const INPUT_WINDOW_BYTES: u64 = 256 << 10;

/// Maximum bytes of one message when input is given again.
pub(super) const PIECE_BYTES_MAX: usize = 64 << 10;

/// The counts and the log of standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StandardInput {
    /// Bytes that were read and given to the hosts.
    read_bytes: u64,
    /// Bytes that each host with replicas of rank 0 has taken.
    taken_bytes: BTreeMap<u32, u64>,
    /// Bytes that had been read when processes were last stopped for a checkpoint.
    line_bytes: u64,
    /// Bytes that the images of the newest checkpoint contain. Without one, those at the begin of this life.
    newest_bytes: u64,
    /// None where no checkpoints are taken.
    log: Option<Log>,
    /// True while processes are being loaded. Input goes only to the log then, and is given to them when all are there.
    is_loading: bool,
    /// Input that waits until no process of rank 0 is stopped for an image.
    #[serde(with = "serde_bytes")]
    waiting: Vec<u8>,
    /// True if the end of the input waits behind it.
    end_waits: bool,
    has_ended: bool,
}

/// The latest part of the input.
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

    /// Drops all bytes before `begin`.
    fn cut(&mut self, begin: u64) {
        if begin > self.begin {
            let count = begin.min(self.end()) - self.begin;
            self.bytes.drain(..count as usize);
            self.begin += count;
        }
    }
}

impl StandardInput {
    /// The input of processes that have had `bytes`. With `takes_checkpoints` they may go back to a checkpoint.
    pub fn new(bytes: u64, takes_checkpoints: bool) -> Self {
        Self {
            read_bytes: bytes,
            taken_bytes: BTreeMap::new(),
            line_bytes: bytes,
            newest_bytes: bytes,
            log: takes_checkpoints.then_some(Log { begin: bytes, bytes: Vec::new() }),
            is_loading: false,
            waiting: Vec::new(),
            end_waits: false,
            has_ended: false,
        }
    }

    /// Starts a life whose processes have had `bytes`.
    pub fn go_back(&mut self, bytes: u64) {
        self.taken_bytes.clear();
        (self.read_bytes, self.line_bytes, self.newest_bytes, self.is_loading) = (bytes, bytes, bytes, true);
        if !self.has_since(bytes) {
            // The log lacks bytes that they need. They go on with the next input that is read.
            self.log = self.log.take().map(|_| Log { begin: bytes, bytes: Vec::new() });
        }
        let (waiting, has_ended) = self.take_waiting();
        self.record_read(&waiting);
        if has_ended {
            self.record_end();
        }
    }

    /// Keeps input that came while a process of rank 0 is stopped for an image, or behind such input.
    pub fn wait(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Keeps the end of the input behind input that waits.
    pub fn wait_with_end(&mut self) {
        self.end_waits = true;
    }

    /// Returns true if input waits.
    pub fn has_waiting(&self) -> bool {
        self.end_waits || !self.waiting.is_empty()
    }

    /// Takes out the input that waits. With true if it is the last.
    pub fn take_waiting(&mut self) -> (Vec<u8>, bool) {
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.end_waits))
    }

    /// Records that replicas of rank 0 are launched on these hosts.
    pub fn launched(&mut self, hosts: impl Iterator<Item = u32>) {
        let taken = if mutation::is(Mutation::InputCountedTwice) { 0 } else { self.read_bytes };
        self.taken_bytes = hosts.map(|host| (host, taken)).collect();
    }

    /// Records that a copy joined on this host. Its host got all earlier input, which the copy's image contains.
    pub fn join(&mut self, host: u32) {
        self.taken_bytes.entry(host).or_insert(self.read_bytes);
    }

    pub fn lose(&mut self, host: u32) {
        self.taken_bytes.remove(&host);
    }

    pub fn readers(&self) -> impl Iterator<Item = u32> + '_ {
        self.taken_bytes.keys().copied()
    }

    /// Returns true if more input may be read now.
    pub fn is_wanted(&self) -> bool {
        !self.is_loading && !self.has_waiting() && self.in_flight_bytes() < INPUT_WINDOW_BYTES
    }

    /// Records input that was read. Returns true if it is to be given to the hosts now.
    pub fn record_read(&mut self, bytes: &[u8]) -> bool {
        if let Some(log) = &mut self.log {
            log.bytes.extend_from_slice(bytes);
            if log.bytes.len() > INPUT_BYTES_MAX {
                // Input that only an older checkpoint lacks goes first.
                let end = log.end();
                for begin in [self.newest_bytes, self.line_bytes, end] {
                    if log.bytes.len() > INPUT_BYTES_MAX {
                        log.cut(begin);
                    }
                }
            }
        }
        if !self.is_loading {
            self.read_bytes += bytes.len() as u64;
        }
        !self.is_loading
    }

    /// Records the end of input. Returns true if the hosts are to be told now.
    pub fn record_end(&mut self) -> bool {
        self.has_ended = true;
        !self.is_loading
    }

    /// Ends loading. Returns the input since the checkpoint, in pieces for the hosts, and true if the input has ended.
    /// None if no processes were being loaded.
    pub fn loaded(&mut self) -> Option<(Vec<Vec<u8>>, bool)> {
        if !std::mem::replace(&mut self.is_loading, false) {
            return None;
        }
        let missed = self.log.as_ref().map_or(&[][..], |log| &log.bytes[(self.read_bytes - log.begin) as usize..]);
        self.read_bytes += missed.len() as u64;
        Some((missed.chunks(PIECE_BYTES_MAX).map(<[u8]>::to_vec).collect(), self.has_ended))
    }

    /// Records that a host has taken input. A late message of a host without readers does not count: as the slowest
    /// host it would end all reading.
    pub fn record_taken(&mut self, host: u32, byte_count: u64) {
        if let Some(taken) = self.taken_bytes.get_mut(&host) {
            *taken += byte_count;
        }
    }

    pub fn checkpoint_begins(&mut self) {
        self.line_bytes = self.read_bytes;
    }

    /// Records that the newest checkpoint is kept. Input before it is needed no more, but for an older one to which the
    /// job may go back, whose images contain `older_bytes`.
    pub fn checkpoint_kept(&mut self, older_bytes: Option<u64>) {
        self.newest_bytes = self.line_bytes;
        if let Some(log) = &mut self.log {
            log.cut(older_bytes.map_or(self.newest_bytes, |older| older.min(self.newest_bytes)));
        }
    }

    /// Returns true if processes that have had `bytes` can be given all input since.
    pub fn has_since(&self, bytes: u64) -> bool {
        self.log.as_ref().is_some_and(|log| (log.begin..=log.end()).contains(&bytes))
    }

    /// Returns true if the input is kept that a return to the newest checkpoint, or the begin, would need.
    pub fn has_all(&self) -> bool {
        self.log.is_none() || self.has_since(self.newest_bytes)
    }

    pub fn bytes_at_checkpoint(&self) -> u64 {
        self.line_bytes
    }

    /// Bytes that were read, and that the slowest host has not taken yet.
    pub fn in_flight_bytes(&self) -> u64 {
        let slowest = self.taken_bytes.values().copied().min().unwrap_or(self.read_bytes);
        self.read_bytes.saturating_sub(slowest)
    }
}
