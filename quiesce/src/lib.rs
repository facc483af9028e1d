//! The replication protocol of one process, and MPI matching, as pure state machines: no I/O, no clock, no thread, no
//! randomness.
//!
//! - [`matching`]: which message goes to which receive
//! - [`Replica`]: which message is sent to whom, kept, compared, acknowledged; what happens when a replica is lost,
//!   or when a copy joins
//! - [`view`]: who supplies whom and who leads, as functions of a view
//!
//! Everything holds under any interleaving of processes, as long as frames from one process to another stay in order. A
//! frame that no sound replica sends is refused with a [`ProtocolError`].
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod channel;
mod decision;
mod error;
mod frame;
mod hashable_map;
mod lag;
pub mod matching;
#[cfg_attr(not(any(test, feature = "mutation")), allow(dead_code))]
mod mutation;
mod outcome;
mod path;
mod replica;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod view;

pub use decision::{Lookup, Timed};
pub use error::{Breach, ProtocolError};
pub use frame::{Action, Arrival, Finding, Frame, MessageId, MismatchReport, Outbound, Output, PayloadKey};
#[cfg(any(test, feature = "mutation"))]
pub use mutation::Mutation;
pub use outcome::{Call, Decided, DecisionItem, DecisionKey, Outcome, Place, Question, StreamId};
pub use path::{Claim, MAJORITY_DEGREE, PathFinding, PathReport};
pub use replica::{Config, Counters, Replica, Verification};
pub use view::{Protocol, Service};
