//! The control plane's wire format: how `redrun`, `redrtd` and the agent in each application process talk.
//!
//! `control` and `daemon` list the messages, `card` says how processes find each other, `tree` how messages of many
//! hosts travel together, `scrub` what is said of memory, `dynamic` of jobs that jobs start, `fault` what is injected,
//! `no_image` why a process was not copied or saved, `object` what moves to object stores and back, `slots` what a
//! rankfile says of cores.
//! `frame` cuts a byte stream into messages. `auth` proves to both ends of a connection that the other knows the job's
//! `secret` before anything else is read, and `seal` encrypts what follows. Decoders return errors, never panic,
//! and never allocate more than a frame's stated, bounded length. Application payloads do not travel here.
#![forbid(unsafe_code)]

pub mod auth;
pub mod card;
pub mod clone;
pub mod control;
pub mod crowd;
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
pub mod line;
pub mod no_image;
pub mod object;
pub mod profile;
pub mod scrub;
pub mod seal;
pub mod secret;
pub mod slots;
pub mod trace;
pub mod tree;
