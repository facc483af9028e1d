//! Which hosts are there: what each daemon hears of its neighbours, and what `redrun` makes of it. Pure; time comes as
//! ticks.
//!
//! ```text
//!   h0 ── beat ──▶ h1 ── beat ──▶ h2 ── beat ──▶ h0 …          a ring, both ways; and from each daemon to its parent
//!   redrun ── beat, numbered ──▶ all, down the tree            the lease
//!
//!   Observer (each daemon, and redrun)        Arbiter (redrun)
//!      8 ticks without a beat ── Quiet ───▶     asks the others, so that their answers are there when they are needed
//!     17 ticks without a beat ── Silent ──▶     two observers say so, or nobody else can be asked: dead
//!     refused by the host     ── Gone ────▶     dead: the host has answered that the daemon has ended
//!     one below has lost us   ── Parted ──▶     the root watches it itself: somebody always does
//!                             ◀── Probe ──      one says so: what do the others hear?
//!     5 ticks without redrun's beat: looks for another way to it
//!     18 ticks: cut off; kills its processes and leaves
//! ```
//! A tick is a twentieth of `--detect-timeout`. An observer that was stopped itself, or got no processor, finds one
//! tick late and not twenty missed: silence is counted in ticks, not in time. Of a network in two parts, the one that
//! holds `redrun` goes on, if every rank has a replica there; the other stops itself.
#![forbid(unsafe_code)]

mod arbiter;
mod observer;
mod refusals;
pub mod shape;
#[cfg(test)]
mod sim;

pub use arbiter::{Arbiter, Death, Verdict, Who};
pub use observer::{Duty, Observer};
pub use refusals::Refusals;

/// Ticks in the time after which, at the latest, a dead host has been found.
pub const TICKS: u32 = 20;
/// Ticks without a beat after which the other observers of a host are asked, so that their answers are there when they
/// are needed.
pub const QUIET_TICKS: u32 = 8;
/// Ticks after which an observer repeats that a host is silent.
pub const REPEAT_TICKS: u32 = 5;
/// Ticks without a beat after which a host is suspected.
pub const SUSPECT_TICKS: u32 = 17;
/// Ticks without a beat from the root after which a daemon looks for another way to it.
pub const WAY_TICKS: u32 = 5;
/// How often at least it looks for one as long as it hears nothing. A root that takes so long to answer is no help.
const WAY_TICKS_MAX: u32 = 128;
/// Ticks without a beat from the root after which a daemon takes itself for cut off.
pub const LEASE_TICKS: u32 = 18;
