//! Descriptor numbers that processes and helpers inherit.

use std::os::fd::RawFd;

/// The control socket, in every process.
pub const CONTROL_FD: RawFd = 200;
/// The host's shared memory, in every process.
pub const SHARED_MEMORY_FD: RawFd = 201;
/// A helper's socket to the daemon.
pub const HELPER_FD: RawFd = 202;
/// Listening socket of the cloner's agent, in a cloneable process.
pub const CLONER_FD: RawFd = 203;
/// Memory for windows, where processes do not create it themselves.
pub const WINDOWS_FD: RawFd = 204;
