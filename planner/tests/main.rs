//! Tests of whole models: against published papers, against the simulation, and advice. One program, because each would
//! be linked separately.

mod advise;
mod dino;
mod fti_hydee;
mod ftm;
mod gaspi;
mod properties;
mod simulation;
