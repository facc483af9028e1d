//! The programs around the library: `redrun` starts a job and coordinates it, `redrtd` holds its processes on one host.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod cli;
mod columns;
pub mod council;
pub mod daemon;
pub mod developers;
mod foreign;
mod homes;
pub mod installation;
mod interface;
pub mod jobs;
pub mod keeper;
mod learned;
mod ledger;
pub mod member;
mod openmetrics;
mod own_network;
mod pages;
mod places;
pub mod plan;
pub mod pool;
mod prompt;
mod quantity;
pub mod redclone;
pub mod redctl;
pub mod redplan;
pub mod redreport;
pub mod redrtd;
pub mod redrun;
pub mod redspared;
pub mod remote;
pub mod secret_file;
pub mod surroundings;
mod symbols;
pub mod terminal;
mod topology;
mod undo;
mod user_signals;
