//! Faults that `--inject` asks for, in the form for the process that carries them out.

use redrt_types::ReplicaId;
use serde::{Deserialize, Serialize};

/// A fault to carry out inside a process. It is timed by the count, from 1, of sends to other virtual ranks, or of
/// messages received from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProcessFault {
    /// SIGKILL itself before send number `send`.
    Kill {
        /// Number of the send.
        send: u64,
    },
    /// SIGKILL itself when it has changed a file for its rank, before its siblings learn of it.
    KillAfterChange {
        /// Number of the change.
        change: u64,
    },
    /// Flip bit `bit` (modulo the payload's bits) of the application's buffer before it is sent.
    FlipPayload {
        /// Number of the send.
        send: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Reset the connections with another process before send number `send`.
    Reset {
        /// Number of the send.
        send: u64,
        /// The other process.
        peer: ReplicaId,
    },
    /// While the process is on this host: flip a bit of the application's buffer before one send in `period`.
    Sick {
        /// Number of the host.
        host: u32,
        /// Sends for each flip.
        period: u64,
    },
    /// Flip a bit of its output; carried out by its daemon.
    FlipOutput {
        /// Number of the line, from 1.
        line: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo the payload's bits) of the transmitted copy after its digest was taken.
    FlipWire {
        /// Number of the send.
        send: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Flip a bit of the registers or the stack of the thread that makes send number `send`, some instructions later;
    /// carried out by its daemon's helper. If that send is not the program's own, the next one of a thread of the
    /// program counts.
    FlipThread {
        /// Number of the send.
        send: u64,
        /// Seed of the bit's number, and of the count of instructions.
        bit: u64,
    },
    /// Flip a bit, drawn from `bit`, of the program's heap or static data before send number `send`.
    FlipHeap {
        /// Number of the send.
        send: u64,
        /// Seed of the bit's address.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of a frame with decisions, after its checksum was taken.
    FlipDecision {
        /// Number of the frame.
        frame: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of bytes read from a file for the rank, before its siblings get them.
    FlipRead {
        /// Number of the piece.
        read: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of the process's memory as it is copied at the cut; carried out by its daemon's
    /// helper.
    FlipClone {
        /// Number of the clone among those made of it on its host.
        clone: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo its bits) of a received payload, after its verdict and before the program sees it.
    FlipReceived {
        /// Number of the received message.
        message: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Falsify one outcome for the program, from its MPI call number `call` on: a test finds nothing, a probe finds a
    /// message that is not there, a clock is an hour late, or bit `bit` (modulo its bits) flips in bytes read from a
    /// file. The agreed outcome itself stays right.
    Falsify {
        /// Number of the MPI call of the thread, after which the next outcome is falsified.
        call: u64,
        /// Number of the bit.
        bit: u64,
    },
    /// Flip bit `bit` (modulo the payload's bits) of the payload kept for resending, after it has been sent.
    FlipLogged {
        /// Number of the send.
        send: u64,
        /// Number of the bit.
        bit: u64,
    },
}
