//! Position in a program of a send, for `redrun --check-determinism`.

use redrt_types::{ContextId, SeqNum, VirtualRank};
use serde::{Deserialize, Serialize};

/// Identity of a message at its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Sending {
    /// Rank of the receiver.
    pub to: VirtualRank,
    /// The context it travelled in.
    pub context: ContextId,
    /// Its number on the channel.
    pub sequence: SeqNum,
}

/// A position in a file that is mapped where code runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// The file; empty for code that is in none.
    pub file: String,
    /// Offset in the file; the address without a file.
    pub offset: u64,
}

/// A stack, innermost frame first. Each frame but the first is a return address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// Time of the stack, in nanoseconds since the epoch by its host's clock.
    pub time_ns: u64,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
}
