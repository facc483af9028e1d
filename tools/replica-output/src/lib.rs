//! Output of processes on its way to the user: compared between replicas, then cut into whole lines. Pure: bytes in,
//! bytes out.
#![forbid(unsafe_code)]

pub mod corruption;
mod leader;
pub mod lines;
pub mod mismatch;
pub mod plain_stream;
mod position;
mod printed;
pub mod restored;
pub mod shown;
pub mod sphere_stream;
mod units;
mod voted;
