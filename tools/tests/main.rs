//! The programs as processes. One program, since each would be linked apart.

mod admin;
mod jobs;
mod pool;
mod redplan;
mod report;
