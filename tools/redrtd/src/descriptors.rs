//! The numbers of descriptors that processes and helpers inherit.

use std::os::fd::RawFd;

/// Number of the control socket in every process.
pub const CONTROL_FD: RawFd = 200;
/// Number of the node's shared memory in every process.
pub const SHARED_MEMORY_FD: RawFd = 201;
/// Number of the helper's socket to the daemon.
pub const HELPER_FD: RawFd = 202;
/// Number of the listening socket of the cloner's agent in a process that can be cloned.
pub const CLONER_FD: RawFd = 203;
/// Number of the memory for windows, where processes do not make it by themselves.
pub const WINDOWS_FD: RawFd = 204;
