//! Where in a program a message was sent, for `redrun --check-determinism`.

use redrt_types::{ContextId, SeqNum, VirtualRank};
use serde::{Deserialize, Serialize};

/// Names a message to its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Sending {
    /// To whom.
    pub to: VirtualRank,
    /// The context it travelled in.
    pub context: ContextId,
    /// Its number on the channel.
    pub sequence: SeqNum,
}

/// A place in a file that is mapped where code runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// The file; empty for code that is in none.
    pub file: String,
    /// Offset in the file, or the address.
    pub offset: u64,
}

/// A stack, innermost frame first. Each frame but the first is what its callee returns to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// When it was taken, in nanoseconds since the epoch by its host's clock.
    pub time_ns: u64,
    /// The frames.
    pub frames: Vec<Frame>,
}
