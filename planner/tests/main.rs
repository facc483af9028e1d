//! The models as a whole: against what papers have published, against the simulation, and advice. One program, since
//! each would be linked apart.

mod advise;
mod dino;
mod fti_hydee;
mod ftm;
mod gaspi;
mod properties;
mod simulation;
