//! The programs around the library: `redrun` starts a job and coordinates it, `redrtd` holds its processes on one host.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod daemon;
pub mod member;
mod own_network;
pub mod redclone;
pub mod redctl;
pub mod redplan;
pub mod redreport;
pub mod redrtd;
pub mod redrun;
pub mod redspared;
mod symbols;
