//! What processes print, on its way to the user: compared between replicas, then kept in whole lines. Pure: bytes in,
//! bytes out.

pub mod lines;
pub mod sphere_stream;
