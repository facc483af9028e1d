//! Liveness of hosts: what each daemon hears of its neighbours, and the decision of `redrun` from that. Pure; time
//! comes as ticks.
//!
//! ```text
//!   h0 ── beat ──▶ h1 ── beat ──▶ h2 ── beat ──▶ h0 …          a ring, both ways; and from each daemon to its parent
//!   redrun ── beat, numbered ──▶ all, down the tree            the lease
//!
//!   Observer (each daemon, and redrun)        Arbiter (redrun)
//!      8 ticks without a beat ── Quiet ───▶     asks the others, so that their answers are there when they are needed
//!     17 ticks without a beat ── Silent ──▶     two observers say so, or nobody else can be asked: dead
//!     refused by the host     ── Gone ────▶     dead: the host has answered that the daemon has ended
//!     one below has lost us   ── Parted ──▶     the coordinator watches it itself: somebody always does
//!                             ◀── Probe ──      one says so: what do the others hear?
//!     5 ticks without redrun's beat: looks for another way to it
//!     18 ticks: cut off; kills its processes and leaves
//! ```
//! A tick is a twentieth of `--detect-timeout`. An observer that was stopped, or got no processor, finds one late tick
//! and not twenty missed ones: silence is counted in ticks, not in time. If the network splits, the part with `redrun`
//! goes on if every rank has a replica there; the other stops itself.
#![forbid(unsafe_code)]

mod arbiter;
mod observer;
mod refusals;
pub mod shape;
#[cfg(any(test, feature = "simulation"))]
pub mod sim;

pub use arbiter::{Arbiter, Death, Verdict, Who};
pub use observer::{Duty, Observer};
pub use refusals::Refusals;

/// Ticks within which a dead host is found.
pub const TICKS: u32 = 20;
/// Ticks without a beat after which the other observers are asked, so that their answers are at hand in time.
pub const QUIET_TICKS: u32 = 8;
/// Ticks after which an observer repeats its report of silence.
pub const REPEAT_TICKS: u32 = 5;
/// Ticks without a beat after which a host is suspected.
pub const SUSPECT_TICKS: u32 = 17;
/// Ticks without a beat from the coordinator after which a daemon tries another connection to it.
pub const WAY_TICKS: u32 = 5;
/// Maximum interval between these attempts. A coordinator that takes so long to answer is no help.
const WAY_TICKS_MAX: u32 = 128;
/// Ticks without a beat from the coordinator after which a daemon counts itself as cut off.
pub const LEASE_TICKS: u32 = 18;
