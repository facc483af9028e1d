//! Which hosts a job uses, which processors each of its processes, and on which hosts it goes on from a line.

pub mod homes;
pub mod places;
pub mod plan;
pub mod topology;
