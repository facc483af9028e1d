//! Faults that `--inject` asks for, as the process that carries them out is told.

use redrt_types::ReplicaId;
use serde::{Deserialize, Serialize};

/// A fault to carry out inside a process, counted in its sends to other virtual ranks, or what it receives from them,
/// from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProcessFault {
    /// SIGKILL itself before send number `send`.
    Kill {
        /// Number of the send.
        send: u64,
    },
    /// SIGKILL itself when it has changed a file for its rank, before its siblings hear of it.
    KillAfterChange {
        /// Number of the change.
        change: u64,
    },
    /// Flip bit `bit` (modulo the payload's bits) of the application's buffer before it is sent.
    FlipPayload {
        /// Number of the send.
        send: u64,
        /// Which bit.
        bit: u64,
    },
    /// Reset the connections with another process before send number `send`.
    Reset {
        /// Number of the send.
        send: u64,
        /// Which process.
        peer: ReplicaId,
    },
    /// While the process is on this host: flip a bit of the application's buffer before one send in `period`.
    Sick {
        /// Number of the host.
        host: u32,
        /// How seldom.
        period: u64,
    },
    /// Flip a bit in what it prints; carried out by its daemon.
    FlipOutput {
        /// Number of the line, from 1.
        line: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo the payload's bits) of the transmitted copy after its digest was taken.
    FlipWire {
        /// Number of the send.
        send: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip a bit of the registers or the stack of the thread that makes send number `send`, some instructions after
    /// that; carried out by its daemon's helper. The first send from there on that a thread of the program makes.
    FlipThread {
        /// Number of the send.
        send: u64,
        /// Which bit, and after how many instructions: both are drawn from this.
        bit: u64,
    },
    /// Flip a bit, drawn from `bit`, of the program's heap or static data before send number `send`.
    FlipHeap {
        /// Number of the send.
        send: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of a frame with decisions, after its checksum was taken.
    FlipDecision {
        /// Number of the frame.
        frame: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of what was read from a file for the rank, before its siblings are told.
    FlipRead {
        /// Number of the piece.
        read: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of what is copied of the process at the cut; carried out by its daemon's
    /// helper.
    FlipClone {
        /// Number of the clone that is made of it on its host.
        clone: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of what has been received, after its verdict and before the program sees it.
    FlipReceived {
        /// Number of the received message.
        message: u64,
        /// Which bit.
        bit: u64,
    },
    /// Falsify one outcome for the program, from its MPI call number `call` on: a test finds nothing, a probe finds a
    /// message that is not there, a clock is an hour late, or bit `bit` (modulo its bits) flips in what it reads of a
    /// file. The outcome as it was agreed on stays what it is.
    Falsify {
        /// Number of the MPI call of the thread, after which the next outcome is falsified.
        call: u64,
        /// Which bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo the payload's bits) of the payload that is kept to be sent again, after it has been sent.
    FlipLogged {
        /// Number of the send.
        send: u64,
        /// Which bit.
        bit: u64,
    },
}
