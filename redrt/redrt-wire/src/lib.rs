//! Wire format of the control plane: messages of `redrun`, `redrtd` and the agent in each application process.
//!
//! `control` and `daemon` list the messages. `card` has addresses of processes, `tree` the frames for messages of many
//! hosts, `scrub` comparisons of memory, `dynamic` jobs that jobs start, `fault` injected faults, `no_image` reasons
//! for a missing copy or image, `object` transfers to object stores, `slots` the cores of a rankfile.
//! `frame` cuts a byte stream into messages. `auth` proves to both ends of a connection that the other knows the job's
//! `secret` before anything else is read, and `seal` encrypts what follows. Decoders return errors, never panic,
//! and never allocate more than a frame's stated, bounded length. Application payloads do not travel here.
#![forbid(unsafe_code)]

pub mod auth;
pub mod card;
pub mod checkpoint;
pub mod clone;
pub mod control;
pub mod daemon;
pub mod deadline;
pub mod dynamic;
pub mod event;
pub mod exit;
pub mod fault;
pub mod foreign;
pub mod frame;
#[cfg(test)]
mod fuzz;
pub mod lack;
pub mod no_image;
pub mod object;
pub mod profile;
pub mod scrub;
pub mod seal;
pub mod secret;
pub mod slots;
pub mod trace;
pub mod tree;
pub mod unauthenticated;
