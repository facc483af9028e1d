//! Where processes run: the placement of replicas on hosts. Pure: a world and hosts in, a placement out.
#![forbid(unsafe_code)]

mod placement;

pub use placement::{Host, Order, Placement, PlacementError, place};
