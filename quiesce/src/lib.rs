//! The replication protocol of one process, and MPI matching, as pure state machines: no I/O, no clock, no thread, no
//! randomness.
//!
//! - [`matching`]: pairs messages with receives
//! - [`Replica`]: sends, keeps, compares and acknowledges messages, and acts on the loss of a replica or the join of a
//!   copy
//! - [`view`]: supplier and leader, as functions of a view
//!
//! All guarantees hold under any interleaving of processes, as long as frames from one process to another stay in
//! order. A frame that no sound replica sends is refused with a [`ProtocolError`].
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod channel;
mod decision;
mod error;
mod frame;
mod hashable_map;
mod lag;
pub mod matching;
#[cfg_attr(not(any(test, feature = "simulation")), allow(dead_code))]
mod mutation;
mod outcome;
mod path;
mod replica;
#[cfg(any(test, feature = "simulation"))]
pub mod sim;
pub mod view;

pub use decision::{Lookup, Timed};
pub use error::{Breach, ProtocolError};
pub use frame::{Action, Arrival, Finding, Frame, MessageId, MismatchReport, Outbound, Output, PayloadKey};
#[cfg(any(test, feature = "simulation"))]
pub use mutation::Mutation;
pub use outcome::{Call, Decided, DecisionItem, DecisionKey, Outcome, Place, Question, StreamId};
pub use path::{Claim, MAJORITY_DEGREE, PathFinding, PathReport};
pub use replica::{Config, Counters, Replica, Verification};
pub use view::{Protocol, Service};
